//! Writes the rows of a group of fragments again.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use futures::TryStreamExt as _;
use lance_table::format::Fragment;
use roaring::{RoaringBitmap, RoaringTreemap};
use stoker_clock::Pace;
use stoker_pages::retype;
use stoker_types::to_usize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::plan::CompactedGroup;
use crate::change::{WrittenFiles, batch_rows, bytes_of};
use crate::damage::{caught, decode_error};
use crate::row_id_set::{fragment_id, row_offset};
use crate::scan::ROW_ADDR;
use crate::write::FragmentFiles;
use crate::{Checksums, Error, Result, ScanRequest, Table};

/// The number of batches that are read ahead of the writer.
const BATCHES_AHEAD: usize = 2;

/// A group of fragments whose rows were written again.
pub(super) struct RewrittenGroup {
    /// The fragments, as the version has them.
    pub old: Vec<Fragment>,
    /// The fragments that take their place. They get their ids when they are committed.
    pub new: Vec<Fragment>,
    /// The addresses of the rows that were written.
    pub live: RoaringTreemap,
    /// The offsets of the deleted rows of each old fragment.
    pub deleted: Vec<RoaringBitmap>,
    /// The bytes of the new data files.
    pub bytes: u64,
}

impl RewrittenGroup {
    pub fn num_deleted(&self) -> u64 {
        self.deleted.iter().map(RoaringBitmap::len).sum()
    }

    /// The names of the new data files.
    pub fn files(&self) -> impl Iterator<Item = String> {
        self.new.iter().flat_map(|fragment| &fragment.files).map(|file| file.path.clone())
    }
}

/// A task that is cancelled when this is dropped.
struct Cancelled(JoinHandle<()>);

impl Drop for Cancelled {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The rows of a group that are still to come, by which it is noticed if a scan leaves rows out or moves them.
struct ExpectedRows {
    /// The id, the number of rows and the deleted rows of each fragment, in the order of the table.
    fragments: Vec<(u64, u64, RoaringBitmap)>,
    /// The index of the fragment with the next row, and the offset of that row.
    next: (usize, u64),
}

impl ExpectedRows {
    fn of(group: &RewrittenGroup) -> Self {
        let fragments = group.old.iter().zip(&group.deleted);
        let of = |(old, deleted): (&Fragment, &RoaringBitmap)| {
            (old.id, old.physical_rows.unwrap_or(0) as u64, deleted.clone())
        };
        Self { fragments: fragments.map(of).collect(), next: (0, 0) }
    }

    /// Checks that these are the next rows. Returns the address of the first row that is not.
    fn check(&mut self, addrs: &[u64]) -> Result<(), u64> {
        match addrs.iter().find(|addr| self.next() != Some(**addr)) {
            None => Ok(()),
            Some(addr) => Err(*addr),
        }
    }
}

impl Iterator for ExpectedRows {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let (index, offset) = self.next;
            let (id, num_rows, deleted) = self.fragments.get(index)?;
            if offset >= *num_rows {
                self.next = (index + 1, 0);
                continue;
            }
            self.next.1 += 1;
            let addr = id << 32 | offset;
            if !deleted.contains(row_offset(addr)) {
                return Some(addr);
            }
        }
    }
}

impl Table {
    /// Writes the rows of a group as new fragments. `report` is called with the bytes that passed so far.
    pub(super) async fn rewrite_group(
        &self,
        group: &CompactedGroup,
        page_bytes: usize,
        written: &WrittenFiles,
        pace: &mut Pace,
        report: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<RewrittenGroup> {
        let mut rewritten = self.old_rows(group).await?;
        let num_rows: u64 = group.new_rows.iter().sum();
        if rewritten.live.len() != num_rows {
            let reason = format!(
                "the manifest says that fragments {:?} have {num_rows} rows which are not deleted, and by their \
                 deletion files they have {}",
                group.fragments,
                rewritten.live.len()
            );
            return Err(Error::DataCorrupt { attempted: self.compacting(), reason });
        }
        let (path, schema) = (self.lake().table_path(self.name()), self.schema());
        let (batches, _reading) = self.read_ahead(group).await?;
        let mut source = GroupRows {
            table: self,
            batches,
            expected: ExpectedRows::of(&rewritten),
            heavy: self.checksums_of(&schema).await?,
            rest: None,
        };
        for rows in &group.new_rows {
            let lance_schema = self.dataset().schema();
            let files = FragmentFiles::create(&self.lake().inner, &path, &schema, lance_schema, page_bytes);
            let mut files = files.await?;
            written.add(files.names());
            let copied = copy_rows(&mut source, &mut files, *rows, pace, report).await;
            if let Err(error) = copied {
                files.abort().await;
                return Err(error);
            }
            let mut fragment = Fragment::new(0);
            fragment.physical_rows = Some(to_usize(*rows));
            for (file, bytes) in files.finish().await? {
                fragment.files.push(file);
                rewritten.bytes += bytes;
            }
            rewritten.new.push(fragment);
        }
        source.check_end().await?;
        Ok(rewritten)
    }

    /// Finds the fragments of a group, and the rows of theirs that are not deleted.
    async fn old_rows(&self, group: &CompactedGroup) -> Result<RewrittenGroup> {
        let attempted = || format!("reading the deletions of {}", self.snapshot());
        let (mut old, mut deleted, mut live) = (Vec::new(), Vec::new(), RoaringTreemap::new());
        for id in &group.fragments {
            let Some(fragment) = self.dataset().get_fragment(to_usize(*id)) else {
                return Err(self.no_row(*id << 32, "; there is no such fragment".into()));
            };
            let gone = caught(fragment.get_deletion_vector()).await;
            let gone = gone.map_err(|source| decode_error(attempted(), source))?;
            let gone = gone.map_or_else(RoaringBitmap::new, |gone| RoaringBitmap::from(gone.as_ref()));
            let num_rows = fragment.metadata().physical_rows.unwrap_or(0) as u64;
            live.insert_range(*id << 32..(*id << 32) + num_rows);
            for offset in &gone {
                live.remove(*id << 32 | u64::from(offset));
            }
            old.push(fragment.metadata().clone());
            deleted.push(gone);
        }
        Ok(RewrittenGroup { old, new: Vec::new(), live, deleted, bytes: 0 })
    }

    /// Reads the rows of a group in their order, in a task of its own.
    async fn read_ahead(&self, group: &CompactedGroup) -> Result<(mpsc::Receiver<Result<RecordBatch>>, Cancelled)> {
        let request = ScanRequest {
            columns: self.schema().fields().iter().map(|field| field.name().clone()).collect(),
            with_row_addr: true,
            fragments: Some(group.fragments.iter().map(|id| fragment_id(*id)).collect()),
            batch_size: batch_rows(&self.schema()),
            ..ScanRequest::default()
        };
        let mut batches = self.scan(&request).await?;
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let attempted = self.compacting();
        let reading = tokio::spawn(async move {
            loop {
                let next = batches.try_next().await.map_err(|source| Error::of_scan(attempted.as_str(), source));
                let is_last = !matches!(next, Ok(Some(_)));
                if let Some(next) = next.transpose()
                    && sender.send(next).await.is_err()
                {
                    return;
                }
                if is_last {
                    return;
                }
            }
        });
        Ok((receiver, Cancelled(reading)))
    }
}

/// The rows of a group that are not written yet.
struct GroupRows<'a> {
    table: &'a Table,
    batches: mpsc::Receiver<Result<RecordBatch>>,
    expected: ExpectedRows,
    /// The checksums of the heavy columns, with the index of each.
    heavy: Vec<(usize, Arc<Checksums>)>,
    /// The end of a batch that did not fit its fragment.
    rest: Option<RecordBatch>,
}

impl GroupRows<'_> {
    /// Returns the next rows, at most `rows_max`.
    async fn next(&mut self, rows_max: u64) -> Result<RecordBatch> {
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => self.read().await?,
        };
        let rows = batch.num_rows().min(to_usize(rows_max));
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        Ok(batch.slice(0, rows))
    }

    /// Reads a batch, checks that it has the next rows, and compares these with their checksums.
    async fn read(&mut self) -> Result<RecordBatch> {
        loop {
            let Some(batch) = self.batches.recv().await.transpose()? else {
                return Err(self.left_out("the scan ended before its last row".into()));
            };
            if batch.num_rows() == 0 {
                continue;
            }
            let addrs = batch.column_by_name(ROW_ADDR).and_then(|addrs| addrs.as_primitive_opt::<UInt64Type>());
            let Some(addrs) = addrs.map(|addrs| addrs.values()) else {
                return Err(self.left_out(format!("rows were read without {ROW_ADDR}")));
            };
            if let Err(addr) = self.expected.check(addrs) {
                let (fragment, offset) = (addr >> 32, row_offset(addr));
                return Err(self.left_out(format!("the scan returned row {offset} of fragment {fragment} too early")));
            }
            let table = self.table;
            let rows = retype(&table.schema(), &batch);
            let rows = rows.map_err(|source| Error::storage(table.compacting(), source))?;
            table.verify(&self.heavy, addrs, &rows, &|_| true, || table.compacting()).await?;
            return Ok(rows);
        }
    }

    /// Checks that no rows are left.
    async fn check_end(&mut self) -> Result<()> {
        let has_more = self.rest.is_some() || self.expected.next().is_some();
        match self.batches.recv().await.transpose()? {
            Some(batch) if batch.num_rows() > 0 => Err(self.left_out("the scan returned more rows".into())),
            _ if has_more => Err(self.left_out("the scan returned fewer rows".into())),
            _ => Ok(()),
        }
    }

    fn left_out(&self, reason: String) -> Error {
        Error::DataCorrupt { attempted: self.table.compacting(), reason }
    }
}

/// Writes the next rows of a group.
async fn copy_rows(
    source: &mut GroupRows<'_>,
    files: &mut FragmentFiles,
    rows: u64,
    pace: &mut Pace,
    report: &(dyn Fn(u64) + Send + Sync),
) -> Result<()> {
    let mut left = rows;
    while left > 0 {
        let batch = source.next(left).await?;
        files.write(&batch).await?;
        left -= batch.num_rows() as u64;
        pace.pass(bytes_of(&batch) as u64).await;
        report(pace.bytes());
    }
    Ok(())
}
