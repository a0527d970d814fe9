//! The functions for `+`, `-`, `*` and negation that fail on overflow.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::compute::kernels::numeric::{add, mul, neg, sub};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{
    ColumnarValue, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;
use datafusion::prelude::Expr;

/// An operator in which integers can overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

impl Operation {
    /// Returns the operation of an expression, or `None` for other expressions.
    pub(super) fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Negative(_) => Some(Self::Negate),
            Expr::BinaryExpr(BinaryExpr { op: Operator::Plus, .. }) => Some(Self::Add),
            Expr::BinaryExpr(BinaryExpr { op: Operator::Minus, .. }) => Some(Self::Subtract),
            Expr::BinaryExpr(BinaryExpr { op: Operator::Multiply, .. }) => Some(Self::Multiply),
            _ => None,
        }
    }
}

/// An operator as a function whose arguments are integers of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Arithmetic {
    operation: Operation,
    signature: Signature,
}

impl Arithmetic {
    pub(super) fn new(operation: Operation) -> Self {
        let num_args = if operation == Operation::Negate { 1 } else { 2 };
        Self { operation, signature: Signature::any(num_args, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Arithmetic {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "add",
            Operation::Subtract => "subtract",
            Operation::Multiply => "multiply",
            Operation::Negate => "negate",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the column name of the replaced operator, so that the names of result columns do not change.
    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        let name = |arg: &Expr| arg.schema_name().to_string();
        Ok(match (self.operation, args) {
            (Operation::Add, [left, right]) => format!("{} + {}", name(left), name(right)),
            (Operation::Subtract, [left, right]) => format!("{} - {}", name(left), name(right)),
            (Operation::Multiply, [left, right]) => format!("{} * {}", name(left), name(right)),
            (_, args) => format!("(- {})", args.iter().map(name).collect::<String>()),
        })
    }

    fn return_type(&self, arg_types: &[DataType]) -> DfResult<DataType> {
        match arg_types {
            [data_type, ..] => Ok(data_type.clone()),
            [] => internal_err!("{} needs arguments", self.name()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match (self.operation, args.args.as_slice()) {
            (Operation::Add, [left, right]) => apply(left, right, add),
            (Operation::Subtract, [left, right]) => apply(left, right, sub),
            (Operation::Multiply, [left, right]) => apply(left, right, mul),
            (Operation::Negate, [ColumnarValue::Array(values)]) => Ok(ColumnarValue::Array(neg(values)?)),
            (Operation::Negate, [ColumnarValue::Scalar(value)]) => {
                let negated = neg(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&negated, 0)?))
            }
            (_, other) => internal_err!("{} was called with {} arguments", self.name(), other.len()),
        }
    }
}
