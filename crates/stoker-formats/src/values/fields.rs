//! The fields of columns that formats declare.

use std::sync::Arc;

use arrow_schema::{DataType, Field};
use stoker_columns::{
    EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, TensorType, VARIABLE_SHAPE_TENSOR, encoded_image, encoded_video,
};

use crate::{Error, FormatOptions, Result};

/// What the files in a column of bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Image,
    Video,
    /// Sounds have no mark: a decoder is chosen when they are read.
    Sound,
}

impl Media {
    /// Returns a nullable column of files.
    pub fn field(self, name: &str) -> Field {
        let bytes = Field::new(name, DataType::LargeBinary, true);
        match self {
            Self::Image => encoded_image::new_field(name, true),
            Self::Video => encoded_video::declared(&bytes).field,
            Self::Sound => bytes,
        }
    }
}

/// The options that say what the files of a column are, with the columns that they name.
pub(crate) fn named_media(options: &FormatOptions) -> impl Iterator<Item = (&'static str, Media, &str)> {
    let lists = [
        ("--image", Media::Image, &options.images),
        ("--video", Media::Video, &options.videos),
        ("--audio", Media::Sound, &options.audio),
    ];
    lists.into_iter().flat_map(|(option, media, names)| names.iter().map(move |name| (option, media, name.as_str())))
}

/// Returns what the options say about a column.
///
/// # Errors
/// [`Error::InvalidOption`] if two options name it.
pub(crate) fn media_of(options: &FormatOptions, column: &str) -> Result<Option<Media>> {
    let mut found: Option<(&str, Media)> = None;
    for (option, media, _) in named_media(options).filter(|(_, _, name)| *name == column) {
        if let Some((before, other)) = found
            && other != media
        {
            let reason = format!("column {column} is in {before} too");
            return Err(Error::InvalidOption { option: option.into(), reason });
        }
        found = Some((option, media));
    }
    Ok(found.map(|(_, media)| media))
}

/// Returns a column of tensors, whose rows are never null.
pub(crate) fn tensor(name: &str, element: DataType, shape: Vec<usize>) -> Field {
    TensorType { element, shape }.to_field(name)
}

/// Returns a column of arrays with shapes of their own: lists, or tensors of `num_dims` dimensions.
pub(crate) fn ragged(name: &str, element: DataType, num_dims: usize) -> Field {
    let list = DataType::List(Arc::new(Field::new("item", element, true)));
    if num_dims == 1 {
        return Field::new(name, list, true);
    }
    let size = Arc::new(Field::new("item", DataType::Int32, true));
    let sizes = DataType::FixedSizeList(size, i32::try_from(num_dims).unwrap_or(i32::MAX));
    let members = vec![Field::new("data", list, true), Field::new("shape", sizes, true)];
    let metadata = [
        (EXTENSION_NAME_KEY.to_string(), VARIABLE_SHAPE_TENSOR.to_string()),
        (EXTENSION_METADATA_KEY.to_string(), "{}".to_string()),
    ];
    Field::new(name, DataType::Struct(members.into()), true).with_metadata(metadata.into())
}
