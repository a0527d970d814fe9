//! SQL functions, operators and arithmetic over Arrow arrays, for DataFusion, with limits on the memory and the work of
//! each call.
//!
//! ```text
//! add_to         ──► allowed functions, functions of this crate, distance operators
//! analyzer_rules ──► CheckedIntegers (overflow is an error), LikeEscapes
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
mod concatenate;
mod cost;
mod distance;
mod error;
mod held;
mod like_escapes;
mod octet_length;
mod operators;
mod overflow;
mod predicates;
mod reserve_results;
mod reserving;
mod tensor_mean;
mod tensor_shape;
mod vectors;

pub use activity::{Activity, Running};
pub use allowed::refused;
pub use beside_others::beside_others;
pub use error::Error;
pub use predicates::{has_subquery, needs_only};
pub use reserve_results::ReserveResults;

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::execution::FunctionRegistry as _;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::ScalarUDF;
use datafusion::optimizer::AnalyzerRule;

use distance::Distance;
use like_escapes::LikeEscapes;
use octet_length::OctetLength;
use operators::DistanceOperators;
use overflow::CheckedIntegers;
use tensor_mean::TensorMean;
use tensor_shape::TensorShape;

/// Removes the functions from a session that queries may not call, and adds the functions and operators of this crate,
/// some of which replace functions of DataFusion.
pub fn add_to(context: &mut SessionContext) -> DfResult<()> {
    allowed::keep_allowed(context);
    for function in [
        ScalarUDF::from(Distance::l2()),
        ScalarUDF::from(Distance::cosine()),
        ScalarUDF::from(Distance::dot()),
        ScalarUDF::from(Distance::negative_inner()),
        ScalarUDF::from(OctetLength::new()),
        ScalarUDF::from(TensorMean::new()),
        ScalarUDF::from(TensorShape::new()),
    ] {
        context.register_udf(Arc::new(function))?;
    }
    context.register_expr_planner(Arc::new(DistanceOperators))
}

/// Returns the analyzer rules for arithmetic and for `LIKE … ESCAPE`. They run after DataFusion's rules.
pub fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    vec![Arc::new(CheckedIntegers), Arc::new(LikeEscapes)]
}

#[cfg(test)]
mod tests;
