//! Searches fragments without an index, by reading all their texts.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::TryStreamExt as _;
use stoker_text::{ColumnStatistics, Document, Matcher, Vocabulary, matches};
use tokio::task::spawn_blocking;

use super::TextSearch;
use crate::{Error, ROW_ADDR, ROW_ID, ScanRequest, Table};

/// The rows of a batch of texts, each of which may be long.
const BATCH_ROWS: usize = 1_024;

/// What the texts of some fragments say.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) vocabulary: Vocabulary,
    /// For each column, of all rows of these fragments.
    pub(super) statistics: Vec<ColumnStatistics>,
    /// The rows that match and may be found.
    pub(super) rows: Vec<ScannedRow>,
}

/// A row that matches.
#[derive(Debug)]
pub(super) struct ScannedRow {
    pub(super) row_addr: u64,
    /// For each column.
    pub(super) documents: Vec<Document>,
}

impl Table {
    /// Reads all texts of these fragments.
    pub(super) async fn scan_texts(
        &self,
        search: &TextSearch,
        vocabulary: Vocabulary,
        fragments: &[u32],
        memory: &MemoryReservation,
    ) -> Result<Scanned> {
        let statistics = vec![ColumnStatistics::default(); search.columns.len()];
        let mut scanned = Scanned { vocabulary, statistics, rows: Vec::new() };
        if fragments.is_empty() {
            return Ok(scanned);
        }
        let request = ScanRequest {
            columns: search.columns.clone(),
            with_row_addr: true,
            with_row_id: true,
            fragments: Some(fragments.to_vec()),
            batch_size: BATCH_ROWS,
            ..ScanRequest::default()
        };
        let batches = self.scan(&request).await?;
        let (search, known) = (Arc::new(search.clone()), Arc::new(scanned.vocabulary.clone()));
        let read = |batch: RecordBatch| {
            let (table, search, known) = (self.clone(), search.clone(), known.clone());
            async move {
                let bytes = batch.get_array_memory_size();
                memory.try_grow(bytes)?;
                let reading = spawn_blocking(move || table.read_texts(&search, &known, &batch));
                let part = reading.await.map_err(|source| Error::storage("reading texts", source))??;
                memory.shrink(bytes);
                Ok(part)
            }
        };
        let at_once = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut parts = batches.map_ok(read).try_buffer_unordered(at_once);
        while let Some(part) = parts.try_next().await? {
            let bytes = part.rows.iter().flat_map(|row| &row.documents).map(Document::bytes).sum::<usize>();
            memory.try_grow(bytes + part.rows.len() * size_of::<ScannedRow>())?;
            scanned.add(part);
        }
        drop(parts);
        Ok(scanned)
    }

    /// Reads the texts of a batch.
    fn read_texts(&self, search: &TextSearch, known: &Vocabulary, batch: &RecordBatch) -> crate::Result<Scanned> {
        let texts = self.texts(batch, &search.columns)?;
        let numbers = |name: &str| {
            let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<UInt64Type>());
            column.ok_or_else(|| Error::InvalidRequest {
                attempted: self.searching(),
                reason: format!("the texts were read without {name}"),
            })
        };
        let (row_ids, row_addrs) = (numbers(ROW_ID)?, numbers(ROW_ADDR)?);
        let mut matcher = Matcher::new(search.query.clone(), &search.analysis, known.clone());
        let mut statistics = vec![ColumnStatistics::default(); texts.len()];
        let mut rows = Vec::new();
        for row in 0..batch.num_rows() {
            let documents: Vec<Document> = texts.iter().map(|texts| texts.read(row, &mut matcher)).collect();
            statistics.iter_mut().zip(&documents).for_each(|(statistics, document)| statistics.add(document));
            let may_be_found = search.rows.as_ref().is_none_or(|rows| rows.contains(row_ids.value(row)));
            if may_be_found
                && documents.iter().any(|document| !document.is_irrelevant())
                && matches(&search.query, matcher.vocabulary(), &documents.iter().collect::<Vec<_>>())
            {
                rows.push(ScannedRow { row_addr: row_addrs.value(row), documents });
            }
        }
        Ok(Scanned { vocabulary: matcher.vocabulary().clone(), statistics, rows })
    }
}

impl Scanned {
    /// Adds what other rows of the same fragments say.
    fn add(&mut self, part: Scanned) {
        let words = part.vocabulary.words();
        // Each of these words is in the query or similar to one of its words.
        let numbers: Vec<u32> = words.iter().filter_map(|word| self.vocabulary.number(word)).collect();
        for (statistics, part) in self.statistics.iter_mut().zip(&part.statistics) {
            statistics.num_texts += part.num_texts;
            statistics.num_words += part.num_words;
            for (number, texts) in numbers.iter().zip(&part.texts_with) {
                statistics.count(*number, *texts);
            }
        }
        for mut row in part.rows {
            row.documents.iter_mut().for_each(|document| document.renumber(&numbers));
            self.rows.push(row);
        }
    }
}
