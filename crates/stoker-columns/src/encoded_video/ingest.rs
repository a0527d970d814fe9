//! Encoded videos from binary values, and from structs with the field `bytes`.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_schema::{DataType, Field};
use stoker_video::VideoIndex;

use super::{no_video, with_video_index};
use crate::ingest::Conversion;
use crate::{Ingest, Mismatch, encoded_image};

/// How a column of binary values, or of structs with the field `bytes`, becomes a column of videos with indexes.
pub fn declared(field: &Field) -> Ingest {
    let video = with_video_index(&Field::new(field.name(), DataType::LargeBinary, field.is_nullable()));
    Ingest::new(video, FromVideos(encoded_image::declared(field).conversion))
}

/// The bytes of files, which must be videos.
#[derive(Clone, Debug)]
struct FromVideos(Arc<dyn Conversion>);

impl Conversion for FromVideos {
    fn accepts(&self, field: &Field, found: &DataType) -> bool {
        self.0.accepts(field, found)
    }

    fn expected(&self, field: &Field) -> String {
        self.0.expected(field)
    }

    fn keeps_nulls(&self) -> bool {
        self.0.keeps_nulls()
    }

    fn convert(&self, field: &Field, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let files = self.0.convert(field, array)?;
        let rows = files.as_binary_opt::<i64>().into_iter().flat_map(|files| files.iter().enumerate());
        for (row, file) in rows.filter_map(|(row, file)| Some((row, file?))) {
            VideoIndex::read(file).map_err(|bad| no_video(row, file, &bad))?;
        }
        Ok(files)
    }
}
