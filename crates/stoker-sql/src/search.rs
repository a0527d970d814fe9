//! `vector_search(…)`, `text_search(…)` and `hybrid_search(…)`: turns their arguments into a relation. `ORDER BY` a
//! distance with `LIMIT` becomes a search too ([`order_by`]).
//!
//! A search may need more plans, which the logical plan does not show ([`hidden`]): that of the rows that may be found,
//! that of a query vector that a subquery gives, and those of the rows that come first by `ORDER BY`. Their physical
//! plans are the children of [`SearchExec`].

mod call;
mod hidden;
mod nearest;
mod options;
mod order_by;
mod prefilter;
mod search_exec;
mod top_rows;
mod vector_type;
mod worded;

pub(crate) use call::{SearchCall, table_argument};
pub(crate) use hidden::{apply_with_hidden, map_hidden};
pub(crate) use options::SearchFunction;
pub(crate) use order_by::search_by_order;
pub(crate) use prefilter::{SEARCHED, push_prefilters};
pub(crate) use search_exec::{SearchExec, SearchInputs};

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field, SortOptions};
use datafusion::logical_expr::LogicalPlan;
use stoker_lake::Metric;
use stoker_text::{Analysis, TextQuery};

use crate::Result;
use crate::provider::OutputColumn;
use vector_type::VectorType;

/// The name of the column of distances to the query vector: squared for l2, one minus the cosine, one minus the product.
pub(crate) const DISTANCE: &str = "_distance";
/// The name of the column of text scores.
pub(crate) const SCORE: &str = "_score";
/// The name of the column of ranks: 1 for the best row of a hybrid search.
pub(crate) const RANK: &str = "_rank";

/// A search whose arguments were checked against its table.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) kind: SearchKind,
    /// A plan of one column, the ids of the rows that may be found; `None` if all rows may. [`push_prefilters`] sets it.
    pub(crate) prefilter: Option<Arc<LogicalPlan>>,
}

/// What a search compares.
#[derive(Clone, Debug)]
pub(crate) enum SearchKind {
    Vector(VectorSearch),
    Words(WordSearch),
    Hybrid(HybridSearch),
    TopK(TopKSearch),
}

/// A search for the rows whose vectors are nearest to a query vector.
#[derive(Clone, Debug)]
pub(crate) struct VectorSearch {
    pub(crate) column: String,
    pub(crate) vector_type: VectorType,
    pub(crate) query: QuerySource,
    pub(crate) k: usize,
    pub(crate) metric: Metric,
    pub(crate) use_index: bool,
    pub(crate) nprobes: Option<usize>,
    pub(crate) refine: Option<u32>,
}

/// The source of a query vector.
#[derive(Clone, Debug)]
pub(crate) enum QuerySource {
    /// One vector, with the element type of the column.
    Given(ArrayRef),
    /// A plan of one column, whose one row is the vector.
    Plan(Arc<LogicalPlan>),
}

/// A search for the rows whose texts match a query best.
#[derive(Clone, Debug)]
pub(crate) struct WordSearch {
    pub(crate) columns: Vec<String>,
    pub(crate) query: Arc<TextQuery>,
    pub(crate) analysis: Analysis,
    pub(crate) k: usize,
    pub(crate) use_index: bool,
}

/// A search by vector and by words. Each side finds its best rows, as many as its own `k` says; a row is worth the sum of
/// `weight / (rrf_k + rank)` over the sides that found it (reciprocal rank fusion; Cormack, Clarke and Büttcher, 2009).
#[derive(Clone, Debug)]
pub(crate) struct HybridSearch {
    pub(crate) vector: VectorSearch,
    pub(crate) words: WordSearch,
    pub(crate) k: usize,
    /// Of the vector, and of the words.
    pub(crate) weights: [f64; 2],
    pub(crate) rrf_k: f64,
}

/// A search for the rows that come first by `ORDER BY` with `LIMIT`, where the first key is a distance.
///
/// Its hidden plans give the address of each row, the keys of `ORDER BY`, and the columns `carried`.
#[derive(Clone, Debug)]
pub(crate) struct TopKSearch {
    pub(crate) column: String,
    /// The name of the distance function.
    pub(crate) function: &'static str,
    pub(crate) k: usize,
    /// How each key of `ORDER BY` is sorted. Ties are ordered by row address.
    pub(crate) order: Vec<SortOptions>,
    /// The columns of the table that are read with the keys. Others are read for the found rows only.
    pub(crate) carried: Vec<String>,
    /// The plan that compares all rows.
    pub(crate) exact: Arc<LogicalPlan>,
    /// The plan that searches by an index, if it is to be used.
    pub(crate) by_index: Option<IndexPlan>,
}

/// A plan that searches by an index.
#[derive(Clone, Debug)]
pub(crate) struct IndexPlan {
    /// The name of the index.
    pub(crate) index: String,
    pub(crate) plan: Arc<LogicalPlan>,
}

/// Tells whether a column of a search is computed by the search.
pub(crate) fn is_computed(name: &str) -> bool {
    matches!(name, DISTANCE | SCORE | RANK)
}

impl SearchKind {
    /// The columns that the search adds to those of its table.
    pub(crate) fn columns(&self) -> Vec<(Field, OutputColumn)> {
        let distance = (Field::new(DISTANCE, DataType::Float32, true), OutputColumn::Distance);
        let score = (Field::new(SCORE, DataType::Float32, true), OutputColumn::Score);
        match self {
            Self::Vector(_) => vec![distance],
            Self::Words(_) => vec![score],
            Self::Hybrid(_) => {
                vec![distance, score, (Field::new(RANK, DataType::Int64, true), OutputColumn::Rank)]
            }
            // Its columns are hidden.
            Self::TopK(_) => Vec::new(),
        }
    }

    /// The most rows that the search finds.
    pub(crate) fn k(&self) -> usize {
        match self {
            Self::Vector(vector) => vector.k,
            Self::Words(words) => words.k,
            Self::Hybrid(hybrid) => hybrid.k,
            Self::TopK(top_k) => top_k.k,
        }
    }

    /// The part that compares vectors.
    pub(crate) fn vector(&self) -> Option<&VectorSearch> {
        match self {
            Self::Vector(vector) => Some(vector),
            Self::Hybrid(hybrid) => Some(&hybrid.vector),
            Self::Words(_) | Self::TopK(_) => None,
        }
    }

    /// The part that compares texts.
    pub(crate) fn words(&self) -> Option<&WordSearch> {
        match self {
            Self::Words(words) => Some(words),
            Self::Hybrid(hybrid) => Some(&hybrid.words),
            Self::Vector(_) | Self::TopK(_) => None,
        }
    }

    /// The part that orders rows by `ORDER BY`.
    pub(crate) fn top_k(&self) -> Option<&TopKSearch> {
        match self {
            Self::TopK(top_k) => Some(top_k),
            Self::Vector(_) | Self::Words(_) | Self::Hybrid(_) => None,
        }
    }

    fn vector_mut(&mut self) -> Option<&mut VectorSearch> {
        match self {
            Self::Vector(vector) => Some(vector),
            Self::Hybrid(hybrid) => Some(&mut hybrid.vector),
            Self::Words(_) | Self::TopK(_) => None,
        }
    }
}

impl Search {
    /// The hidden plan of the query vector.
    pub(crate) fn query_plan(&self) -> Option<&Arc<LogicalPlan>> {
        match &self.kind.vector()?.query {
            QuerySource::Plan(plan) => Some(plan),
            QuerySource::Given(_) => None,
        }
    }

    /// The hidden plans.
    pub(crate) fn hidden(&self) -> Vec<Arc<LogicalPlan>> {
        let by_index = self.kind.top_k().and_then(|top_k| top_k.by_index.as_ref()).map(|by_index| &by_index.plan);
        let exact = self.kind.top_k().map(|top_k| &top_k.exact);
        self.prefilter.iter().chain(self.query_plan()).chain(by_index).chain(exact).cloned().collect()
    }

    /// Returns the same search with other hidden plans.
    pub(crate) fn map_hidden(&self, map: &mut dyn FnMut(LogicalPlan) -> Result<LogicalPlan>) -> Result<Self> {
        let mut search = self.clone();
        if let Some(plan) = &mut search.prefilter {
            *plan = Arc::new(map(plan.as_ref().clone())?);
        }
        if let Some(VectorSearch { query: QuerySource::Plan(plan), .. }) = search.kind.vector_mut() {
            *plan = Arc::new(map(plan.as_ref().clone())?);
        }
        if let SearchKind::TopK(top_k) = &mut search.kind {
            let by_index = top_k.by_index.iter_mut().map(|by_index| &mut by_index.plan);
            for plan in by_index.chain([&mut top_k.exact]) {
                *plan = Arc::new(map(plan.as_ref().clone())?);
            }
        }
        Ok(search)
    }
}
