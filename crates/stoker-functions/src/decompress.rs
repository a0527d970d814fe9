//! `decompress(column)`: the tensors of a column of compressed tensors.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use stoker_columns::{CompressedTensor, is_compressed_tensor};

use crate::Error;
use crate::documented::documented;

/// The function. The result has the extension type of tensors, and is NULL where the column is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Decompress {
    documentation: Documentation,
    signature: Signature,
}

impl Decompress {
    pub(crate) fn new() -> Self {
        Self {
            documentation: documented("decompress(column)", "The tensors of a column that stores them compressed"),
            signature: Signature::any(1, Volatility::Immutable),
        }
    }

    fn tensors(&self, field: Option<&FieldRef>, frames: &ArrayRef) -> DfResult<ArrayRef> {
        let Some(field) = field else { return internal_err!("{} was called without a column", self.name()) };
        let tensor = compressed(field)?;
        tensor.decompress(frames).map_err(|mismatch| {
            let row =
                mismatch.row.map_or_else(String::new, |row| format!(", row {row} of a batch of {}", frames.len()));
            let what = format!("column {}{row}", field.name());
            Error::corrupt(format!("{what}: the compressed tensor cannot be decoded: {}", mismatch.found)).into()
        })
    }
}

/// Returns what the metadata of a column says.
fn compressed(field: &Field) -> DfResult<CompressedTensor> {
    match CompressedTensor::try_of(field) {
        Ok(Some(tensor)) => Ok(tensor),
        Ok(None) => plan_err!(
            "decompress: {} ({}) is no column of compressed tensors, as describe shows them",
            field.name(),
            field.data_type()
        ),
        Err(reason) => plan_err!("decompress: column {}: {reason}", field.name()),
    }
}

/// Returns what to write instead of a function of tensors whose argument is a column of compressed ones; empty for other
/// columns.
pub(crate) fn hint(function: &str, field: &Field) -> String {
    match is_compressed_tensor(field) {
        true => format!("; write {function}(decompress({}))", field.name()),
        false => String::new(),
    }
}

impl ScalarUDFImpl for Decompress {
    fn name(&self) -> &str {
        "decompress"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> DfResult<DataType> {
        internal_err!("the type of {} follows from the metadata of its argument", self.name())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DfResult<FieldRef> {
        let [field] = args.arg_fields else { return plan_err!("decompress needs one column") };
        let tensors = compressed(field)?.tensor_field(self.name());
        Ok(Arc::new(tensors.with_nullable(field.is_nullable())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let field = args.arg_fields.first();
        match args.args.first() {
            Some(ColumnarValue::Array(frames)) => Ok(ColumnarValue::Array(self.tensors(field, frames)?)),
            Some(ColumnarValue::Scalar(frame)) => {
                let tensors = self.tensors(field, &frame.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&tensors, 0)?))
            }
            None => exec_err!("{} needs a column", self.name()),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
