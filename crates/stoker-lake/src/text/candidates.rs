//! Candidates of full-text indexes, with bounds on their scores.
//!
//! One word or several, of which rows have any or all, and a single phrase are searched for the best rows only, which
//! Lance does without reading all entries. Other queries are put together from all entries of their words.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use lance::dataset::scanner::RowAddrMask;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::prefilter::PreFilter;
use lance_index::scalar::inverted::MemBM25Scorer;
use lance_index::scalar::inverted::document_tokenizer::DocType;
use lance_index::scalar::inverted::query::{FtsSearchParams, Operator, Tokens};
use stoker_text::{Clause, ColumnStatistics, Occur, Pattern, PhraseWord, Vocabulary};
use stoker_types::to_usize;

use super::Scoring;
use super::indexed::ColumnIndex;
use crate::Table;
use crate::damage::caught;
use crate::row_id_set::fragment_id;

/// The bytes that an entry of an index takes while candidates are put together.
const ENTRY_BYTES: usize = 160;

/// Rows that may match.
pub(super) struct Candidates {
    /// By descending bound.
    pub(super) rows: Vec<Candidate>,
    /// The most that the score of another row can be; `None` if all rows that match are among these.
    pub(super) rest: Option<f32>,
}

/// A row that may match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) row_id: u64,
    /// The row's score is at most this, apart from rounding.
    pub(super) bound: f32,
}

/// A search of one index.
struct Lookup {
    tokens: Tokens,
    operator: Operator,
    is_phrase: bool,
    limit: Option<usize>,
}

/// What is known of a row while candidates are put together.
#[derive(Default)]
struct Evidence {
    bound: f32,
    num_required: usize,
    any_optional: bool,
    excluded: bool,
}

impl Table {
    /// Returns candidates of the searched fragments: all of them, or at least the best `limit`.
    pub(super) async fn candidates(
        &self,
        scoring: &Scoring<'_>,
        indexes: &[ColumnIndex],
        limit: usize,
        memory: &MemoryReservation,
    ) -> Result<Candidates> {
        if let ([index], [statistics]) = (indexes, scoring.statistics)
            && let Some(mut lookup) = direct(scoring.search.query.clauses(), index)
        {
            lookup.limit = Some(limit);
            let scorer = scorer(scoring.vocabulary, statistics);
            let Candidates { mut rows, rest } = self.look_up(index, lookup, &scorer, memory).await?;
            // Each segment gives its best.
            let first_cut = rows.get(limit).map(|row| row.bound);
            rows.truncate(limit);
            return Ok(Candidates { rows, rest: greater(rest, first_cut) });
        }
        let rows = self.put_together(scoring, indexes, memory).await?;
        Ok(Candidates { rows, rest: None })
    }

    /// Returns all rows that may match.
    async fn put_together(
        &self,
        scoring: &Scoring<'_>,
        indexes: &[ColumnIndex],
        memory: &MemoryReservation,
    ) -> Result<Vec<Candidate>> {
        let clauses = scoring.search.query.clauses();
        let scorers: Vec<MemBM25Scorer> =
            scoring.statistics.iter().map(|statistics| scorer(scoring.vocabulary, statistics)).collect();
        let mut evidence: HashMap<u64, Evidence> = HashMap::new();
        for (number, clause) in clauses.iter().enumerate() {
            let mut bounds: HashMap<u64, f32> = HashMap::new();
            let mut certain = true;
            for (index, scorer) in indexes.iter().zip(&scorers) {
                let rows = self.rows_of_clause(clause, number, scoring, index, scorer, memory).await?;
                certain &= rows.certain;
                for (row_id, bound) in rows.bounds {
                    *bounds.entry(row_id).or_default() += bound;
                }
            }
            for (row_id, bound) in bounds {
                let row = evidence.entry(row_id).or_default();
                match clause.occur {
                    Occur::Required => row.num_required += 1,
                    Occur::Optional => row.any_optional = true,
                    Occur::Excluded => row.excluded |= certain,
                }
                if clause.occur != Occur::Excluded {
                    row.bound += bound;
                }
            }
        }
        let num_required = clauses.iter().filter(|clause| clause.occur == Occur::Required).count();
        let may_match = |row: &Evidence| {
            !row.excluded && row.num_required == num_required && (row.any_optional || num_required > 0)
        };
        let found = evidence.into_iter().filter(|(_, row)| may_match(row));
        let mut found: Vec<Candidate> = found.map(|(row_id, row)| Candidate { row_id, bound: row.bound }).collect();
        sort(&mut found);
        Ok(found)
    }

    /// Returns all rows that may match a clause in a column.
    async fn rows_of_clause(
        &self,
        clause: &Clause,
        number: usize,
        scoring: &Scoring<'_>,
        index: &ColumnIndex,
        scorer: &MemBM25Scorer,
        memory: &MemoryReservation,
    ) -> Result<RowsOfClause> {
        let mut rows = RowsOfClause { bounds: HashMap::new(), certain: true };
        let words: Vec<&str> = match &clause.pattern {
            Pattern::Word(word) => vec![word],
            Pattern::Similar { .. } => {
                let words = scoring.vocabulary.words();
                let similar = scoring.vocabulary.similar(number).iter();
                similar.filter_map(|number| words.get(*number as usize)).map(String::as_str).collect()
            }
            Pattern::Phrase(words) => {
                let (lookup, certain) = phrase(words, index);
                rows.certain = certain;
                // A word that occurs several times in the phrase counts as often.
                let times = words.iter().map(|one| words.iter().filter(|other| other.word == one.word).count()).max();
                for row in self.look_up(index, lookup, scorer, memory).await?.rows {
                    rows.bounds.insert(row.row_id, row.bound * times.unwrap_or(1) as f32);
                }
                return Ok(rows);
            }
        };
        for word in words {
            let lookup = Lookup {
                tokens: Tokens::new(vec![word.to_string()], DocType::Text),
                operator: Operator::Or,
                is_phrase: false,
                limit: None,
            };
            for row in self.look_up(index, lookup, scorer, memory).await?.rows {
                *rows.bounds.entry(row.row_id).or_default() += row.bound;
            }
        }
        Ok(rows)
    }

    /// Searches all segments of an index. The rows come by descending bound.
    async fn look_up(
        &self,
        index: &ColumnIndex,
        lookup: Lookup,
        scorer: &MemBM25Scorer,
        memory: &MemoryReservation,
    ) -> Result<Candidates> {
        let has_stable_ids = self.dataset().manifest().uses_stable_row_ids();
        let limit = lookup.limit.unwrap_or(usize::MAX);
        let phrase_slop = lookup.is_phrase.then_some(0);
        let params = FtsSearchParams::new().with_limit(lookup.limit).with_phrase_slop(phrase_slop);
        let (params, tokens) = (Arc::new(params), Arc::new(lookup.tokens));
        let mut found = Candidates { rows: Vec::new(), rest: None };
        for segment in &index.segments {
            let mask: Arc<dyn PreFilter> = Arc::new(Mask(segment.mask.clone()));
            let metrics = Arc::new(NoOpMetricsCollector);
            let searching =
                segment.index.bm25_search(tokens.clone(), params.clone(), lookup.operator, mask, metrics, Some(scorer));
            let (row_ids, scores) = match caught(searching).await {
                Ok(rows) => rows,
                Err(source) => {
                    let attempted = format!("searching index {} of {}", index.name, self.snapshot());
                    return Err(self.read_error(attempted, source).await.into());
                }
            };
            memory.try_grow(row_ids.len() * ENTRY_BYTES)?;
            if row_ids.len() >= limit {
                found.rest = greater(found.rest, scores.iter().copied().min_by(f32::total_cmp));
            }
            let rows = row_ids.into_iter().zip(scores).map(|(row_id, bound)| Candidate { row_id, bound });
            // An index may have rows of fragments for which it was not made.
            let is_searched =
                |row: &Candidate| has_stable_ids || segment.searched.contains(fragment_id(row.row_id >> 32));
            found.rows.extend(rows.filter(is_searched));
        }
        sort(&mut found.rows);
        Ok(found)
    }
}

/// The rows that may match a clause.
struct RowsOfClause {
    /// Each row, and the most that the clause adds to its score.
    bounds: HashMap<u64, f32>,
    /// Whether all these rows match.
    certain: bool,
}

fn greater(one: Option<f32>, other: Option<f32>) -> Option<f32> {
    [one, other].into_iter().flatten().max_by(f32::total_cmp)
}

fn sort(rows: &mut [Candidate]) {
    rows.sort_unstable_by(|one, other| other.bound.total_cmp(&one.bound).then(one.row_id.cmp(&other.row_id)));
}

/// Returns the search by which an index answers a whole query, if there is one.
fn direct(clauses: &[Clause], index: &ColumnIndex) -> Option<Lookup> {
    if let [Clause { occur: Occur::Optional | Occur::Required, pattern: Pattern::Phrase(words) }] = clauses {
        let (lookup, certain) = phrase(words, index);
        return certain.then_some(lookup);
    }
    let occur = clauses.first()?.occur;
    let operator = match occur {
        Occur::Optional => Operator::Or,
        Occur::Required => Operator::And,
        Occur::Excluded => return None,
    };
    let mut words: Vec<String> = Vec::with_capacity(clauses.len());
    for clause in clauses {
        match &clause.pattern {
            Pattern::Word(word) if clause.occur == occur && !words.contains(word) => words.push(word.clone()),
            _ => return None,
        }
    }
    Some(Lookup { tokens: Tokens::new(words, DocType::Text), operator, is_phrase: false, limit: None })
}

/// Returns the search for a phrase, and whether all rows that it finds have the phrase. Without positions in the index, or
/// if a word occurs twice in the phrase, these are the rows that have all its words.
fn phrase(words: &[PhraseWord], index: &ColumnIndex) -> (Lookup, bool) {
    let mut distinct: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        if !distinct.contains(&word.word) {
            distinct.push(word.word.clone());
        }
    }
    let certain = index.has_positions && distinct.len() == words.len();
    let tokens = if certain {
        let offsets = words.iter().map(|word| u32::try_from(word.offset).unwrap_or(u32::MAX)).collect();
        Tokens::with_positions(distinct, offsets, DocType::Text)
    } else {
        Tokens::new(distinct, DocType::Text)
    };
    (Lookup { tokens, operator: Operator::And, is_phrase: certain, limit: None }, certain)
}

/// Returns what an index needs to compute scores that are at least those of [`stoker_text`].
fn scorer(vocabulary: &Vocabulary, statistics: &ColumnStatistics) -> MemBM25Scorer {
    let num_texts = to_usize(statistics.num_texts);
    let counts = vocabulary.words().iter().zip(&statistics.texts_with);
    let counts = counts.map(|(word, texts)| (word.clone(), bounding_count(to_usize(*texts), num_texts)));
    MemBM25Scorer::new(statistics.num_words, num_texts, counts.collect())
}

/// Returns the number of texts with a word by which Lance's weight of the word, which it computes in 32 bits, is at least
/// the exact one. In 32 bits, the weight of a word that nearly all texts have is up to 5 % too low, or zero.
fn bounding_count(mut texts_with: usize, num_texts: usize) -> usize {
    let exact = {
        let (with, all) = (texts_with as f64, num_texts as f64);
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    };
    while texts_with > 1 {
        // As `lance_index::scalar::inverted::scorer::idf` computes it.
        let (with, all) = (texts_with as f32, num_texts as f32);
        if f64::from(((all - with + 0.5) / (with + 0.5) + 1.0).ln()) >= exact {
            break;
        }
        texts_with -= (texts_with >> 20).max(1);
    }
    texts_with
}

/// The rows that an index may find.
struct Mask(Arc<RowAddrMask>);

#[async_trait]
impl PreFilter for Mask {
    async fn wait_for_ready(&self) -> lance_core::Result<()> {
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.is_select_all()
    }

    fn mask(&self) -> Arc<RowAddrMask> {
        self.0.clone()
    }

    fn filter_row_ids<'a>(&self, row_ids: Box<dyn Iterator<Item = &'a u64> + 'a>) -> Vec<u64> {
        self.0.selected_indices(row_ids)
    }
}
