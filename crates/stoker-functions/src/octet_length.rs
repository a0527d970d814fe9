//! `octet_length(value)`: the bytes of a text or of a binary value, such as an encoded image.

use arrow_cast::cast;
use arrow_schema::DataType;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::documented::documented;

/// The function, which replaces DataFusion's `octet_length` for texts only. The result is Int64 for types with large
/// offsets, else Int32.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OctetLength {
    documentation: Documentation,
    signature: Signature,
}

impl OctetLength {
    pub(crate) fn new() -> Self {
        Self {
            documentation: documented("octet_length(value)", "The bytes of a text or of a binary value"),
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for OctetLength {
    fn name(&self) -> &str {
        "octet_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> DfResult<Vec<DataType>> {
        let [data_type] = arg_types else { return plan_err!("octet_length needs one argument") };
        match data_type {
            DataType::Null => Ok(vec![DataType::Utf8]),
            DataType::Dictionary(_, values) if is_bytes(values) => Ok(vec![values.as_ref().clone()]),
            bytes if is_bytes(bytes) => Ok(vec![bytes.clone()]),
            other => plan_err!("octet_length needs a text or a binary value, not {other}"),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> DfResult<DataType> {
        Ok(match arg_types {
            [DataType::LargeUtf8 | DataType::LargeBinary] => DataType::Int64,
            _ => DataType::Int32,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let lengths = |values: &dyn arrow_array::Array| cast(&length(values)?, args.return_field.data_type());
        match args.args.first() {
            Some(ColumnarValue::Array(values)) => Ok(ColumnarValue::Array(lengths(values)?)),
            Some(ColumnarValue::Scalar(value)) => {
                let lengths = lengths(&value.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?))
            }
            None => exec_err!("octet_length needs one argument"),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    )
}
