//! `vector_search(…)`: turns its arguments into a relation.

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
    /// One query vector, with the element type of the column.
    pub(crate) query: ArrayRef,
    pub(crate) k: usize,
    pub(crate) metric: Metric,
    pub(crate) use_index: bool,
    pub(crate) nprobes: Option<usize>,
    pub(crate) refine: Option<u32>,
    /// A condition on the rows that may be found, over unqualified columns of the table. [`push_prefilters`] sets it.
    pub(crate) prefilter: Option<Arc<Expr>>,
}
