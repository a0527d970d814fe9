//! SQL over a lake: plans queries at pinned snapshots, runs them, and turns sample queries into row sets.
//!
//! ```text
//! SQL ─► guard ─► dialect (AST) ─► resolve (pinned tables) ─► logical plan ─┬─► SqlQuery ─► record batches
//!                                                                           └─► lift ─► SampleQuery ─► RowSet
//! ```
//!
//! [`Engine`] is the entry point. A [`SqlQuery`] is any `SELECT`. A [`SampleQuery`] is a `SELECT` whose output rows
//! each carry the columns of given table rows unchanged, so that its [`RowSet`] stores only row addresses and light
//! columns. A [`RowSource`] computes parts of it by fragment, where the query allows that: see [`Split`]. Tables are
//! resolved to snapshots before planning: an `AT` clause that cannot be resolved is an error and never falls back to the
//! newest version.
//!
//! SQL is DataFusion's dialect with these additions:
//!
//! - `t AT (VERSION => 3)`, `t AT (TAG => 'v1')`, `t AT (TIMESTAMP => '2026-01-31T12:00:00Z')` wherever a table may
//!   stand;
//! - `vector_search(t, column, query, k => 10, metric => 'l2', nprobes => 8, refine => 2, exact => false)` in `FROM`:
//!   the columns of `t` plus `_distance` (as Lance computes it: the *squared* Euclidean distance for `l2`). The query is
//!   an array, a parameter, or a subquery of one row. Predicates of `WHERE` on columns of `t`, also those with
//!   subqueries, apply before the search, or the query is refused; predicates on `_distance` apply after the search;
//! - `ORDER BY` a distance with `LIMIT` runs as a search, exactly or, by [`stoker_types::QueryOptions`], by an index;
//! - `row_ids(t)` in `FROM`: the columns of `t` plus `row_id`, the row address;
//! - `rows($1)` in `FROM`: the rows of a parameter that is a list of structs;
//! - names of views in `FROM`: the query of the view stands in place of the name, unless a table has the name;
//! - `columns(t)`, `indexes(t)`, `versions(t)`, `tags(t)`, `branches(t)` and `functions()` in `FROM`, the relations of
//!   `information_schema`, and `SHOW …` and `DESCRIBE t` for queries over them;
//! - `EXPLAIN [ANALYZE] [FORMAT text | tree | json]`;
//! - `l2_distance` (Euclidean, with the square root), `cosine_distance`, `cosine_similarity`, `dot_product`,
//!   `negative_inner_product` and the aggregate `vector_avg` of vectors; `tensor_shape`, `tensor_mean`, `tensor_min`,
//!   `tensor_max`, `tensor_std`, `tensor_norm`; `decompress`; `image_width`, `image_height`, `image_format`;
//!   `matches(text, query)`;
//! - `<->`, `<=>` and `<#>` between vectors, as in pgvector.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod corrections;
mod description;
mod engine;
mod error;
mod explained;
mod guard;
mod heavy_keys;
mod params;
mod planner_threads;
mod planning;
mod provider;
mod query;
mod resolve;
mod row_set;
mod running;
mod sample;
mod search;
mod wide_rows;

pub use description::StatementDescription;
pub use engine::{Engine, EngineOptions, ProgressReports};
pub use error::{Error, Result};
pub use query::SqlQuery;
pub use resolve::{ADDRESSED_ROWS, ROW_ADDRESS};
pub use row_set::{FragmentRows, NO_ROW, PartialRowSet, ResolvedRows, RowSet, RowSource, unused_objects};
pub use running::{QueryLimits, QueueStatus};
pub use sample::{ColumnSource, SampleColumn, SampleQuery, Split};

#[cfg(test)]
mod tests;
