//! Columns that hold their values with an error: floats with fewer bits, and images as JPEG files.
//!
//! The values are plain tensors and encoded images, which everything reads as such. The metadata [`LOSSY_KEY`] says what
//! they were, and how large the largest error is that was measured when they were written:
//!
//! ```text
//! {"codec": "float16", "dtype": "float32", "max_abs_error": 0.000488}
//! {"codec": "jpeg:90", "dtype": "uint8", "shape": [3, 224, 224], "max_abs_error": 31.0}
//! ```

mod floats;
mod images;

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};
use serde::{Deserialize, Serialize};
use stoker_codec::{Dtype, JpegSize, RowType};

use crate::numpy::number_name;
use crate::tensor::parameters;
use crate::{CODEC_KEY, DTYPE_KEY, LOSSY_KEY, Mismatch, SmallFloat, TensorType, encoded_image, kind_of};

/// The quality of JPEG files if none is given, and the largest one.
const QUALITY_DEFAULT: u8 = 90;
const QUALITY_MAX: u8 = 100;

/// What the metadata of a lossy column says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossyColumn {
    /// How the values are held: `float16`, `bfloat16`, or `jpeg` with a quality behind a colon.
    pub codec: String,
    /// The type of the elements that were written.
    pub dtype: String,
    /// The shape of the tensors that were written, where the column has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<usize>>,
    /// The largest absolute difference between an element that was written and the one that is read. It is measured when
    /// the first rows are written; statements of SQL do not measure it.
    #[serde(default)]
    pub max_abs_error: Option<f64>,
}

/// How values are held.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Float16,
    BFloat16,
    Jpeg(u8),
}

impl Form {
    fn parse(text: &str) -> Option<Result<Self, String>> {
        let (name, quality) = text.split_once(':').map_or((text, None), |(name, quality)| (name, Some(quality)));
        Some(match (name.trim(), quality.map(|quality| quality.trim().parse::<u8>())) {
            ("float16", None) => Ok(Form::Float16),
            ("bfloat16", None) => Ok(Form::BFloat16),
            ("jpeg", None) => Ok(Form::Jpeg(QUALITY_DEFAULT)),
            ("jpeg", Some(Ok(quality @ 1..=QUALITY_MAX))) => Ok(Form::Jpeg(quality)),
            ("jpeg", Some(_)) => Err(format!("the quality of jpeg is from 1 to {QUALITY_MAX}")),
            ("float16" | "bfloat16", Some(_)) => Err(format!("{name} has no levels")),
            _ => return None,
        })
    }

    fn text(self) -> String {
        match self {
            Form::Float16 => "float16".into(),
            Form::BFloat16 => "bfloat16".into(),
            Form::Jpeg(quality) => format!("jpeg:{quality}"),
        }
    }
}

/// Returns the lossy column that is written for a column of tensors or vectors and the text of a codec; `None` for the text
/// of another codec.
///
/// # Errors
/// Values that the codec does not take, as text for users.
pub(crate) fn chosen_lossy(plain: &Field, codec: &str) -> Option<Result<Field, String>> {
    let form = match Form::parse(codec)? {
        Ok(form) => form,
        Err(reason) => return Some(Err(reason)),
    };
    Some(lossy_field(plain, form))
}

fn lossy_field(plain: &Field, form: Form) -> Result<Field, String> {
    let unfit = |what: &str| format!("{} takes {what}, not {} values", form.text(), plain.data_type());
    let tensor = TensorType::of(plain).ok_or_else(|| unfit("tensors and vectors"))?;
    let plain = &without_codec(plain);
    let dtype = number_name(&tensor.element).unwrap_or("number").to_string();
    let mut lossy = LossyColumn { codec: form.text(), dtype, shape: None, max_abs_error: None };
    let field = match form {
        Form::Float16 | Form::BFloat16 => {
            if !matches!(tensor.element, DataType::Float32 | DataType::Float64) {
                return Err(unfit("float32 and float64"));
            }
            let field = floats::field(plain, form == Form::BFloat16);
            kind_of(&field).canonical(&field)
        }
        Form::Jpeg(_) => {
            lossy.shape = Some(tensor.shape.clone());
            let has_order = parameters(plain).is_some_and(|parameters| parameters.get("permutation").is_some());
            if tensor.element != DataType::UInt8 || has_order || images::size(&tensor.shape).is_none() {
                return Err(unfit("uint8 tensors of shape [3, height, width], [height, width, 3] or [height, width]"));
            }
            let own = encoded_image::new_field(plain.name(), false);
            let mut metadata = plain.metadata().clone();
            metadata.retain(|key, _| !key.starts_with("ARROW:extension:") && key != DTYPE_KEY);
            metadata.extend(own.metadata().clone());
            own.with_metadata(metadata)
        }
    };
    Ok(lossy.put(field))
}

/// Returns a column without its choice of a codec.
pub(crate) fn without_codec(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(CODEC_KEY);
    field.clone().with_metadata(metadata)
}

impl LossyColumn {
    /// Returns what the metadata of a column says; `None` for other columns, and for metadata that cannot be read.
    pub fn of(field: &Field) -> Option<Self> {
        serde_json::from_str(field.metadata().get(LOSSY_KEY)?).ok()
    }

    /// Returns a column with this metadata.
    pub fn put(&self, field: Field) -> Field {
        let mut metadata = field.metadata().clone();
        if let Ok(json) = serde_json::to_string(self) {
            metadata.insert(LOSSY_KEY.into(), json);
        }
        field.with_metadata(metadata)
    }

    /// Returns this metadata with an error that was measured, if it is larger than the one that is known.
    pub fn with_error(&self, measured: f64) -> Self {
        let max_abs_error = Some(self.max_abs_error.map_or(measured, |known| known.max(measured)));
        Self { max_abs_error, ..self.clone() }
    }

    /// Returns the bytes of a row as it was written; `None` for a column whose metadata does not say.
    pub fn plain_row_bytes(&self, field: &Field) -> Option<usize> {
        let shape = self.shape.clone().or_else(|| TensorType::of(field).map(|tensor| tensor.shape))?;
        RowType::try_new(Dtype::named(&self.dtype)?, &shape).ok().map(|row| row.num_bytes())
    }

    /// Whether `incoming` has the tensors that `field`, the lossy column, holds.
    pub fn takes(&self, field: &Field, incoming: &Field) -> bool {
        let expected = Form::parse(&self.codec).and_then(Result::ok).and_then(|form| lossy_field(incoming, form).ok());
        expected.is_some_and(|expected| {
            let same = Self::of(&expected).is_some_and(|other| other.dtype == self.dtype && other.shape == self.shape);
            same && TensorType::of(&expected) == TensorType::of(field)
        })
    }

    /// Converts tensors to what the lossy column `field` holds, and returns the largest absolute error. `None` for values
    /// that are held already.
    ///
    /// # Errors
    /// The first value that cannot be held; nulls.
    pub fn convert(&self, field: &Field, column: &ArrayRef) -> Result<Option<(ArrayRef, f64)>, Mismatch> {
        let DataType::FixedSizeList(item, _) = column.data_type() else { return Ok(None) };
        if number_name(item.data_type()) != Some(self.dtype.as_str()) {
            return Ok(None);
        }
        if let Some(row) = (0..column.len()).find(|row| column.is_null(*row) && !field.is_nullable()) {
            return Err(Mismatch::new(Some(row), format!("{} without nulls", self.dtype), "null"));
        }
        match (Form::parse(&self.codec), &self.shape) {
            (Some(Ok(Form::Float16)), _) => floats::convert(field, column, false).map(Some),
            (Some(Ok(Form::BFloat16)), _) => floats::convert(field, column, true).map(Some),
            (Some(Ok(Form::Jpeg(quality))), Some(shape)) => match images::size(shape) {
                Some(size) => images::convert(column, size, quality).map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }
}

/// The small float of a field; the field of bfloat16 has its name in [`DTYPE_KEY`].
fn bfloat16_name() -> (String, String) {
    (DTYPE_KEY.into(), SmallFloat::BFloat16.name().into())
}

/// The order in which the pixels of a tensor lie.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ImageSize {
    jpeg: JpegSize,
    /// Whether all values of a channel lie together.
    is_channels_first: bool,
}
