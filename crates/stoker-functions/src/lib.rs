//! SQL functions, operators and arithmetic over Arrow arrays, for DataFusion, with limits on the memory and the work of
//! each call.
//!
//! ```text
//! add_to         ──► allowed functions, functions of this crate, distance operators
//! ChosenFunctions ─► those of them that a query calls
//! analyzer_rules ──► CheckedIntegers (overflow is an error), LikeEscapes, VectorCasts
//! ReserveResults ──► Reserving: wraps a function whose result can outgrow its arguments
//!                      ├─► allowed: each function's rule for the size of its results
//!                      ├─► cost: an upper bound on the result of a call, from the call's arguments
//!                      ├─► Activity: whether a client still waits for the query, and its memory pool
//!                      └─► held: the result, which holds a reservation for its bytes
//! ```
//!
//! Functions are a crate of their own below `stoker-sql`, because they need only expressions, arrays and a memory pool.
//! Row sets, another large part of `stoker-sql`, stay there: its engine computes them from its plans.

mod activity;
mod allowed;
mod beside_others;
mod chosen;
mod concatenate;
mod cost;
mod decompress;
mod distance;
mod documented;
mod error;
mod held;
mod image_header;
mod image_property;
mod like_escapes;
mod octet_length;
mod operators;
mod overflow;
mod predicates;
mod reserve_results;
mod reserving;
mod tensor_reduction;
mod tensor_shape;
mod text_matches;
mod vector_avg;
mod vector_casts;
mod vectors;

pub use activity::{Activity, Running};
pub use allowed::refused;
pub use beside_others::beside_others;
pub use chosen::ChosenFunctions;
pub use distance::compares_vectors;
pub use error::Error;
pub use predicates::{has_subquery, needs_only};
pub use reserve_results::ReserveResults;

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::execution::FunctionRegistry as _;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use decompress::Decompress;
use distance::Distance;
use image_property::ImageProperty;
use like_escapes::LikeEscapes;
use octet_length::OctetLength;
use operators::DistanceOperators;
use overflow::CheckedIntegers;
use tensor_reduction::TensorReduction;
use tensor_shape::TensorShape;
use text_matches::TextMatches;
use vector_avg::VectorAvg;
use vector_casts::VectorCasts;

/// Removes the functions from a session that queries may not call, and adds the functions and operators of this crate,
/// some of which replace functions of DataFusion.
pub fn add_to(context: &mut SessionContext) -> DfResult<()> {
    allowed::keep_allowed(context);
    for function in [
        ScalarUDF::from(Decompress::new()),
        ScalarUDF::from(Distance::l2()),
        ScalarUDF::from(Distance::cosine()),
        ScalarUDF::from(Distance::cosine_similarity()),
        ScalarUDF::from(Distance::dot()),
        ScalarUDF::from(Distance::negative_inner()),
        ScalarUDF::from(ImageProperty::width()),
        ScalarUDF::from(ImageProperty::height()),
        ScalarUDF::from(ImageProperty::format()),
        ScalarUDF::from(OctetLength::new()),
        ScalarUDF::from(TensorReduction::mean()),
        ScalarUDF::from(TensorReduction::min()),
        ScalarUDF::from(TensorReduction::max()),
        ScalarUDF::from(TensorReduction::std()),
        ScalarUDF::from(TensorReduction::norm()),
        ScalarUDF::from(TensorShape::new()),
        ScalarUDF::from(TextMatches::new()),
    ] {
        context.register_udf(Arc::new(function))?;
    }
    context.register_udaf(Arc::new(AggregateUDF::from(VectorAvg::new())))?;
    context.register_expr_planner(Arc::new(DistanceOperators))
}

/// Returns the analyzer rules for arithmetic, for `LIKE … ESCAPE` and for casts to vectors. They run after DataFusion's
/// rules.
pub fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    vec![Arc::new(CheckedIntegers), Arc::new(LikeEscapes), Arc::new(VectorCasts)]
}

#[cfg(test)]
mod tests;
