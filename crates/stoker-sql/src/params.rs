//! Positional parameters (`$1`, `$2`, …).
//!
//! Scalars become literals in the AST. Vectors become calls of a function that knows their values, so that a long
//! embedding costs one node; DataFusion folds it into a literal.

use std::sync::Arc;

use arrow_array::{FixedSizeListArray, Float32Array};
use arrow_schema::{DataType, Field};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{Expr, Value};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use stoker_types::ParamValue;

use crate::{Error, Result};

/// The name of the function that stands for a vector parameter.
pub(crate) const VECTOR_FUNCTION: &str = "__stoker_vector";

/// The parameters of one query, and which of them it uses.
pub(crate) struct Params<'a> {
    values: &'a [ParamValue],
    used: Vec<bool>,
}

impl<'a> Params<'a> {
    pub(crate) fn new(values: &'a [ParamValue]) -> Self {
        Self { values, used: vec![false; values.len()] }
    }

    /// The value of a placeholder such as `$2`.
    pub(crate) fn value(&mut self, placeholder: &str) -> Result<(usize, &'a ParamValue)> {
        let index = placeholder
            .strip_prefix('$')
            .and_then(|digits| digits.parse::<usize>().ok())
            .and_then(|number| number.checked_sub(1))
            .ok_or_else(|| Error::refused(format!("placeholder {placeholder}"), "parameters are written $1, $2, …"))?;
        let value = self.values.get(index).ok_or_else(|| {
            let reason = format!("{} parameters were given", self.values.len());
            Error::refused(format!("parameter {placeholder} is missing"), reason)
        })?;
        self.used[index] = true;
        Ok((index, value))
    }

    /// The expression that replaces a placeholder.
    pub(crate) fn expr(&mut self, placeholder: &str) -> Result<Expr> {
        let (index, value) = self.value(placeholder)?;
        Ok(match value {
            ParamValue::Null => literal(Value::Null),
            ParamValue::Bool(value) => literal(Value::Boolean(*value)),
            ParamValue::Int(value) => parse(&value.to_string())?,
            ParamValue::Float(value) => parse(&format!("CAST('{value:?}' AS DOUBLE)"))?,
            ParamValue::Text(text) => literal(Value::SingleQuotedString(text.clone())),
            ParamValue::Vector(_) => parse(&format!("{VECTOR_FUNCTION}({index})"))?,
        })
    }

    /// Every parameter must be used: one too many is a mistake in the query.
    pub(crate) fn check_all_used(&self) -> Result<()> {
        match self.used.iter().position(|used| !used) {
            Some(index) => Err(Error::refused(
                format!("parameter ${} is not used in the query", index + 1),
                format!("{} parameters were given", self.values.len()),
            )),
            None => Ok(()),
        }
    }
}

fn literal(value: Value) -> Expr {
    Expr::Value(value.with_empty_span())
}

fn parse(text: &str) -> Result<Expr> {
    Parser::new(&GenericDialect)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| Error::internal(format!("parameter as SQL: {error}")))
}

/// `__stoker_vector(i)`: the vector parameter with index `i`, as FixedSizeList of Float32.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct VectorParam {
    /// Bits of the values, so that the function can be compared.
    vectors: Vec<Option<Vec<u32>>>,
    signature: Signature,
}

impl VectorParam {
    pub(crate) fn new(values: &[ParamValue]) -> Self {
        let vectors = values
            .iter()
            .map(|value| match value {
                ParamValue::Vector(values) => Some(values.iter().map(|v| (*v as f32).to_bits()).collect()),
                _ => None,
            })
            .collect();
        Self { vectors, signature: Signature::exact(vec![DataType::Int64], Volatility::Immutable) }
    }

    fn vector(&self, index: Option<&ScalarValue>) -> DfResult<ScalarValue> {
        let Some(ScalarValue::Int64(Some(index))) = index else {
            return plan_err!("a vector parameter needs an index");
        };
        let vector = usize::try_from(*index).ok().and_then(|index| self.vectors.get(index));
        let Some(Some(bits)) = vector else { return plan_err!("parameter {index} is not a vector") };
        let values = Float32Array::from_iter_values(bits.iter().map(|bits| f32::from_bits(*bits)));
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let length = i32::try_from(bits.len()).unwrap_or(i32::MAX);
        let list = FixedSizeListArray::try_new_with_length(item, length, Arc::new(values), None, 1)?;
        Ok(ScalarValue::FixedSizeList(Arc::new(list)))
    }
}

impl ScalarUDFImpl for VectorParam {
    fn name(&self) -> &str {
        VECTOR_FUNCTION
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> DfResult<DataType> {
        plan_err!("the type of a vector parameter depends on its index")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<Arc<Field>> {
        let value = self.vector(args.scalar_arguments.first().copied().flatten())?;
        Ok(Arc::new(Field::new(self.name(), value.data_type(), false)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match args.args.first() {
            Some(ColumnarValue::Scalar(index)) => Ok(ColumnarValue::Scalar(self.vector(Some(index))?)),
            _ => plan_err!("a vector parameter needs a literal index"),
        }
    }
}
