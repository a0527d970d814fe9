//! Columns of videos of which the consumer decodes clips: where the table has indexes of the videos, only the compressed
//! frames of the clips are read and delivered.
//!
//! ```text
//! index of a video ──► frames of the clip ──► ranges of the file ──► ranges of the data file ──► bytes, checksums ──► value
//! start: column, draw                          ValueFiles: where the value lies                     ClipBytes
//! ```
//!
//! Neither the specification of a stream nor its order know about clips.

mod found_frames;
mod reads;
mod value_files;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::DataType;
use parking_lot::Mutex;
use stoker_chunks::ChunkScan;
use stoker_columns::video_index_of;
use stoker_lake::Table;
use stoker_types::{ColumnClip, Error as TypesError};
use stoker_video::{Start, VideoClip};

use crate::plan::PlanInner;
use crate::source::{ColumnPlan, SourcePlan};
use crate::{Result, StreamPlan};

pub(crate) use reads::read_clips;
use value_files::ValueFiles;

/// The columns of a stream of which clips are read, and what is known about them. Clones share what is known.
#[derive(Clone, Default)]
pub(crate) struct StreamClips {
    columns: Vec<ClipColumn>,
    files: Arc<ValueFiles>,
    /// The bytes that clips take of a row, by the columns.
    estimates: Arc<Mutex<HashMap<String, u64>>>,
}

/// The clips of one column.
#[derive(Clone, Debug)]
pub(crate) struct ClipColumn {
    /// The index of the column in the stream.
    pub column: usize,
    /// Its name, of which the draws of random starts are made.
    pub name: String,
    /// Which frames are decoded.
    pub clip: VideoClip,
    /// The indices of the columns that choose the frames, those of [`VideoClip::columns`].
    pub chosen_by: Vec<usize>,
}

impl ClipColumn {
    /// Whether a row has the same frames in every epoch, on every rank and in every job.
    pub fn has_fixed_frames(&self) -> bool {
        self.clip.start != Start::Random
    }
}

impl StreamClips {
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Whether clips are read of a column.
    pub fn has(&self, column: usize) -> bool {
        self.columns.iter().any(|clip| clip.column == column)
    }

    pub fn columns(&self) -> &[ClipColumn] {
        &self.columns
    }

    /// Returns the largest number of bytes that a row takes, as far as clips are known.
    fn row_bytes(&self, sources: &[SourcePlan]) -> u64 {
        let of_clips = self.estimates.lock().get(&self.key()).copied().unwrap_or(0);
        let others = |source: &SourcePlan| {
            let bytes = source.column_bytes.iter().enumerate().filter(|(column, _)| !self.has(*column));
            bytes.map(|(_, bytes)| *bytes).sum::<u64>()
        };
        sources.iter().map(others).max().unwrap_or(0).saturating_add(of_clips).max(1)
    }

    fn key(&self) -> String {
        format!("{:?}", self.columns)
    }
}

impl StreamPlan {
    /// Returns the same stream for a consumer that decodes these clips. The values of a column whose field names an index
    /// of its videos are then [`stoker_video::ClipBytes`] or, where the frames of a file cannot be read alone, files. Other
    /// columns stay as they are, and so do rows, order and stream id.
    ///
    /// # Errors
    /// `InvalidValue` for clips that are not valid.
    pub fn with_clips(&self, clips: &[ColumnClip]) -> Result<Self> {
        let mut columns: Vec<ClipColumn> = Vec::new();
        for clip in clips {
            let invalid = |reason: String| TypesError::InvalidValue { what: "clips", reason };
            let chosen = VideoClip::choosing(clip).map_err(|error| invalid(error.to_string()))?;
            if columns.iter().any(|other| other.name == clip.column) {
                return Err(invalid(format!("column {} has two clips", clip.column)).into());
            }
            columns.extend(self.clip_column(clip, chosen));
        }
        if columns.is_empty() {
            return Ok(self.clone());
        }
        let StreamClips { files, estimates, .. } = self.inner.clips.clone();
        let clips = StreamClips { columns, files, estimates };
        let row_bytes = clips.row_bytes(&self.inner.sources);
        Ok(self.with(PlanInner { clips, row_bytes, ..self.parts() }))
    }

    /// Decides how the clips of a column are read. `None` if its values are read as a whole.
    fn clip_column(&self, clip: &ColumnClip, chosen: VideoClip) -> Option<ClipColumn> {
        let (schema, sources) = (self.schema(), &self.inner.sources);
        let column = schema.index_of(&clip.column).ok()?;
        let number = |name: &str| {
            let index = schema.index_of(name).ok()?;
            let found = schema.field(index).data_type();
            Some(index).filter(|_| found.is_integer() || found.is_floating())
        };
        let chosen_by = chosen.columns().into_iter().map(number).collect::<Option<Vec<_>>>()?;
        let is_indexed = |source: &SourcePlan| match &source.columns[column] {
            ColumnPlan::Table { sources } => {
                let tables = source.row_set.sources();
                source.epoch.pack().is_none()
                    && sources.iter().all(|(table, name)| index_of(&tables[*table], name).is_some())
            }
            ColumnPlan::Dense { .. } | ColumnPlan::RowSet { .. } | ColumnPlan::Packed => false,
        };
        let is_read = *schema.field(column).data_type() == DataType::LargeBinary && sources.iter().all(is_indexed);
        is_read.then(|| ClipColumn { column, name: clip.column.clone(), clip: chosen, chosen_by })
    }

    /// Returns this plan with the bytes that its rows take with clips, by a sample of the rows.
    pub(crate) async fn estimated(&self, scan: &ChunkScan) -> Self {
        let clips = &self.inner.clips;
        if clips.is_empty() {
            return self.clone();
        }
        let key = clips.key();
        let known = clips.estimates.lock().contains_key(&key);
        if !known {
            let mut bytes = 0;
            for source in self.inner.sources.iter() {
                let mut of_source = 0u64;
                for clip in &clips.columns {
                    let sampled = reads::sampled_bytes(source, clip, scan).await.unwrap_or_else(|error| {
                        tracing::debug!(%error, column = clip.name, "rows are taken to be as large as whole files");
                        None
                    });
                    of_source = of_source.saturating_add(sampled.unwrap_or(source.column_bytes[clip.column]));
                }
                bytes = bytes.max(of_source);
            }
            clips.estimates.lock().insert(key, bytes);
        }
        self.with(PlanInner { row_bytes: clips.row_bytes(&self.inner.sources), ..self.parts() })
    }
}

/// Returns the name of the column with the indexes of a column of videos, if the table has it.
fn index_of(table: &Table, column: &str) -> Option<String> {
    let schema = table.schema();
    let index = video_index_of(schema.field_with_name(column).ok()?)?;
    let field = schema.field_with_name(index).ok()?;
    (*field.data_type() == DataType::LargeBinary).then(|| index.to_string())
}
