//! Ranked rows in pages, which are loaded on demand.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use stoker_types::to_usize;

use super::header::PageEntry;
use super::page::{self, PAGE_ROWS};
use super::store::{Store, page_path};
use super::{NO_ROW, ResolvedRows};
use crate::{Error, Result};

/// The most loaded pages that are cached.
const NUM_CACHED_PAGES: usize = 8;

/// The pages of a row set.
pub(super) struct Paged {
    schema: SchemaRef,
    num_sources: usize,
    pages: Pages,
}

/// The storage of the pages.
pub(super) enum Pages {
    /// In the lake.
    Stored { store: Store, entries: Vec<PageEntry>, cache: Mutex<VecDeque<(usize, RecordBatch)>> },
    /// In memory, because the lake cannot be written.
    Held(Vec<RecordBatch>),
}

impl Pages {
    pub(super) fn stored(store: Store, entries: Vec<PageEntry>) -> Self {
        Pages::Stored { store, entries, cache: Mutex::default() }
    }
}

type Cache = VecDeque<(usize, RecordBatch)>;

fn lock(cache: &Mutex<Cache>) -> MutexGuard<'_, Cache> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Paged {
    pub(super) fn new(schema: SchemaRef, num_sources: usize, pages: Pages) -> Self {
        Self { schema, num_sources, pages }
    }

    /// Returns the rows at ascending ordinals within range. Each page that is not cached costs one request.
    pub(super) async fn resolve(&self, ordinals: &[u64]) -> Result<ResolvedRows> {
        let mut parts = Vec::new();
        let mut rest = ordinals;
        while let Some(first) = rest.first() {
            let index = first / PAGE_ROWS as u64;
            let split = rest.partition_point(|ordinal| ordinal / PAGE_ROWS as u64 == index);
            let (of_page, after) = rest.split_at(split);
            rest = after;
            let page = self.page(to_usize(index)).await?;
            #[expect(clippy::cast_possible_truncation, reason = "pages have 65,536 rows")]
            let rows = of_page.iter().map(|ordinal| (ordinal % PAGE_ROWS as u64) as u32);
            parts.push(take_record_batch(&page, &UInt32Array::from_iter_values(rows))?);
        }
        let schema = parts.first().map_or_else(|| self.schema.clone(), |part| part.schema());
        let rows = concat_batches(&schema, &parts)?;
        let addrs = rows.columns()[..self.num_sources].iter().map(addresses).collect();
        Ok(ResolvedRows { addrs, columns: rows.columns()[self.num_sources..].to_vec() })
    }

    async fn page(&self, index: usize) -> Result<RecordBatch> {
        let missing = || Error::internal(format!("a row set has no page {index}"));
        let (store, entries, cache) = match &self.pages {
            Pages::Held(pages) => return pages.get(index).cloned().ok_or_else(missing),
            Pages::Stored { store, entries, cache } => (store, entries, cache),
        };
        if let Some(page) = cached(&mut lock(cache), index) {
            return Ok(page);
        }
        let entry = entries.get(index).ok_or_else(missing)?;
        let page = load(store, entry).await?;
        let mut cache = lock(cache);
        cache.push_back((index, page.clone()));
        while cache.len() > NUM_CACHED_PAGES {
            cache.pop_front();
        }
        Ok(page)
    }

    pub(super) fn bytes_in_memory(&self) -> usize {
        match &self.pages {
            Pages::Held(pages) => pages.iter().map(page::bytes_in_memory).sum(),
            Pages::Stored { entries, cache, .. } => {
                let cached: usize = lock(cache).iter().map(|(_, page)| page::bytes_in_memory(page)).sum();
                cached + entries.len() * size_of::<PageEntry>()
            }
        }
    }
}

/// Returns a cached page and makes it the most recently used one.
fn cached(cache: &mut Cache, index: usize) -> Option<RecordBatch> {
    let place = cache.iter().position(|(known, _)| *known == index)?;
    let entry = cache.remove(place)?;
    let page = entry.1.clone();
    cache.push_back(entry);
    Some(page)
}

/// Loads a page from the lake and checks it against its digest. This costs one request.
pub(super) async fn load(store: &Store, entry: &PageEntry) -> Result<RecordBatch> {
    let path = page_path(entry.digest);
    let corrupt = |reason: String| Error::RowSetCorrupt { path: path.clone(), reason };
    let framed = store.get(&path).await?.ok_or_else(|| corrupt("it is missing".to_string()))?;
    let page = page::read(&framed, entry.digest).map_err(corrupt)?;
    match page.num_rows() as u64 == entry.num_rows {
        true => Ok(page),
        false => Err(corrupt(format!("it has {} rows, expected {}", page.num_rows(), entry.num_rows))),
    }
}

fn addresses(column: &ArrayRef) -> Vec<u64> {
    let addrs = column.as_primitive::<UInt64Type>();
    match addrs.null_count() {
        0 => addrs.values().to_vec(),
        _ => addrs.iter().map(|addr| addr.unwrap_or(NO_ROW)).collect(),
    }
}
