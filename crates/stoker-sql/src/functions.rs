//! SQL functions: DataFusion's functions that a query may call, the functions of this crate, arithmetic and operators,
//! and limits on the memory of results.
//!
//! ```text
//! allowed ──► each function's rule for the size of its results
//! cost    ──► an upper bound on the result of a call, from the call's arguments
//! ReserveResults (analyzer rule) ──► Reserving (wraps a function whose result can outgrow its arguments) ──► held
//! ```

mod allowed;
mod concatenate;
mod cost;
mod distance;
mod held;
mod like_escapes;
mod octet_length;
mod operators;
mod overflow;
mod reserve_results;
mod reserving;
mod tensor_mean;
mod tensor_shape;
mod vectors;

pub(crate) use allowed::refused;
pub(crate) use reserve_results::ReserveResults;

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
pub(crate) fn add_to(context: &mut SessionContext) -> DfResult<()> {
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
pub(crate) fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    vec![Arc::new(CheckedIntegers), Arc::new(LikeEscapes)]
}

#[cfg(test)]
mod tests;
