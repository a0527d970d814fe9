//! Evaluates selections into row sets, and loads stored row sets.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use datafusion::execution::SendableRecordBatchStream;
use futures::future::join;
use futures::{FutureExt as _, StreamExt as _};
use stoker_lake::Table;
use stoker_types::{Digest, is_heavy};

use super::bitmaps::{Bitmaps, BitmapsBuilder};
use super::header::{Header, PageEntry};
use super::page::{self, PAGE_ROWS};
use super::paged::{Paged, Pages, load};
use super::store::{Store, header_path, page_path};
use super::{Recipe, RowSet, Rows};
use crate::planning::{activity_of, on_large_stack, physical};
use crate::running::{RowLimits, run};
use crate::sample::Selection;
use crate::{ColumnSource, Engine, Error, Result, SampleQuery};

/// Evaluates the query and stores its row set.
pub(crate) async fn compute(engine: &Engine, query: &SampleQuery) -> Result<RowSet> {
    let planned = query.clone();
    let activity = activity_of(&query.selection().state)?;
    let work = async move {
        let selection = planned.selection();
        physical(&selection.state, &selection.plan).await
    };
    let (state, plan) = on_large_stack(engine, &activity, work.boxed()).await?;
    let batches = run(engine, plan, state.task_ctx(), RowLimits::NONE, activity.begin()).await?;
    let store = Store::new(engine.lake().objects());
    let selection = query.selection();
    let made = match selection.ranked {
        true => ranked(query, batches, store).await?,
        false => unranked(selection, batches, store).await?,
    };
    let recipe = Recipe { engine: engine.unlimited(), query: query.clone() };
    let (sources, Made { digest, num_rows, rows }) = (selection.sources.clone(), made);
    Ok(RowSet { digest, num_rows, sources, rows, recipe })
}

/// The parts of a row set that differ between ranked and unranked row sets.
struct Made {
    digest: Digest,
    num_rows: u64,
    rows: Rows,
}

/// Loads the stored row set, or else computes it. The computed row set must have the same digest.
pub(crate) async fn load_or_compute(engine: &Engine, query: &SampleQuery, expected: Digest) -> Result<RowSet> {
    match load_stored(engine, query, expected).await {
        Ok(Some(row_set)) => return Ok(row_set),
        Ok(None) => tracing::info!(%expected, "the row set is not stored, computing it"),
        Err(error @ Error::RowSetCorrupt { .. }) => tracing::warn!(%error, "computing the row set again"),
        Err(error) => return Err(error),
    }
    let row_set = compute(engine, query).await?;
    match row_set.digest() == expected {
        true => Ok(row_set),
        false => Err(Error::RowSetMismatch { expected, actual: row_set.digest() }),
    }
}

async fn load_stored(engine: &Engine, query: &SampleQuery, expected: Digest) -> Result<Option<RowSet>> {
    let store = Store::new(engine.lake().objects());
    let path = header_path(expected);
    let Some(content) = store.content(&path).await? else { return Ok(None) };
    let corrupt = |reason: String| Error::RowSetCorrupt { path: path.clone(), reason };
    let header = Header::from_bytes(&content).map_err(corrupt)?;
    if header.digest()? != expected {
        return Err(corrupt("it is the header of another row set".to_string()));
    }
    let selection = query.selection();
    let snapshots: Vec<_> = selection.sources.iter().map(Table::snapshot).collect();
    let num_columns = selection.plan.schema().fields().len() - snapshots.len();
    if header.sources != snapshots || header.columns.len() != num_columns || header.ranked != selection.ranked {
        // The stored row set is not that of this query at these snapshots. Evaluating the query shows which digest it
        // has.
        return Ok(None);
    }
    let rows = match header.ranked {
        false => Rows::Unranked(load_bitmaps(&store, &header).await?),
        true => {
            let paths = header.pages.iter().map(|entry| page_path(entry.digest)).collect();
            if !store.all_exist(paths).await? {
                return Ok(None);
            }
            let schema = selection.plan.schema().inner().clone();
            Rows::Ranked(Paged::new(schema, snapshots.len(), Pages::stored(store, header.pages)))
        }
    };
    let recipe = Recipe { engine: engine.unlimited(), query: query.clone() };
    let sources = selection.sources.clone();
    Ok(Some(RowSet { digest: expected, num_rows: header.num_rows, sources, rows, recipe }))
}

async fn load_bitmaps(store: &Store, header: &Header) -> Result<Bitmaps> {
    let entry = header.pages.first().ok_or_else(|| Error::internal("an unranked row set has no page"))?;
    let path = page_path(entry.digest);
    let corrupt = |reason: &str| Error::RowSetCorrupt { path: path.clone(), reason: reason.to_string() };
    let content = store.content(&path).await?.ok_or_else(|| corrupt("it is missing"))?;
    if Digest::of(&content) != entry.digest {
        return Err(corrupt("it does not have the digest in its name"));
    }
    let bitmaps = Bitmaps::from_bytes(&content).map_err(|reason| corrupt(&reason))?;
    match bitmaps.num_rows() == entry.num_rows {
        true => Ok(bitmaps),
        false => Err(corrupt("its number of rows differs from that in its header")),
    }
}

async fn unranked(selection: &Selection, mut batches: SendableRecordBatchStream, store: Store) -> Result<Made> {
    let schema = batches.schema();
    let mut builder = BitmapsBuilder::default();
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        let addrs = batch.column(0).as_primitive::<UInt64Type>();
        if addrs.null_count() > 0 {
            return Err(Error::internal("a scan gave no row address"));
        }
        builder.insert(addrs.values());
    }
    let bitmaps = builder.finish();
    let content = bitmaps.to_bytes()?;
    let entry = PageEntry { digest: Digest::of(&content), num_rows: bitmaps.num_rows() };
    let header = Header::new(false, snapshots(selection), &schema, vec![entry.clone()]);
    let digest = header.digest()?;
    let stored = async {
        // The two requests run at the same time. A header without its page is detected when the row set is loaded.
        let (page, top, header) = (page_path(entry.digest), header_path(digest), header.to_bytes()?);
        let (page, header) = join(store.put(&page, &content), store.put(&top, &header)).await;
        page.and(header)
    };
    check_stored(digest, stored.await)?;
    Ok(Made { digest, num_rows: header.num_rows, rows: Rows::Unranked(bitmaps) })
}

async fn ranked(query: &SampleQuery, mut batches: SendableRecordBatchStream, store: Store) -> Result<Made> {
    let selection = query.selection();
    let schema = batches.schema();
    let mut writer = PageWriter {
        schema: schema.clone(),
        store,
        pending: Vec::new(),
        num_pending: 0,
        entries: Vec::new(),
        held: None,
    };
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        check_supplied(query, &batch)?;
        writer.write(batch).await?;
    }
    writer.flush().await?;
    let PageWriter { store, entries, mut held, .. } = writer;
    let header = Header::new(true, snapshots(selection), &schema, entries.clone());
    let digest = header.digest()?;
    if held.is_none() {
        let stored = store.put(&header_path(digest), &header.to_bytes()?).await;
        if !check_stored(digest, stored)? {
            held = Some(load_all(&store, &entries).await?);
        }
    }
    let pages = match held {
        Some(pages) => Pages::Held(pages),
        None => Pages::stored(store, entries),
    };
    let rows = Rows::Ranked(Paged::new(schema, selection.sources.len(), pages));
    Ok(Made { digest, num_rows: header.num_rows, rows })
}

/// Checks that every row of a heavy column comes from a table, as tensors in a batch cannot be NULL.
fn check_supplied(query: &SampleQuery, addrs: &RecordBatch) -> Result<()> {
    for column in query.columns().iter().filter(|column| column.optional && is_heavy(&column.field)) {
        let ColumnSource::Table(suppliers) = &column.source else { continue };
        let is_missing = |row: usize| suppliers.iter().all(|(source, _)| addrs.column(*source).is_null(row));
        let missing = (0..addrs.num_rows()).any(is_missing);
        if let (true, Some((source, _))) = (missing, suppliers.first()) {
            let (name, table) = (column.field.name(), query.selection().sources[*source].name());
            let reason = format!(
                "column {name} is heavy, and an outer join gives rows without a row of table {table}, which have no {name}; \
                 write INNER JOIN, or WHERE … IS NOT NULL with a light column of {table}"
            );
            return Err(Error::NotSampleQuery { reason });
        }
    }
    Ok(())
}

fn snapshots(selection: &Selection) -> Vec<stoker_types::Snapshot> {
    selection.sources.iter().map(Table::snapshot).collect()
}

/// Tells whether the objects were stored. If storing failed, the rows are kept in memory.
///
/// # Errors
/// A lake error when the write allowance is spent: a client without allowance gets no memory for the rows either.
fn check_stored(digest: Digest, stored: Result<()>) -> Result<bool> {
    match stored {
        Ok(()) => Ok(true),
        Err(error @ Error::Lake { source: stoker_lake::Error::AllowanceSpent { .. } }) => Err(error),
        Err(error) => {
            tracing::warn!(%digest, %error, "cannot store the row set in the lake, so it stays in memory");
            Ok(false)
        }
    }
}

async fn load_all(store: &Store, entries: &[PageEntry]) -> Result<Vec<RecordBatch>> {
    let mut pages = Vec::with_capacity(entries.len());
    for entry in entries {
        pages.push(load(store, entry).await?);
    }
    Ok(pages)
}

/// Cuts batches into pages of [`PAGE_ROWS`] rows and stores each page when it is full.
struct PageWriter {
    schema: SchemaRef,
    store: Store,
    pending: Vec<RecordBatch>,
    num_pending: usize,
    entries: Vec<PageEntry>,
    /// All pages, after one of them could not be stored.
    held: Option<Vec<RecordBatch>>,
}

impl PageWriter {
    async fn write(&mut self, mut batch: RecordBatch) -> Result<()> {
        while self.num_pending + batch.num_rows() >= PAGE_ROWS {
            let split = PAGE_ROWS - self.num_pending;
            self.pending.push(batch.slice(0, split));
            batch = batch.slice(split, batch.num_rows() - split);
            self.flush().await?;
        }
        if batch.num_rows() > 0 {
            self.num_pending += batch.num_rows();
            self.pending.push(batch);
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let page = concat_batches(&self.schema, &std::mem::take(&mut self.pending))?;
        self.num_pending = 0;
        let digest = page::digest(&page)?;
        if self.held.is_none() {
            let stored = self.store.put(&page_path(digest), &page::to_ipc(&page)?).await;
            if !check_stored(digest, stored)? {
                self.held = Some(load_all(&self.store, &self.entries).await?);
            }
        }
        if let Some(held) = &mut self.held {
            held.push(page.clone());
        }
        self.entries.push(PageEntry { digest, num_rows: page.num_rows() as u64 });
        Ok(())
    }
}
