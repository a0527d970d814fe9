//! Text search: what a word is, what a query asks for, which texts match it, and how well.
//!
//! ```text
//! Analysis ──► Analyzer: text ─► words with positions
//!                 │
//! TextQuery::parse┴─► clauses ──► Vocabulary: the words of the clauses, and the similar words that were found
//!                                     │
//! Matcher::read(text) ──► Document: counts of these words, phrases ──► matches, score (Okapi BM25)
//! ```
//!
//! This crate knows no table and no index. An index may find candidates faster, but matches and scores are always those
//! of this crate, so that they do not depend on which rows an index covers.

#![warn(clippy::disallowed_methods)]

mod analysis;
mod matcher;
mod query;
mod score;
mod similar;
mod vocabulary;

pub use analysis::{Analysis, Analyzer, LANGUAGES, MAX_WORD_BYTES};
pub use matcher::{Document, Matcher};
pub use query::{Clause, Occur, Pattern, PhraseWord, QueryError, TextQuery, WORDS_MAX};
pub use score::{B, ColumnStatistics, K1, matches, score};
pub use vocabulary::Vocabulary;
