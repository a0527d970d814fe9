//! Evaluates selections into row sets, and loads stored row sets.

use arrow_array::{Array as _, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use futures::future::join;
use futures::{StreamExt as _, TryStreamExt as _};
use stoker_columns::is_heavy;
use stoker_lake::Table;
use stoker_types::Digest;

use super::bitmaps::Bitmaps;
use super::header::{Header, PageEntry};
use super::page::{self, PAGE_ROWS};
use super::paged::{Paged, Pages, load};
use super::partial::{PartialRowSet, PartialRows};
use super::store::{Store, header_path, page_path};
use super::{Recipe, RowSet, RowSource, Rows};
use crate::sample::Selection;
use crate::{ColumnSource, Engine, Error, Result, SampleQuery, Split};

/// Evaluates the query and stores its row set.
pub(crate) async fn compute(engine: &Engine, query: &SampleQuery) -> Result<RowSet> {
    let source = RowSource::new(engine, query);
    match (query.selection().ranked, query.split()) {
        (true, Split::Whole { .. }) => mixed(&source).await,
        // A set of addresses is the same in any order, so that it goes through a partial row set in any case.
        (false, _) | (true, Split::ByFragment) => all_fragments(&source).await,
    }
}

/// Computes a row set through one partial row set over all fragments.
async fn all_fragments(source: &RowSource) -> Result<RowSet> {
    let (mut partial, mut rows) = source.all().await?;
    let mut pages = PageWriter::new(store(source), source.page_schema(partial.columns()));
    while let Some(rows) = rows.try_next().await? {
        partial.add(rows)?;
        pages.take(&mut partial).await?;
    }
    complete_with(source, partial, pages).await
}

/// Stores the row set of a partial row set that covers all fragments.
pub(super) async fn complete(source: &RowSource, partial: PartialRowSet) -> Result<RowSet> {
    let pages = PageWriter::new(store(source), source.page_schema(partial.columns()));
    complete_with(source, partial, pages).await
}

/// Stores the row set whose first rows are in `pages`, and whose other rows are in `partial`.
async fn complete_with(source: &RowSource, mut partial: PartialRowSet, mut pages: PageWriter) -> Result<RowSet> {
    pages.take(&mut partial).await?;
    match partial.into_rows() {
        PartialRows::Set(bitmaps) => unranked(source, bitmaps.finish()).await,
        PartialRows::Sequence(_) => ranked(source, pages).await,
    }
}

/// Computes a ranked row set whose rows do not come fragment by fragment.
async fn mixed(source: &RowSource) -> Result<RowSet> {
    let mut batches = source.batches(None).await?;
    let mut pages = PageWriter::new(store(source), batches.schema());
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        check_supplied(source.query(), &batch)?;
        pages.write(batch).await?;
    }
    ranked(source, pages).await
}

fn store(source: &RowSource) -> Store {
    Store::new(source.engine().lake().objects())
}

fn row_set(source: &RowSource, digest: Digest, num_rows: u64, rows: Rows) -> RowSet {
    let recipe = Recipe { engine: source.engine().unlimited(), query: source.query().clone() };
    RowSet { digest, num_rows, sources: source.selection().sources.clone(), rows, recipe }
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

/// Stores a row set without columns.
async fn unranked(source: &RowSource, bitmaps: Bitmaps) -> Result<RowSet> {
    let (selection, store) = (source.selection(), store(source));
    let content = bitmaps.to_bytes()?;
    let entry = PageEntry { digest: Digest::of(&content), num_rows: bitmaps.num_rows() };
    let header = Header::new(false, snapshots(selection), selection.plan.schema().inner(), vec![entry.clone()]);
    let digest = header.digest()?;
    let stored = async {
        // The two requests run at the same time. A header without its page is detected when the row set is loaded.
        let (page, top, header) = (page_path(entry.digest), header_path(digest), header.to_bytes()?);
        let (page, header) = join(store.put(&page, &content), store.put(&top, &header)).await;
        page.and(header)
    };
    check_stored(digest, stored.await)?;
    Ok(row_set(source, digest, header.num_rows, Rows::Unranked(bitmaps)))
}

/// Stores the last page and the header of a row set.
async fn ranked(source: &RowSource, mut pages: PageWriter) -> Result<RowSet> {
    let selection = source.selection();
    pages.flush().await?;
    let PageWriter { schema, store, entries, mut held, .. } = pages;
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
    Ok(row_set(source, digest, header.num_rows, rows))
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
    fn new(store: Store, schema: SchemaRef) -> Self {
        Self { schema, store, pending: Vec::new(), num_pending: 0, entries: Vec::new(), held: None }
    }

    /// Takes the rows of a ranked row set out of a partial row set.
    async fn take(&mut self, partial: &mut PartialRowSet) -> Result<()> {
        for rows in partial.take_sequence() {
            self.write(rows.into_batch(&self.schema)?).await?;
        }
        Ok(())
    }

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
