//! The column of the indexes of videos.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::LargeBinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_video::CheckedIndex;

use super::{named, no_video, video_index_of, video_of, with_video_index};
use crate::kind::of_type;
use crate::{ColumnKind, Mismatch, NumpyShape, Storage, VIDEO_KEY};

/// The kind of indexes of videos.
pub struct VideoIndexes;

impl ColumnKind for VideoIndexes {
    fn name(&self) -> &'static str {
        "video_index"
    }

    fn holds(&self, field: &Field) -> bool {
        video_of(field).is_some() && *field.data_type() == DataType::LargeBinary
    }

    fn label(&self, field: &Field) -> String {
        format!("frames of the videos in {}", video_of(field).unwrap_or_default())
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        of_type(field).numpy(field)
    }

    fn treated_as(&self, field: &Field) -> Option<&'static dyn ColumnKind> {
        Some(of_type(field))
    }

    /// An index has some bytes per frame, and is read without the videos.
    fn is_heavy(&self, _field: &Field) -> bool {
        false
    }

    fn storage(&self, field: &Field) -> Storage {
        Storage { compression: Some("none"), ..of_type(field).storage(field) }
    }
}

/// Returns the schema with a column of indexes for each column of videos that names one.
///
/// # Errors
/// What is wrong with a column, as text for users.
pub fn with_index_columns(schema: &SchemaRef) -> Result<SchemaRef, String> {
    if !schema.fields().iter().any(|field| video_index_of(field).is_some()) {
        return Ok(schema.clone());
    }
    let mut fields: Vec<Arc<Field>> = schema.fields().to_vec();
    // The column of indexes of each column of videos, by its name.
    let mut taken: HashMap<String, String> = HashMap::new();
    for number in 0..schema.fields().len() {
        let field = fields[number].clone();
        let Some(index) = video_index_of(&field) else { continue };
        if *field.data_type() != DataType::LargeBinary {
            let reason = "only columns of LargeBinary values have indexes of videos";
            return Err(format!("column {} is {}; {reason}", field.name(), field.data_type()));
        }
        // A query may have the same column twice, under different names.
        let video = if taken.contains_key(index) { with_video_index(&field) } else { named(&field, index.into()) };
        let index = video_index_of(&video).unwrap_or_default().to_string();
        fields[number] = Arc::new(video);
        let metadata = HashMap::from([(VIDEO_KEY.to_string(), field.name().clone())]);
        let of_videos = Arc::new(Field::new(&index, DataType::LargeBinary, true).with_metadata(metadata));
        match fields.iter().position(|other| *other.name() == index) {
            None => fields.push(of_videos),
            Some(at) if video_of(&fields[at]).is_some() && !taken.contains_key(&index) => fields[at] = of_videos,
            Some(_) => {
                let reason = "but there is another column of this name; rename it";
                return Err(format!("column {} has the index of its videos in {index}, {reason}", field.name()));
            }
        }
        taken.insert(index, field.name().clone());
    }
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

/// Returns the columns of indexes of a schema whose columns of videos it has too: the names of both, the index first.
pub fn index_columns(schema: &Schema) -> impl Iterator<Item = (&str, &str)> {
    schema.fields().iter().filter_map(|field| {
        let video = schema.field_with_name(video_of(field)?).ok()?;
        (video_index_of(video) == Some(field.name().as_str())).then_some((field.name().as_str(), video.name().as_str()))
    })
}

/// Returns the indexes of a column of videos, with checksums of their frames. They are computed from the files, whatever
/// indexes there were.
///
/// # Errors
/// The first file that is no video.
pub fn video_indexes(batch: &RecordBatch, video: &str) -> Result<ArrayRef, Mismatch> {
    let files = batch.column_by_name(video).and_then(|files| files.as_binary_opt::<i64>());
    let Some(files) = files else {
        return Err(Mismatch::new(None, "a column of LargeBinary values with videos", "none"));
    };
    let mut indexes = LargeBinaryBuilder::with_capacity(files.len(), 0);
    for (row, file) in files.iter().enumerate() {
        match file {
            None => indexes.append_null(),
            Some(file) => {
                let index = CheckedIndex::read(file).map_err(|bad| no_video(row, file, &bad))?;
                indexes.append_value(index.to_bytes());
            }
        }
    }
    Ok(Arc::new(indexes.finish()))
}
