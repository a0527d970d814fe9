//! `image_width(file)`, `image_height(file)` and `image_format(file)`: what the header of an image file says.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int64Array, StringArray};
use arrow_schema::DataType;
use datafusion::common::{Result as DfResult, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::documented::documented;
use crate::image_header::ImageHeader;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Property {
    Width,
    Height,
    Format,
}

/// One of the functions. The argument is a binary value, such as an encoded image. Width and height are Int64, so that
/// their differences and products do not overflow; the format is a text. The result is NULL where the value is NULL or
/// is no image whose header can be read.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ImageProperty {
    property: Property,
    documentation: Documentation,
    signature: Signature,
}

impl ImageProperty {
    /// The number of pixels in a row, as stored: orientation tags are not applied.
    pub(crate) fn width() -> Self {
        let description = "The width of an image file in pixels, from its header; NULL for other content";
        Self::new(Property::Width, documented("image_width(file)", description))
    }

    /// The number of rows of pixels, as stored.
    pub(crate) fn height() -> Self {
        let description = "The height of an image file in pixels, from its header; NULL for other content";
        Self::new(Property::Height, documented("image_height(file)", description))
    }

    /// The name of the format, in small letters.
    pub(crate) fn format() -> Self {
        let description = "The format of an image file: jpeg, png, webp, gif, bmp or tiff; NULL for other content";
        Self::new(Property::Format, documented("image_format(file)", description))
    }

    fn new(property: Property, documentation: Documentation) -> Self {
        Self { property, documentation, signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn of_files(&self, files: &ArrayRef) -> DfResult<ArrayRef> {
        let headers = match files.data_type() {
            DataType::Binary => headers(files.as_binary::<i32>().iter()),
            DataType::LargeBinary => headers(files.as_binary::<i64>().iter()),
            DataType::BinaryView => headers(files.as_binary_view().iter()),
            other => return internal_err!("{} was called with {other}", self.name()),
        };
        let headers = headers.into_iter();
        Ok(match self.property {
            Property::Width => {
                let widths = headers.map(|header| header.map(|header| i64::from(header.width)));
                Arc::new(widths.collect::<Int64Array>())
            }
            Property::Height => {
                let heights = headers.map(|header| header.map(|header| i64::from(header.height)));
                Arc::new(heights.collect::<Int64Array>())
            }
            Property::Format => {
                let formats = headers.map(|header| header.map(|header| header.format));
                Arc::new(formats.collect::<StringArray>())
            }
        })
    }
}

fn headers<'a>(files: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<Option<ImageHeader>> {
    files.map(|file| file.and_then(ImageHeader::read)).collect()
}

impl ScalarUDFImpl for ImageProperty {
    fn name(&self) -> &str {
        match self.property {
            Property::Width => "image_width",
            Property::Height => "image_height",
            Property::Format => "image_format",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> DfResult<Vec<DataType>> {
        let [data_type] = arg_types else { return plan_err!("{} needs one argument", self.name()) };
        let bytes = if let DataType::Dictionary(_, values) = data_type { values.as_ref() } else { data_type };
        match bytes {
            DataType::Null | DataType::FixedSizeBinary(_) => Ok(vec![DataType::Binary]),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Ok(vec![bytes.clone()]),
            _ => plan_err!("{} needs a binary value, not {data_type}", self.name()),
        }
    }

    fn return_type(&self, _arg_types: &[DataType]) -> DfResult<DataType> {
        Ok(match self.property {
            Property::Width | Property::Height => DataType::Int64,
            Property::Format => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match args.args.first() {
            Some(ColumnarValue::Array(files)) => Ok(ColumnarValue::Array(self.of_files(files)?)),
            Some(ColumnarValue::Scalar(file)) => {
                let found = self.of_files(&file.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?))
            }
            None => internal_err!("{} was called without an argument", self.name()),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
