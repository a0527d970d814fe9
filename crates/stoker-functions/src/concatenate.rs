//! The operator `||` on texts as a function, so that memory for its result can be reserved.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::compute::kernels::concat_elements::concat_elements_dyn;
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::Expr;

/// The function `||` of two texts of one type. The result is NULL where one of the texts is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Concatenate {
    signature: Signature,
}

impl Concatenate {
    pub(crate) fn new() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable) }
    }

    /// Tells whether the function takes values of this type.
    pub(crate) fn takes(data_type: &DataType) -> bool {
        matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    }
}

impl ScalarUDFImpl for Concatenate {
    fn name(&self) -> &str {
        "||"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the column name of the replaced operator, so that the names of result columns do not change.
    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(names.join(" || "))
    }

    fn return_type(&self, arg_types: &[DataType]) -> DfResult<DataType> {
        match arg_types {
            [one, other] if one == other && Self::takes(one) => Ok(one.clone()),
            other => internal_err!("|| was planned for {other:?}"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let num_rows = if is_constant { 1 } else { args.number_rows };
        let data_type = args.return_field.data_type();
        // The concatenation kernel does not support string views.
        let inner = if matches!(data_type, DataType::Utf8View) { &DataType::Utf8 } else { data_type };
        let sides = args.args.iter().map(|side| Ok(cast(&side.to_array(num_rows)?, inner)?));
        let sides = sides.collect::<DfResult<Vec<ArrayRef>>>()?;
        let [one, other] = sides.as_slice() else { return internal_err!("|| has two sides") };
        let joined = cast(&concat_elements_dyn(one, other)?, data_type)?;
        debug_assert_eq!(joined.len(), num_rows);
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?)),
            false => Ok(ColumnarValue::Array(joined)),
        }
    }
}
