//! `vector_search(…)`: from its arguments to a relation.

mod call;
mod prefilter;
mod search_exec;

pub(crate) use call::{SearchCall, table_argument};
pub(crate) use prefilter::push_prefilters;
pub(crate) use search_exec::SearchExec;

use std::sync::Arc;

use arrow_array::ArrayRef;
use datafusion::prelude::Expr;
use stoker_lake::Metric;

/// The name of the distance column of a search.
pub(crate) const DISTANCE: &str = "_distance";

/// A search whose arguments were checked against its table.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) column: String,
    /// One query vector, of the column's element type.
    pub(crate) query: ArrayRef,
    pub(crate) k: usize,
    pub(crate) metric: Metric,
    pub(crate) use_index: bool,
    pub(crate) nprobes: Option<usize>,
    pub(crate) refine: Option<u32>,
    /// Rows that may be found; set by [`push_prefilters`], unqualified columns of the table.
    pub(crate) prefilter: Option<Arc<Expr>>,
}
