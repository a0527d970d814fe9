//! Reads what the footers of a table's data files say about its columns.

use std::sync::Arc;

use arrow_schema::Field;
use futures::{StreamExt, TryStreamExt, stream};
use lance::dataset::fragment::FileFragment;
use lance_encoding::decoder::PageEncoding;
use lance_encoding::format::metadata::{
    CompressiveEncoding, RepDefLayer, compressive_encoding::Compression, page_layout::Layout,
};
use lance_file::reader::CachedFileMetadata;
use lance_io::scheduler::ScanScheduler;
use stoker_columns::{fixed_row_bytes, is_blob};
use stoker_store::sectors::is_checked_name;
use stoker_types::to_usize;

use crate::blobs::Descriptors;
use crate::dense::{FOOTERS_IN_FLIGHT, FoundFile, RowRun, dense_row_bytes, runs};
use crate::row_id_set::fragment_id;
use crate::{Error, Obstacle, Result, Table};

/// The name of encodings with a general-purpose codec.
const GENERAL: &str = "general";

/// The largest gap between two pages that one read covers on a local disk; a larger gap splits the read. In bytes.
const GAP_BYTES: u64 = 8 << 10;

/// The most fragments, and the most rows in each, whose descriptors tell how large the values of a blob column are.
const SAMPLED: u64 = 16;

/// What the footers of its files say about one column of a table.
#[derive(Clone, Debug)]
pub struct ColumnSurvey {
    /// The number of chunks (Lance pages) in all fragments.
    pub num_chunks: u64,
    /// The size of the largest chunk, in bytes.
    pub chunk_bytes_max: u64,
    /// The size of all chunks, in bytes.
    pub bytes: u64,
    /// The bytes per row: those of the column's type if all of its values have one size, and otherwise the stored bytes
    /// divided by the rows that were not deleted. Those of blobs are estimated from descriptors. `None` if the size varies
    /// and the table has no rows.
    pub bytes_per_row: Option<u64>,
    /// The number of contiguous pieces of plain bytes: adjacent chunks are one piece.
    pub num_pieces: u64,
    /// The names of the encodings, without duplicates.
    pub encodings: Vec<String>,
    /// The obstacles to reading the column's files as plain bytes, without duplicates. An obstacle of the column's type
    /// is not among them.
    pub obstacles: Vec<(Obstacle, FragmentTally)>,
    /// The fragments whose files have no checksums for the column's values.
    pub unchecked: FragmentTally,
    /// The largest number of other columns in one file of the column.
    pub neighbours_max: usize,
    /// Whether some rows are null, deleted rows included; `None` where a file does not say it.
    pub has_nulls: Option<bool>,
    /// Bytes per row if the column's type allows plain bytes.
    row_bytes: Result<u64, Obstacle>,
}

/// How many fragments have something in common, and which of them is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentTally {
    /// The number of fragments.
    pub count: usize,
    /// The id of the first fragment; `None` if there is none.
    pub first: Option<u32>,
    /// The id of the last fragment.
    last: Option<u32>,
}

impl FragmentTally {
    /// Counts a fragment once. The ids must be added in the order of the fragments.
    fn add(&mut self, id: u32) {
        if self.last == Some(id) {
            return;
        }
        self.count += 1;
        self.first.get_or_insert(id);
        self.last = Some(id);
    }
}

impl Table {
    /// Reads the footers of all data files that hold a column.
    ///
    /// # Errors
    /// An unknown column; `DataCorrupt` for unreadable footers; storage errors.
    pub async fn survey(&self, column: &str) -> Result<ColumnSurvey> {
        self.check_columns([&column.to_string()])?;
        let schema = self.schema();
        let field = schema.field_with_name(column).map_err(|source| Error::storage("reading a schema", source))?;
        let mut survey = ColumnSurvey::new(field);
        let scheduler = self.footer_scheduler();
        let mut fragments = stream::iter(self.dataset().get_fragments())
            .map(|fragment| {
                let scheduler = scheduler.clone();
                async move {
                    let files = self.column_files(&scheduler, &fragment, column).await?;
                    Ok::<_, Error>((fragment_id(fragment.id() as u64), files))
                }
            })
            .buffered(FOOTERS_IN_FLIGHT);
        while let Some((id, files)) = fragments.try_next().await? {
            for file in files {
                match file {
                    Ok((file, metadata, index)) => {
                        let reader = self.store_reader(&file, metadata.file_size_bytes);
                        let has_row_checksums = self.file_checksums(column, &file, &metadata, reader)?.is_some();
                        let is_checked = is_checked_name(&file.path);
                        if !has_row_checksums && !is_checked {
                            survey.unchecked.add(id);
                        }
                        survey.add(id, &metadata, index);
                        if is_checked && !has_row_checksums && survey.obstacle().is_none() {
                            survey.add_obstacle(id, Obstacle::Unchecked);
                        }
                    }
                    Err(obstacle) => {
                        if obstacle != Obstacle::NoFile {
                            survey.unchecked.add(id);
                        }
                        let is_missing = obstacle == Obstacle::NoFile;
                        survey.has_nulls = either(survey.has_nulls, is_missing.then_some(true));
                        survey.add_obstacle(id, obstacle);
                    }
                }
            }
        }
        let type_bytes = fixed_row_bytes(field.data_type()).map(|bytes| bytes as u64);
        survey.bytes_per_row = match is_blob(field) {
            true => self.blob_bytes_per_row(column).await?,
            false => type_bytes.or_else(|| survey.bytes.checked_div(self.num_rows())),
        };
        Ok(survey)
    }

    /// Returns the bytes per row of a column, as [`ColumnSurvey::bytes_per_row`] defines them. Reads the footers of the
    /// column's data files.
    ///
    /// # Errors
    /// Those of [`Table::survey`].
    pub async fn bytes_per_row(&self, column: &str) -> Result<Option<u64>> {
        if self.schema().field_with_name(column).is_ok_and(is_blob) {
            return self.blob_bytes_per_row(column).await;
        }
        Ok(self.survey(column).await?.bytes_per_row)
    }

    /// Returns the bytes per row of a blob column, estimated from the descriptors of some rows, spread over the table.
    /// `None` if the table has none of them.
    async fn blob_bytes_per_row(&self, column: &str) -> Result<Option<u64>> {
        let key = self.column_key(column);
        let cache = &self.lake().inner.blob_sizes;
        if let Some(known) = cache.get(&key) {
            return Ok(known);
        }
        let fragments: Vec<_> = self.fragments().into_iter().filter(|fragment| fragment.num_rows > 0).collect();
        let mut row_addrs: Vec<u64> = Vec::new();
        for index in spread(fragments.len() as u64) {
            let fragment = fragments[to_usize(index)];
            row_addrs.extend(spread(fragment.physical_rows).map(|row| (u64::from(fragment.id) << 32) | row));
        }
        row_addrs.sort_unstable();
        let batch = self.stored(&[column.to_string()], row_addrs).await?;
        let descriptors = batch.columns().first().and_then(Descriptors::of);
        let num_rows = batch.num_rows() as u64;
        let average = descriptors.filter(|_| num_rows > 0).map(|found| found.num_bytes().div_ceil(num_rows));
        cache.insert(key, average);
        Ok(average)
    }

    /// Returns the files that hold a column's values in a fragment. The values of lists and structs are in the files of
    /// their leaf fields.
    pub(crate) async fn column_files(
        &self,
        scheduler: &Arc<ScanScheduler>,
        fragment: &FileFragment,
        column: &str,
    ) -> Result<Vec<FoundFile>> {
        let found = self.column_file(scheduler, fragment, column).await?;
        let field = self.dataset().schema().fields.iter().find(|field| field.name == column);
        let Some(field) = field.filter(|field| found.is_err() && !field.children.is_empty()) else {
            return Ok(vec![found]);
        };
        let mut files = Vec::new();
        for leaf in leaves(field) {
            files.push(self.field_file(scheduler, fragment, leaf).await?);
        }
        Ok(files)
    }
}

impl ColumnSurvey {
    fn new(field: &Field) -> Self {
        Self {
            num_chunks: 0,
            chunk_bytes_max: 0,
            bytes: 0,
            bytes_per_row: None,
            num_pieces: 0,
            encodings: Vec::new(),
            obstacles: Vec::new(),
            unchecked: FragmentTally::default(),
            neighbours_max: 0,
            has_nulls: Some(false),
            row_bytes: dense_row_bytes(field),
        }
    }

    /// Returns why the column is not read as plain bytes; `None` if it is.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.row_bytes.err().or_else(|| self.obstacles.first().map(|(obstacle, _)| *obstacle))
    }

    /// Whether some values are compressed by a general-purpose codec, such as zstd or lz4.
    pub fn has_general_compression(&self) -> bool {
        self.encodings.iter().any(|encoding| encoding == GENERAL)
    }

    fn add(&mut self, fragment: u32, metadata: &CachedFileMetadata, index: usize) {
        let pages = &metadata.column_infos[index].page_infos;
        for page in pages.iter() {
            let bytes = page.buffer_offsets_and_sizes.iter().fold(0u64, |sum, (_, size)| sum.saturating_add(*size));
            self.num_chunks += 1;
            self.bytes = self.bytes.saturating_add(bytes);
            self.chunk_bytes_max = self.chunk_bytes_max.max(bytes);
            let encoding = encoding_name(&page.encoding);
            if !self.encodings.contains(&encoding) {
                self.encodings.push(encoding);
            }
            self.has_nulls = either(self.has_nulls, page_has_nulls(&page.encoding));
        }
        self.neighbours_max = self.neighbours_max.max(metadata.column_infos.len() - 1);
        let Ok(row_bytes) = self.row_bytes else { return };
        match runs(pages, metadata.num_rows, row_bytes) {
            Ok(runs) => self.num_pieces += num_pieces(&runs, row_bytes),
            Err(obstacle) => self.add_obstacle(fragment, obstacle),
        }
    }

    fn add_obstacle(&mut self, fragment: u32, obstacle: Obstacle) {
        match self.obstacles.iter_mut().find(|(known, _)| *known == obstacle) {
            Some((_, fragments)) => fragments.add(fragment),
            None => {
                let mut fragments = FragmentTally::default();
                fragments.add(fragment);
                self.obstacles.push((obstacle, fragments));
            }
        }
    }
}

/// Returns into how many contiguous pieces of a file runs of rows fall, if a read covers small gaps.
fn num_pieces(runs: &[RowRun], row_bytes: u64) -> u64 {
    let is_apart = |pair: &&[RowRun]| {
        let bytes = (pair[1].first_row - pair[0].first_row).saturating_mul(row_bytes);
        let end = pair[0].offset.saturating_add(bytes);
        pair[1].offset.checked_sub(end).is_none_or(|gap| gap > GAP_BYTES)
    };
    let breaks = runs.windows(2).filter(is_apart).count();
    if runs.is_empty() { 0 } else { breaks as u64 + 1 }
}

/// Returns up to [`SAMPLED`] of the numbers below `count`, evenly spread.
fn spread(count: u64) -> impl Iterator<Item = u64> {
    let sampled = count.min(SAMPLED);
    (0..sampled).map(move |index| index * (count / sampled.max(1)))
}

/// Returns the ids of the leaf fields, which have values of their own.
fn leaves(field: &lance_core::datatypes::Field) -> Vec<i32> {
    if field.children.is_empty() { vec![field.id] } else { field.children.iter().flat_map(leaves).collect() }
}

/// Whether one of two parts has nulls. A part that has some decides; then one that does not say it.
fn either(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), other) => other,
        (None, _) => None,
    }
}

/// Whether some rows of a page are null, or some values in them; `None` where its encoding does not say it.
fn page_has_nulls(encoding: &PageEncoding) -> Option<bool> {
    let PageEncoding::Structural(layout) = encoding else { return None };
    let (layers, values) = match layout.layout.as_ref()? {
        Layout::FullZipLayout(zip) => (&zip.layers, zip.value_compression.as_ref()),
        Layout::MiniBlockLayout(mini) => (&mini.layers, mini.value_compression.as_ref()),
        Layout::ConstantLayout(constant) => (&constant.layers, None),
        Layout::BlobLayout(blob) => (&blob.layers, None),
    };
    let nullable =
        [RepDefLayer::RepdefNullableItem, RepDefLayer::RepdefNullableList, RepDefLayer::RepdefNullAndEmptyList];
    let is_nullable = |layer: &i32| nullable.iter().any(|found| *found as i32 == *layer);
    Some(layers.iter().any(is_nullable) || values.is_some_and(has_null_items))
}

/// Whether the elements of fixed-size lists have a validity of their own.
fn has_null_items(encoding: &CompressiveEncoding) -> bool {
    match &encoding.compression {
        Some(Compression::FixedSizeList(list)) => {
            list.has_validity || list.values.as_deref().is_some_and(has_null_items)
        }
        _ => false,
    }
}

fn encoding_name(encoding: &PageEncoding) -> String {
    let PageEncoding::Structural(layout) = encoding else { return "other".into() };
    match &layout.layout {
        Some(Layout::FullZipLayout(zip)) => zip.value_compression.as_ref().map_or("none".into(), compression_name),
        Some(Layout::MiniBlockLayout(mini)) => {
            let values = mini.value_compression.as_ref().map_or("none".into(), compression_name);
            if mini.dictionary.is_some() { format!("dictionary of {values}") } else { values }
        }
        Some(Layout::ConstantLayout(_)) => "constant".into(),
        Some(Layout::BlobLayout(_)) => "blob".into(),
        None => "unknown".into(),
    }
}

fn compression_name(encoding: &CompressiveEncoding) -> String {
    match &encoding.compression {
        Some(Compression::Flat(flat)) => if flat.data.is_some() { GENERAL } else { "none" }.into(),
        Some(Compression::FixedSizeList(list)) => list.values.as_deref().map_or("none".into(), compression_name),
        Some(Compression::Variable(variable)) => variable.values.as_ref().map_or("none", |_| GENERAL).into(),
        Some(Compression::Fsst(_)) => "fsst".into(),
        Some(Compression::Rle(_)) => "run length".into(),
        Some(Compression::InlineBitpacking(_) | Compression::OutOfLineBitpacking(_)) => "bit packing".into(),
        Some(Compression::Constant(_)) => "constant".into(),
        Some(Compression::General(_)) => GENERAL.into(),
        Some(_) => "other".into(),
        None => "none".into(),
    }
}
