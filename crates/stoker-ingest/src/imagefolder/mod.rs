//! Ingests folders of images.

mod decode;
mod inspect;
mod listing;
mod rows;
mod splits;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use stoker_lake::{LakeStore, TableWriter};
use stoker_types::{DigestBuilder, TableName};
use tokio::task::JoinHandle;

use crate::compress::{DICTIONARY_ROWS_BYTES, small_columns, with_dictionaries_of, written_schema};
use crate::job::{Job, Size, Source, Units, Written, blocking, catch_panic, existing};
use crate::labels::check_labels;
use crate::place::shown;
use crate::source_file::SourceFile;
use crate::{Channels, Error, ImageFolderOptions, Images, IngestReport, Mode, Progress, Result, Skipped};
use decode::{Failure, Header, Target, header};
pub use inspect::inspect_imagefolder;
pub(crate) use listing::EXTENSIONS as IMAGE_ENDINGS;
use listing::{ImageFile, Listing};
use rows::{RowBuilder, Rows};

/// Bytes of rows in a group. While one group is written, the next one is decoded.
const GROUP_BYTES: u64 = 64 << 20;

/// Writes a folder of images into a table: `DIR/CLASS/*` or `DIR/SPLIT/CLASS/*`, according to
/// [`ImageFolderOptions::splits`]. PNG, JPEG and WebP files are found by their endings, at any depth below a class
/// folder. Their content, not the ending, decides how they are decoded.
///
/// The table gets one row per image, sorted by path. No column is nullable:
///
/// - `image`: fixed-shape tensor of uint8, or the bytes of the file (LargeBinary), according to
///   [`ImageFolderOptions::images`]
/// - `image_bytes`: the bytes of the file, when both are stored
/// - `label`: int64, the index of the class in [`ImageFolderOptions::classes`], or else in the sorted names of the
///   class folders
/// - `label_name`: the class; `path`: the path below `dir`, with `/`; `split`: the split, or `all` without splits
///
/// Orientation tags are not applied; 16-bit images are scaled to 8 bits. Dropping the future ends the ingest like a
/// kill: the same call continues after the last finished unit.
///
/// # Errors
/// [`Error::AlreadyExists`] in [`Mode::Create`]; [`Error::Layout`] and [`Error::Empty`] for folders without the
/// expected layout; [`Error::Unreadable`] unless unreadable files are skipped; [`Error::Changed`] when a file is
/// changed or removed meanwhile; [`Error::Mismatch`] for images of different sizes without
/// [`ImageFolderOptions::size`]; [`Error::InvalidOption`]; [`Error::Stopped`]; errors of the lake. The table does not
/// change, except when storage failed after the commit.
pub async fn ingest_imagefolder(
    lake: &LakeStore,
    dir: &Path,
    table: &TableName,
    options: &ImageFolderOptions,
    progress: &dyn Progress,
) -> Result<IngestReport> {
    let builder = {
        let (dir, options) = (dir.to_path_buf(), options.clone());
        blocking("listing images", move || plan(&dir, &options)).await?
    };
    let appended_to = match options.mode {
        Mode::Append => existing(lake, table).await?,
        Mode::Create | Mode::Overwrite => None,
    };
    if let Some(table) = &appended_to {
        let refuse = |difference: &str, known: &str| {
            let order = "give the classes in the order of their labels, beginning with those of the table";
            Error::option("--classes", format!("{difference}; {order}: {known}"))
        };
        check_labels(table, &builder.listing.classes, refuse).await?;
    }
    let appended_to = appended_to.map(|table| table.schema());
    let schema = written_schema(&builder.schema(), &options.compress, appended_to.as_deref())?;
    let mut digest = DigestBuilder::new("stoker ingest imagefolder 1").part(table.as_str().as_bytes());
    let json = serde_json::to_vec(options).map_err(|source| Error::internal("describing the ingest", source))?;
    digest.update(&json);
    builder.listing.add_to(&mut digest);
    let builder = Arc::new(builder);
    let schema = match appended_to.is_none() && !small_columns(&schema).is_empty() {
        true => with_dictionary(schema, &builder).await?,
        false => schema,
    };
    let root = shown(dir);
    let job = Job {
        lake,
        table,
        schema,
        sizes: options.sizes,
        mode: options.mode,
        on_error: options.on_error,
        again: options.again,
        digest,
        left_out: builder.listing.left_out.clone(),
        root: &root,
        progress,
    };
    let skipped = builder.listing.skipped.clone();
    job.run(&ImageSource { builder, unit_bytes: options.unit_bytes }, skipped).await
}

/// Returns the schema with a dictionary for small images, which is made of images from all over the folder: neighbours are of
/// one class. There is none if some of them cannot be read and are not skipped; the ingest says why then.
async fn with_dictionary(schema: SchemaRef, builder: &Arc<RowBuilder>) -> Result<SchemaRef> {
    let row_bytes = builder.target.map_or(0, |target| target.row_bytes()).max(1);
    let num_files = builder.listing.files.len();
    let step = num_files.div_ceil((DICTIONARY_ROWS_BYTES / row_bytes).max(1)).max(1);
    let chosen: Vec<usize> = (0..num_files).step_by(step).collect();
    let builder = builder.clone();
    let decode = move || Ok(builder.only(&chosen).rows(0..chosen.len()).map(|rows| rows.batch).ok());
    let rows = blocking("decoding the first images", decode).await?;
    Ok(rows.map_or(schema.clone(), |rows| with_dictionaries_of(&schema, &rows)))
}

/// Lists the folder and chooses the shape of the tensors.
fn plan(dir: &Path, options: &ImageFolderOptions) -> Result<RowBuilder> {
    let mut builder = RowBuilder {
        listing: Listing::read(dir, options)?,
        images: options.images,
        target: None,
        verify: options.verify,
        image_bytes_max: options.image_bytes_max,
        on_error: options.on_error,
    };
    if options.images == Images::Encoded {
        return Ok(builder);
    }
    let first = match (options.size, options.channels) {
        (Some(size), Channels::Rgb | Channels::Gray) => Header { size, has_color: true },
        _ => first_header(dir, &builder, options)?,
    };
    let only_gray = options.channels == Channels::Auto && !first.has_color;
    let target = Target {
        size: options.size.unwrap_or(first.size),
        resize: options.size.is_some(),
        channels: if only_gray || options.channels == Channels::Gray { 1 } else { 3 },
        only_gray,
        layout: options.layout,
    };
    if target.row_bytes() as u64 > options.image_bytes_max.min(i32::MAX as u64) {
        let reason =
            format!("a tensor of {} bytes is over the limit of {}", target.row_bytes(), options.image_bytes_max);
        return Err(Error::option("--size", reason));
    }
    builder.target = Some(target);
    Ok(builder)
}

/// Reads the header of the first image. Unreadable images are passed over if such files are skipped.
fn first_header(dir: &Path, builder: &RowBuilder, options: &ImageFolderOptions) -> Result<Header> {
    let mut first_skipped: Option<Skipped> = None;
    for file in &builder.listing.files {
        let read = |bytes: Vec<u8>| catch_panic(|| header(&bytes, options.image_bytes_max), Failure::Unreadable);
        match builder.file(file).and_then(read) {
            Ok(header) => return Ok(header),
            Err(failure) => {
                let skipped = builder.skip(file, failure)?;
                first_skipped.get_or_insert(skipped);
            }
        }
    }
    let example = first_skipped.map(|skipped| format!("; {}: {}", skipped.path, skipped.reason));
    let reason = format!("none of the images is readable{}", example.unwrap_or_default());
    Err(Error::Empty { path: dir.to_path_buf(), reason })
}

/// Divides the files into ranges of about `unit_bytes` each.
fn units(listing: &Listing, unit_bytes: u64) -> Vec<Range<usize>> {
    ranges(0..listing.files.len(), unit_bytes, |index| listing.files[index].stamp.bytes)
}

/// Divides a range so that each part ends where its sum of bytes reaches `limit`.
fn ranges(all: Range<usize>, limit: u64, bytes: impl Fn(usize) -> u64) -> Vec<Range<usize>> {
    let (mut ranges, mut start, mut sum) = (Vec::new(), all.start, 0);
    for index in all.clone() {
        sum += bytes(index);
        if sum >= limit || index + 1 == all.end {
            ranges.push(start..index + 1);
            (start, sum) = (index + 1, 0);
        }
    }
    ranges
}

struct ImageSource {
    builder: Arc<RowBuilder>,
    unit_bytes: u64,
}

impl Source for ImageSource {
    type Units = ImageUnits;

    fn files(&self) -> Vec<SourceFile> {
        let listing = &self.builder.listing;
        let file = |file: &ImageFile| {
            let path = listing.path(file);
            let absolute = path.to_string_lossy().into_owned();
            let (name, stamp, place) = (file.relative.clone(), file.stamp.clone(), listing.place.clone());
            SourceFile { name, path, absolute, stamp, place, parts: 1 }
        };
        listing.files.iter().map(file).collect()
    }

    fn units(&self, files: &[usize]) -> ImageUnits {
        let builder = match files.len() == self.builder.listing.files.len() {
            true => self.builder.clone(),
            false => Arc::new(self.builder.only(files)),
        };
        ImageUnits { units: units(&builder.listing, self.unit_bytes), builder }
    }
}

struct ImageUnits {
    builder: Arc<RowBuilder>,
    units: Vec<Range<usize>>,
}

impl Units for ImageUnits {
    fn sizes(&self) -> Vec<Size> {
        let files = &self.builder.listing.files;
        let size = |unit: &Range<usize>| Size {
            files: unit.len() as u64,
            bytes: files[unit.clone()].iter().map(|file| file.stamp.bytes).sum(),
        };
        self.units.iter().map(size).collect()
    }

    fn files(&self, unit: usize) -> Range<usize> {
        self.units[unit].clone()
    }

    async fn write(&self, job: &Job<'_>, unit: usize) -> Result<Option<Written>> {
        let mut writer = job.writer().await?;
        match self.write_groups(job, self.units[unit].clone(), &mut writer).await {
            Ok(Some((rows, skipped))) => Ok(Some(Written { fragments: writer.finish().await?, rows, skipped })),
            stopped_or_failed => {
                writer.abort().await;
                stopped_or_failed.map(|_| None)
            }
        }
    }
}

impl ImageUnits {
    async fn write_groups(
        &self,
        job: &Job<'_>,
        unit: Range<usize>,
        writer: &mut TableWriter,
    ) -> Result<Option<(u64, Vec<Skipped>)>> {
        let files = &self.builder.listing.files;
        let mut groups =
            ranges(unit, GROUP_BYTES, |index| self.builder.row_bytes(&files[index])).into_iter().peekable();
        let (mut rows, mut skipped) = (0, Vec::new());
        // While a group is decoded, the files of the one after it are fetched.
        let fetch = |group: Option<&Range<usize>>| self.builder.listing.fetch_ahead(&files[group?.clone()]);
        let mut next = groups.next().map(|group| (group.clone(), self.decode(group), None));
        let mut ahead = fetch(groups.peek());
        while let Some((group, decoding, fetching)) = next {
            if job.progress.should_stop() {
                return Ok(None);
            }
            let decoded = decoding.await.map_err(|source| Error::internal("decoding images", source))??;
            drop(fetching);
            next = groups.next().map(|group| (group.clone(), self.decode(group), ahead.take()));
            ahead = fetch(groups.peek());
            if decoded.batch.num_rows() > 0 {
                writer.write(&decoded.batch).await?;
            }
            let group_rows = decoded.batch.num_rows() as u64;
            let bytes = files[group.clone()].iter().map(|file| file.stamp.bytes).sum();
            job.progress.advance(group.len() as u64, group_rows, bytes);
            if !decoded.skipped.is_empty() {
                job.progress.skipped(decoded.skipped.len() as u64);
            }
            rows += group_rows;
            skipped.extend(decoded.skipped);
        }
        Ok(Some((rows, skipped)))
    }

    fn decode(&self, group: Range<usize>) -> JoinHandle<Result<Rows>> {
        let builder = self.builder.clone();
        tokio::task::spawn_blocking(move || builder.rows(group))
    }
}
