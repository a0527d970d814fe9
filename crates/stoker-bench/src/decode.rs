//! `stoker bench decode`: decodes JPEG files to tensors, and compares the rate with the decoder's own.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use arrow_array::{Int64Array, LargeBinaryArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};
use stoker::{ColumnDecoder, ConnectOptions, DecodeOptions, StreamHandle, connect};
use stoker_columns::HEAVY_KEY;
use stoker_decode::{BatchDecoder, ImageDecoder, ImageTransform, RowMemory, decode_jpeg_alone};
use stoker_lake::{CommitMode, LakeStore, StorageOptions, WriteOptions};
use stoker_measure::process_use;
use stoker_types::{
    BatchSize, Batching, LastBatch, ReadOptions, ShuffleMode, Slice, SnapshotRef, StreamOptions, TableName, Topology,
    to_usize,
};

use crate::raw::{pass, threads};
use crate::report::{Measurement, Role, Section, Turn};
use crate::settings::Settings;
use crate::turns;

/// The width and the height of an image in pixels.
const SIDE: u32 = 256;

/// The number of different files, which the rows repeat.
const FILES: u64 = 256;

/// The JPEG quality of the files, of 100.
const QUALITY: u8 = 90;

const TABLE: &str = "jpegs";
const COLUMN: &str = "image";

/// The share of the decoder's own rate that decoding to tensors should reach.
const BAR: f64 = 0.90;

/// The number of bytes of a tensor.
const ROW_BYTES: u64 = 3 * SIDE as u64 * SIDE as u64;

/// JPEG files in memory, in batches, and the number of threads that decode them.
struct Files {
    batches: Vec<LargeBinaryArray>,
    num_rows: u64,
    threads: usize,
}

/// Measures the decoder, batches in memory and a stream of a local table, alternately.
pub async fn measure(settings: &Settings, lake: &Path) -> anyhow::Result<Section> {
    let num_rows = settings.jpeg_rows;
    eprintln!("making {} JPEG files of {SIDE}×{SIDE} pixels", num_rows.min(FILES));
    let made =
        (0..num_rows.min(FILES)).map(|number| file(u32::try_from(number)?)).collect::<anyhow::Result<Vec<_>>>()?;
    let of_row = |row: u64| made[(row % FILES) as usize].as_slice();
    let starts = (0..num_rows).step_by(usize::try_from(settings.batch_size)?);
    let batch =
        |start: u64| LargeBinaryArray::from_iter_values((start..num_rows.min(start + settings.batch_size)).map(of_row));
    let files = Files { batches: starts.map(batch).collect(), num_rows, threads: threads() };
    let bytes_each = made.iter().map(Vec::len).sum::<usize>() / made.len().max(1);
    let row = format!("JPEG, {SIDE}×{SIDE} pixels in {bytes_each} bytes");
    let stream = stream(lake, &files).await?;
    let mut section = Section::of_rows("decoding", settings, (TABLE, &row, num_rows));
    for turn in turns("decoding".into(), settings) {
        section.begin(turn);
        section.measure("JPEG decoder alone", Role::Ceiling, || files.decoder_alone(settings.epochs))?;
        section.measure("tensors, from memory", Role::Path { bar: Some(BAR) }, || files.tensors(settings.epochs))?;
        if turn == Turn::Measured {
            let streamed = files.streamed(&stream, settings).await?;
            section.add("tensors, in a block-shuffled stream", Role::Path { bar: None }, streamed);
        }
    }
    section.note(format!(
        "Decoder alone: zune-jpeg on ready bytes in memory, into a reused buffer for each of {} threads; MB/s: of pixels. From \
         memory: batches to uint8[3,{SIDE},{SIDE}]. Stream: the same from a local table, in process.",
        files.threads
    ));
    Ok(section)
}

impl Files {
    /// Decodes all files in each pass, and discards the pixels.
    fn decoder_alone(&self, epochs: u64) -> anyhow::Result<Measurement> {
        let files: Vec<&[u8]> = self.batches.iter().flat_map(|batch| batch.iter().flatten()).collect();
        let mut pixels = vec![vec![vec![0u8; to_usize(ROW_BYTES)]]; self.threads];
        let decode = |index: usize, pixels: &mut [u8]| {
            decode_jpeg_alone(files[index], pixels).map_err(|bad| io::Error::other(bad.to_string()))?;
            Ok(ROW_BYTES)
        };
        self.passes(epochs, || pass(&mut pixels, 0..files.len(), &decode).map(drop))
    }

    /// Decodes all batches in each pass, into the same memory.
    fn tensors(&self, epochs: u64) -> anyhow::Result<Measurement> {
        let decoder = BatchDecoder::try_new(Box::new(ImageDecoder::new(transform())), self.threads)?;
        let rows_max = self.batches.iter().map(|batch| batch.iter().len()).max().unwrap_or(0);
        let (mut tensors, seeds) = (vec![0u8; rows_max * to_usize(ROW_BYTES)], vec![0; rows_max]);
        self.passes(epochs, || {
            for batch in &self.batches {
                let rows = batch.iter().len();
                let memory = tensors.chunks_exact_mut(to_usize(ROW_BYTES)).take(rows).map(|tensor| vec![tensor]);
                let failed = decoder.decode_each(batch, &[], &seeds[..rows], memory.collect::<Vec<RowMemory<'_>>>())?;
                ensure!(failed.is_empty(), "an image cannot be decoded: {failed:?}");
            }
            Ok(())
        })
    }

    /// Measures passes over all files; if there are several, the first does not count.
    fn passes(&self, epochs: u64, pass: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Measurement> {
        measured_passes(epochs, self.num_rows, ROW_BYTES, pass)
    }

    /// Reads all batches of the stream's epochs; if there are several epochs, the first does not count.
    async fn streamed(&self, stream: &StreamHandle, settings: &Settings) -> anyhow::Result<Measurement> {
        let batching = Batching { size: BatchSize::PerRank(settings.batch_size), last: LastBatch::Uneven };
        let (columns, num_threads) =
            (vec![(COLUMN.to_string(), ColumnDecoder::Image(transform().into()))], self.threads);
        let decode = DecodeOptions { columns, num_threads, ..DecodeOptions::default() };
        let (mut cpu_secs, mut begun) = (own_cpu_secs(), Instant::now());
        for epoch in 0..settings.epochs {
            let slice = Slice { epoch, ..Slice::new(Topology { rank: 0, world_size: 1 }, batching, 0) };
            let mut batches = stream.open_decoded(&slice, &ReadOptions::default(), &decode).await?;
            let mut rows = 0;
            while let Some(batch) = batches.next().await? {
                rows += batch.data.num_rows() as u64;
            }
            ensure!(rows == self.num_rows, "the stream had {rows} rows, not {}", self.num_rows);
            if epoch == 0 && settings.epochs > 1 {
                (cpu_secs, begun) = (own_cpu_secs(), Instant::now());
            }
        }
        let rows = self.num_rows * settings.epochs.saturating_sub(1).max(1);
        Ok(measurement(rows, ROW_BYTES, begun.elapsed(), own_cpu_secs() - cpu_secs))
    }
}

/// Measures passes over `num_rows` rows; if there are several, the first does not count.
pub(crate) fn measured_passes(
    epochs: u64,
    num_rows: u64,
    row_bytes: u64,
    mut pass: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Measurement> {
    if epochs > 1 {
        pass()?;
    }
    let measured = epochs.saturating_sub(1).max(1);
    let (cpu_secs, begun) = (own_cpu_secs(), Instant::now());
    (0..measured).try_for_each(|_| pass())?;
    Ok(measurement(num_rows * measured, row_bytes, begun.elapsed(), own_cpu_secs() - cpu_secs))
}

fn measurement(rows: u64, row_bytes: u64, elapsed: Duration, cpu_secs: f64) -> Measurement {
    let (bytes, steady_secs, cpu_secs) = (rows * row_bytes, elapsed.as_secs_f64(), Some(cpu_secs));
    Measurement { bytes, rows, steady_bytes: bytes, steady_secs, cpu_secs, ..Measurement::default() }
}

fn own_cpu_secs() -> f64 {
    process_use(std::process::id()).cpu_secs
}

fn transform() -> ImageTransform {
    ImageTransform::new(SIDE, SIDE)
}

/// Plans a block-shuffled stream of a table of the files; writes the table unless the lake has it.
async fn stream(lake: &Path, files: &Files) -> anyhow::Result<StreamHandle> {
    let uri = lake.to_str().context("the folder's name is not UTF-8")?;
    let lake = LakeStore::open(uri, &StorageOptions::default()).await?;
    let name = TableName::try_new(TABLE)?;
    if !lake.has_table(&name).await? {
        eprintln!("making {} rows of JPEG files in {}", files.num_rows, lake.uri());
        write(&lake, &name, files).await?;
    }
    let found = lake.table(&name, &SnapshotRef::Latest).await?.num_rows();
    ensure!(found == files.num_rows, "{TABLE} holds {found} rows, not {}: choose another folder", files.num_rows);
    let options = StreamOptions { shuffle: ShuffleMode::Block, ..StreamOptions::default() };
    let connection = connect(uri, &ConnectOptions::default()).await?;
    Ok(connection.plan_stream(&format!("SELECT {COLUMN}, label FROM {TABLE}"), &[], &options).await?)
}

async fn write(lake: &LakeStore, name: &TableName, files: &Files) -> anyhow::Result<()> {
    let heavy = [(HEAVY_KEY.to_string(), "true".to_string())].into();
    let image = Field::new(COLUMN, DataType::LargeBinary, false).with_metadata(heavy);
    let schema = Arc::new(Schema::new(vec![image, Field::new("label", DataType::Int64, false)]));
    let mut writer = lake.writer(name, &schema, false, WriteOptions::default()).await?;
    let mut labels = 0i64..;
    for batch in &files.batches {
        let labels = Int64Array::from_iter_values(labels.by_ref().take(batch.iter().len()));
        writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(batch.clone()), Arc::new(labels)])?).await?;
    }
    let schema = writer.schema();
    let drafts = writer.finish().await?;
    lake.commit(name, &schema, CommitMode::Create, drafts, None).await?;
    Ok(())
}

/// Encodes a JPEG file with the statistics of a photograph: smooth shapes with some noise.
fn file(seed: u32) -> anyhow::Result<Vec<u8>> {
    #[expect(clippy::cast_possible_truncation, reason = "only the lower bits matter")]
    let image = RgbImage::from_fn(SIDE, SIDE, |x, y| {
        let bits = x.wrapping_mul(7919) ^ y.wrapping_mul(104_729) ^ seed.wrapping_mul(31);
        let noise = bits.wrapping_mul(2_654_435_761) >> 28;
        let wave = (f64::from(x + seed) / 17.0).sin() * (f64::from(y) / 23.0).cos() * 90.0 + 120.0;
        let wave = wave as u32 + noise;
        Rgb([wave as u8, (wave / 2 + x * 100 / SIDE) as u8, (wave / 3 + y * 100 / SIDE) as u8])
    });
    let mut file = Vec::new();
    image.write_with_encoder(JpegEncoder::new_with_quality(&mut file, QUALITY))?;
    Ok(file)
}
