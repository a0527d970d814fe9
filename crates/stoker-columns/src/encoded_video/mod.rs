//! Encoded videos: MP4, MOV, Matroska or WebM files as they are, with an index of the frames of each file in a column beside
//! them, so that streams read only the frames of a clip.
//!
//! The metadata [`VIDEO_INDEX_KEY`] of a LargeBinary column names the column of the indexes, whose metadata [`VIDEO_KEY`]
//! names the column of the videos. Writers compute the indexes.

mod index;
mod ingest;

use arrow_schema::{DataType, Field};
use stoker_video::BadVideo;

pub use index::{VideoIndexes, index_columns, video_indexes, with_index_columns};
pub use ingest::declared;

use crate::kind::of_type;
use crate::{ColumnKind, Mismatch, NumpyShape, Storage, VIDEO_INDEX_KEY, VIDEO_KEY};

/// The kind of encoded videos that have indexes.
pub struct EncodedVideo;

/// Returns the name of the column with the indexes of a column of videos.
pub fn video_index_of(field: &Field) -> Option<&str> {
    field.metadata().get(VIDEO_INDEX_KEY).map(String::as_str)
}

/// Returns the name of the column with the videos of a column of indexes.
pub fn video_of(field: &Field) -> Option<&str> {
    field.metadata().get(VIDEO_KEY).map(String::as_str)
}

/// Returns a column of videos that is to get indexes, in a column with its name and `_index`.
pub fn with_video_index(field: &Field) -> Field {
    named(field, format!("{}_index", field.name()))
}

fn named(field: &Field, index: String) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(VIDEO_INDEX_KEY.into(), index);
    field.clone().with_metadata(metadata)
}

/// The error of a file of which no index can be made.
fn no_video(row: usize, file: &[u8], bad: &BadVideo) -> Mismatch {
    let found = format!("{} bytes without one: {}", file.len(), bad.reason);
    Mismatch::new(Some(row), "a file with an index of its frames", found)
}

impl ColumnKind for EncodedVideo {
    fn name(&self) -> &'static str {
        "encoded_video"
    }

    fn holds(&self, field: &Field) -> bool {
        video_index_of(field).is_some() && *field.data_type() == DataType::LargeBinary
    }

    fn label(&self, field: &Field) -> String {
        format!("encoded video, frames in {}", video_index_of(field).unwrap_or_default())
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        of_type(field).numpy(field)
    }

    fn treated_as(&self, field: &Field) -> Option<&'static dyn ColumnKind> {
        Some(of_type(field))
    }

    /// Video files are compressed already, and the bytes of a frame are to be found in the data file.
    fn storage(&self, field: &Field) -> Storage {
        Storage { compression: Some("none"), ..of_type(field).storage(field) }
    }
}
