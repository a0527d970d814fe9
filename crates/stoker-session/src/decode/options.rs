//! Which columns of a stream are decoded, and how.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use stoker_columns::{CompressedTensor, TensorType, is_compressed_tensor, video_index_of};
use stoker_decode::{
    ImageDecoder, ImageTransform, JpegDecoder, ListSpec, OutputSpec, Takes, ValueDecoder, is_file, is_text,
};
use stoker_tokenize::TextTokenizer;
use stoker_types::ColumnClip;

use super::clips::{ClipDecoder, VideoOptions};
use super::custom::CustomDecoder;
use super::sounds::{AudioOptions, SoundDecoder};
use super::tensors::TensorDecoder;
use super::texts::TextDecoder;
use crate::{Error, Result};

/// The decoder of each column that the client decodes, and the number of threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeOptions {
    /// Names of columns of the stream, each with what decodes its values.
    pub columns: Vec<(String, ColumnDecoder)>,
    /// The number of decoding threads for each column; 0 stands for the number of cores.
    pub num_threads: usize,
    /// Columns of compressed tensors whose frames stay as they are. A session decodes all others.
    #[serde(default)]
    pub as_stored: Vec<String>,
}

/// What decodes the values of a column.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnDecoder {
    /// Image files become tensors.
    Image(ImageOptions),
    /// Sound files become clips.
    Audio(AudioOptions),
    /// Video files become clips.
    Video(VideoOptions),
    /// Texts become token ids.
    Text(TextTokenizer),
    /// A decoder from outside of this workspace.
    Custom(CustomDecoder),
    /// Frames become the tensors that the metadata of the column declares. Sessions add these decoders for each stream,
    /// and do not save them.
    #[serde(skip)]
    Compressed(CompressedTensor),
}

/// The transform of a column of images, and where libjpeg-turbo is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageOptions {
    /// The transform.
    pub transform: ImageTransform,
    /// Files of libjpeg-turbo, and folders with them, that are tried before those of the system, for transforms that
    /// need the library.
    pub libraries: Vec<PathBuf>,
}

impl From<ImageTransform> for ImageOptions {
    fn from(transform: ImageTransform) -> Self {
        Self { transform, libraries: Vec::new() }
    }
}

impl ImageOptions {
    fn build(&self) -> Result<Box<dyn ValueDecoder>> {
        let jpeg = JpegDecoder::load(self.transform.jpeg, &self.libraries).map_err(stoker_decode::Error::from)?;
        Ok(Box::new(ImageDecoder::new(self.transform.clone()).with_jpeg(jpeg)))
    }
}

impl ColumnDecoder {
    /// Checks the options, separately and together.
    ///
    /// # Errors
    /// [`stoker_decode::Error`], which names the option, its value and the allowed values.
    pub fn validate(&self) -> Result<()> {
        Ok(self.build()?.validate()?)
    }

    /// Makes the decoder.
    pub(super) fn build(&self) -> Result<Box<dyn ValueDecoder>> {
        match self {
            ColumnDecoder::Image(options) => options.build(),
            ColumnDecoder::Audio(options) => Ok(Box::new(SoundDecoder::new(options))),
            ColumnDecoder::Video(options) => Ok(Box::new(ClipDecoder::new(options)?)),
            ColumnDecoder::Text(tokenizer) => Ok(Box::new(TextDecoder::new(tokenizer.clone()))),
            ColumnDecoder::Custom(custom) => custom.build(),
            ColumnDecoder::Compressed(tensor) => Ok(Box::new(TensorDecoder::new(tensor.clone()))),
        }
    }
}

impl DecodeOptions {
    /// Returns the decoders of a stream with this schema: those that were asked for, and those of all other columns of
    /// compressed tensors that do not stay as they are. `None` if there are none.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for a column that is to stay as it is and does not exist, and for compressed tensors whose
    /// metadata is damaged.
    pub fn for_stream(asked: Option<&Self>, schema: &Schema) -> Result<Option<Self>> {
        let mut all = asked.cloned().unwrap_or_default();
        for name in &all.as_stored {
            named_column(schema, name, &format!("cannot keep column {name} as it is stored"))?;
        }
        for field in schema.fields() {
            let name = field.name();
            let is_settled = all.as_stored.contains(name) || all.columns.iter().any(|(other, _)| other == name);
            if is_settled || !is_compressed_tensor(field) {
                continue;
            }
            let damaged = |reason: String| {
                let hint = format!("decode={{\"{name}\": False}} gives its frames");
                Error::invalid(format!("cannot decode column {name}: {reason}; {hint}"))
            };
            if let Some(tensor) = CompressedTensor::try_of(field).map_err(damaged)? {
                all.columns.push((name.clone(), ColumnDecoder::Compressed(tensor)));
            }
        }
        Ok(Some(all).filter(|all| !all.columns.is_empty()))
    }

    /// Returns the clips of the columns whose videos have an index in their table, so that only the frames of the clips
    /// need be read. Other columns of videos are read as whole files.
    pub(crate) fn clips(&self, schema: &Schema) -> Vec<ColumnClip> {
        let clip = |(name, decoder): &(String, ColumnDecoder)| match decoder {
            ColumnDecoder::Video(options) => {
                let field = schema.field_with_name(name).ok()?;
                video_index_of(field).map(|_| options.clip.choice(name))
            }
            _ => None,
        };
        self.columns.iter().filter_map(clip).collect()
    }

    /// Returns the schema of decoded batches: the list or the first array of each decoder, not null, in place of its column,
    /// and the others behind all columns.
    ///
    /// # Errors
    /// [`stoker_decode::Error`] for a transform that is not valid; [`Error::InvalidRequest`] for a column that does not
    /// exist, is named twice or does not hold what its decoder takes, and for names that are taken.
    pub fn schema(&self, schema: &Schema) -> Result<SchemaRef> {
        let (mut fields, mut others) = (schema.fields().to_vec(), Vec::new());
        for (number, (name, decoder)) in self.columns.iter().enumerate() {
            let decoder = decoder.build()?;
            decoder.validate()?;
            if self.columns.iter().take(number).any(|(other, _)| other == name) {
                return Err(Error::invalid(format!("cannot decode column {name} twice")));
            }
            for named in decoder.parameters() {
                named_column(schema, named, &format!("cannot decode column {name} with column {named}"))?;
            }
            if let Some(named) = decoder.draws_of() {
                let is_decoded = self.columns.iter().any(|(other, _)| other == named);
                if !is_decoded {
                    let reason = format!("column {name} cannot follow column {named}, which is not decoded");
                    return Err(Error::invalid(reason));
                }
            }
            let index = named_column(schema, name, &format!("cannot decode column {name}"))?;
            check_values(&fields[index], decoder.as_ref())?;
            if let Some(list) = decoder.list() {
                fields[index] = list_field(name, &list);
            }
            for output in decoder.outputs() {
                let field = match output.suffix {
                    "" => decoder.field(name).map(Arc::new),
                    _ => None,
                };
                let field = field.unwrap_or_else(|| output_field(name, &output));
                match output.suffix {
                    "" => fields[index] = field,
                    _ => others.push(field),
                }
            }
        }
        for field in others {
            if fields.iter().any(|other| other.name() == field.name()) {
                let reason = format!(
                    "decoding makes the column {0}, which exists already; give the existing one another name with AS",
                    field.name()
                );
                return Err(Error::invalid(reason));
            }
            fields.push(field);
        }
        Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
    }
}

fn named_column(schema: &Schema, name: &str, attempted: &str) -> Result<usize> {
    schema.index_of(name).map_err(|_| {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        Error::invalid(format!("{attempted}, it does not exist; the columns are {}", names.join(", ")))
    })
}

/// Checks that a column holds what its decoder takes: files, lists of files, or texts. A mark is not needed, because queries
/// compute columns without one.
fn check_values(field: &Field, decoder: &dyn ValueDecoder) -> Result<()> {
    let (name, found, noun) = (field.name(), field.data_type(), decoder.noun());
    let is_list_of_files =
        matches!(found, DataType::List(item) | DataType::LargeList(item) if is_file(item.data_type()));
    match (decoder.takes(), is_file(found), is_text(found)) {
        (Takes::Files | Takes::FilesOrTexts, true, _) | (Takes::Texts | Takes::FilesOrTexts, _, true) => Ok(()),
        (Takes::FileLists, ..) if is_list_of_files => Ok(()),
        (Takes::Files, ..) if is_list_of_files => Err(Error::invalid(format!(
            "column {name} holds lists of files: its decoder must say how many {noun}s of a row are decoded, such as \
             images=4"
        ))),
        (Takes::FileLists, true, _) => Err(Error::invalid(format!(
            "column {name} holds {found}, one {noun} in each row and no lists: leave out {noun}s"
        ))),
        (Takes::Texts, ..) => {
            let hint = if is_file(found) { "; if they are texts, write the column as text" } else { "" };
            Err(Error::invalid(format!("column {name} holds {found}, no {noun}s: it has no token ids{hint}")))
        }
        _ => Err(Error::invalid(format!("column {name} holds {found}, not files of {noun}s: it cannot be decoded"))),
    }
}

fn list_field(column: &str, list: &ListSpec) -> FieldRef {
    Arc::new(Field::new(column, list.data_type(), false))
}

fn output_field(column: &str, output: &OutputSpec) -> FieldRef {
    let name = output.name(column);
    match output.shape.is_empty() {
        true => Arc::new(Field::new(name, output.element.clone(), false)),
        false => {
            let tensor = TensorType { element: output.element.clone(), shape: output.shape.clone() };
            Arc::new(tensor.to_field(&name))
        }
    }
}
