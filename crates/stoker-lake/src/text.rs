//! Full-text search of a table.
//!
//! ```text
//! fragments that indexes cover ──► candidates of the indexes, best first ──► their texts ──┐
//! other fragments ──► all their texts ─────────────────────────────────────────────────────┴─► matches, scores, the best
//! ```
//!
//! Lance's full-text indexes count rows that were deleted, know no rows that were appended later, and round the lengths of
//! texts. So they only propose candidates, with an upper bound on the score of each. Whether a row matches, and its score,
//! are decided on its text by [`stoker_text`], with statistics of exactly the rows of the snapshot. So rows, order and
//! scores do not depend on what is indexed.

mod candidates;
mod counted;
mod indexed;
mod scanned;
mod texts;

pub(crate) use self::indexed::index_params;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use stoker_text::{Analysis, ColumnStatistics, Document, Matcher, Pattern, TextQuery, Vocabulary, matches, score};

use self::candidates::Candidates;
use self::indexed::Covered;
use crate::{Error, RowIdSet, Table};

/// The most words that may be similar to a word of a query.
const SIMILAR_MAX: usize = 1_024;
/// How many candidates beyond `k` are read, to find ties at rank `k`.
const NUM_EXTRA: usize = 32;
/// By how much more candidates an index is asked for, if rows with the score of rank `k` may be missing.
const MORE_CANDIDATES: usize = 16;
/// The most candidates whose texts are read at a time.
const ROWS_PER_READ: usize = 1_024;
/// The relative difference between the bound of an index, in 32 bits, and a score.
const ROUNDING: f32 = 1e-5;

/// A search for words in text columns.
#[derive(Clone)]
pub struct TextSearch {
    /// The columns. A row has one score, the sum of its scores in these columns.
    pub columns: Vec<String>,
    /// What is sought.
    pub query: Arc<TextQuery>,
    /// What a word is. Only indexes with the same analysis are used.
    pub analysis: Analysis,
    /// The number of rows to find.
    pub k: usize,
    /// The rows that may be found; all rows if `None`. Scores do not depend on it.
    pub rows: Option<Arc<RowIdSet>>,
    /// Whether indexes may propose candidates.
    pub use_index: bool,
    /// Where the memory of the search is counted.
    pub memory: Arc<dyn MemoryPool>,
}

impl fmt::Debug for TextSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { columns, query, analysis, k, use_index, .. } = self;
        let mut text = f.debug_struct("TextSearch");
        text.field("columns", columns).field("query", query).field("analysis", analysis);
        text.field("k", k).field("use_index", use_index).finish_non_exhaustive()
    }
}

/// The rows that a search found: by descending score, then by ascending address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextHits {
    /// The addresses of the rows.
    pub row_addrs: Vec<u64>,
    /// Their scores, all above zero.
    pub scores: Vec<f32>,
}

/// A row that matches.
#[derive(Clone, Copy, Debug)]
struct Hit {
    score: f32,
    row_addr: u64,
}

/// The rows that were found so far, of which the best `k` remain.
struct Best {
    k: usize,
    hits: Vec<Hit>,
    is_sorted: bool,
}

impl Table {
    /// Finds the rows whose texts match a query best.
    ///
    /// # Errors
    /// An [`Error`](crate::Error) inside: `InvalidRequest` for a column that does not exist or is no text, and for a query
    /// with too many similar words; storage errors. When the memory pool is exhausted, its error.
    pub async fn search_text(&self, search: &TextSearch) -> Result<TextHits> {
        self.check_texts(&search.columns)?;
        let memory = MemoryConsumer::new("text_search").register(&search.memory);
        let covered = self.covered_texts(search).await?;
        if let Some(stats) = self.stats() {
            covered.indexes.iter().for_each(|index| stats.add_index(&index.name));
        }
        let mut vocabulary = Vocabulary::new(&search.query);
        covered.add_similar(self, search, &mut vocabulary)?;
        let mut scanned = self.scan_texts(search, vocabulary, &covered.others, &memory).await?;
        for (index, statistics) in covered.indexes.iter().zip(&mut scanned.statistics) {
            self.count_indexed(index, &scanned.vocabulary, statistics).await?;
        }
        let scoring = Scoring { search, vocabulary: &scanned.vocabulary, statistics: &scanned.statistics };
        self.check_similar(&scoring)?;
        let mut best = Best { k: search.k, hits: Vec::new(), is_sorted: true };
        for row in &scanned.rows {
            let documents: Vec<&Document> = row.documents.iter().collect();
            best.add(Hit { score: scoring.score(&documents), row_addr: row.row_addr });
        }
        if !covered.indexes.is_empty() {
            self.add_indexed(&scoring, &covered, &mut best, &memory).await?;
        }
        Ok(best.into_hits())
    }

    /// Adds the best rows of the fragments that indexes cover.
    async fn add_indexed(
        &self,
        scoring: &Scoring<'_>,
        covered: &Covered,
        best: &mut Best,
        memory: &MemoryReservation,
    ) -> Result<()> {
        let search = scoring.search;
        let mut limit = search.k.saturating_add(NUM_EXTRA);
        let mut read = HashSet::new();
        loop {
            let Candidates { rows, rest } = self.candidates(scoring, &covered.indexes, limit, memory).await?;
            let unread: Vec<_> = rows.into_iter().filter(|row| !read.contains(&row.row_id)).collect();
            let mut left = unread.as_slice();
            let mut step = limit.min(ROWS_PER_READ);
            while let Some(next) = left.first() {
                if best.is_beyond(next.bound) {
                    return Ok(());
                }
                let (chunk, later) = left.split_at(step.min(left.len()));
                let row_ids: Vec<u64> = chunk.iter().map(|row| row.row_id).collect();
                self.add_rows(scoring, &row_ids, best, memory).await?;
                read.extend(row_ids);
                (left, step) = (later, ROWS_PER_READ);
            }
            if rest.is_none_or(|rest| best.is_beyond(rest)) {
                return Ok(());
            }
            limit = limit.saturating_mul(MORE_CANDIDATES);
        }
    }

    /// Reads the texts of rows, and adds those that match.
    async fn add_rows(
        &self,
        scoring: &Scoring<'_>,
        row_ids: &[u64],
        best: &mut Best,
        memory: &MemoryReservation,
    ) -> Result<()> {
        let search = scoring.search;
        let rows = self.texts_of(&search.columns, row_ids).await?;
        memory.try_grow(rows.bytes)?;
        let mut matcher = Matcher::new(search.query.clone(), &search.analysis, scoring.vocabulary.clone());
        for (row, row_addr) in rows.row_addrs.iter().enumerate() {
            let documents: Vec<Document> = rows.columns.iter().map(|texts| texts.read(row, &mut matcher)).collect();
            let documents: Vec<&Document> = documents.iter().collect();
            if matches(&search.query, scoring.vocabulary, &documents) {
                best.add(Hit { score: scoring.score(&documents), row_addr: *row_addr });
            }
        }
        memory.shrink(rows.bytes);
        Ok(())
    }

    /// Refuses a query with too many similar words.
    fn check_similar(&self, scoring: &Scoring<'_>) -> Result<()> {
        for (index, clause) in scoring.search.query.clauses().iter().enumerate() {
            let Pattern::Similar { word, edits } = &clause.pattern else { continue };
            let has_texts = |number: &&u32| {
                let counts = scoring.statistics.iter().map(|statistics| statistics.texts_with.get(**number as usize));
                counts.flatten().any(|texts| *texts > 0)
            };
            if scoring.vocabulary.similar(index).iter().filter(has_texts).count() > SIMILAR_MAX {
                let reason = format!(
                    "more than {SIMILAR_MAX} words are similar to {word}~{edits}; write more letters or fewer edits"
                );
                return Err(Error::InvalidRequest { attempted: self.searching(), reason }.into());
            }
        }
        Ok(())
    }

    fn searching(&self) -> String {
        format!("searching the texts of {}", self.snapshot())
    }
}

/// What scores depend on.
struct Scoring<'a> {
    search: &'a TextSearch,
    vocabulary: &'a Vocabulary,
    /// For each column.
    statistics: &'a [ColumnStatistics],
}

impl Scoring<'_> {
    fn score(&self, documents: &[&Document]) -> f32 {
        score(&self.search.query, self.vocabulary, documents, self.statistics)
    }
}

impl Best {
    fn add(&mut self, hit: Hit) {
        self.hits.push(hit);
        self.is_sorted = false;
        if self.hits.len() >= self.k.saturating_mul(2).max(1_024) {
            self.shrink();
        }
    }

    /// Keeps the best `k`, in order.
    fn shrink(&mut self) {
        if std::mem::replace(&mut self.is_sorted, true) {
            return;
        }
        self.hits.sort_unstable_by(|one, other| {
            other.score.total_cmp(&one.score).then_with(|| one.row_addr.cmp(&other.row_addr))
        });
        self.hits.truncate(self.k);
    }

    /// Tells whether no row whose score is at most `bound` can be among the best.
    fn is_beyond(&mut self, bound: f32) -> bool {
        if self.hits.len() < self.k {
            return false;
        }
        self.shrink();
        self.hits.len() == self.k && self.hits.last().is_none_or(|last| bound * (1.0 + ROUNDING) < last.score)
    }

    fn into_hits(mut self) -> TextHits {
        self.shrink();
        let (row_addrs, scores) = self.hits.into_iter().map(|hit| (hit.row_addr, hit.score)).unzip();
        TextHits { row_addrs, scores }
    }
}
