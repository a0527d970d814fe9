//! The operators `<->`, `<=>` and `<#>` on vectors: Euclidean distance, cosine distance and negative inner product, as
//! in pgvector.
//!
//! On other types `<=>` keeps its meaning IS NOT DISTINCT FROM.

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::{DFSchema, Result as DfResult, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{ExprSchemable as _, ScalarUDF};
use datafusion::prelude::Expr;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::distance::Distance;
use crate::vectors::is_vector;

/// Plans distance operators as calls of the distance functions.
#[derive(Debug)]
pub(crate) struct DistanceOperators;

impl ExprPlanner for DistanceOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> DfResult<PlannerResult<RawBinaryExpr>> {
        let distance = match &expr.op {
            BinaryOperator::Custom(name) if name == "<->" => Distance::l2(),
            BinaryOperator::Custom(name) if name == "<#>" => Distance::negative_inner(),
            BinaryOperator::Spaceship => Distance::cosine(),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (left, right) = (expr.left.get_type(schema)?, expr.right.get_type(schema)?);
        match (are_vectors(&left, &right), &expr.op) {
            (true, _) => {
                let function = Arc::new(ScalarUDF::from(distance));
                let call = ScalarFunction::new_udf(function, vec![expr.left, expr.right]);
                Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
            }
            (false, BinaryOperator::Spaceship) => Ok(PlannerResult::Original(expr)),
            (false, op) => plan_err!("{op} is a distance of two vectors; its sides are {left} and {right}"),
        }
    }
}

/// Tells whether both types are vectors. One of the two may be NULL.
fn are_vectors(left: &DataType, right: &DataType) -> bool {
    is_vector(left) && is_vector(right) && !(left.is_null() && right.is_null())
}
