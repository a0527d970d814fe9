//! `stoker bench decode`: decodes compressed tensors, and compares the rate with the codec's own.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use anyhow::{Context, ensure};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array};
use arrow_schema::{DataType, Field};
use stoker_codec::{Codec, Decoder};
use stoker_columns::{CompressedTensor, TensorType};
use stoker_decode::{BatchDecoder, RowMemory};
use stoker_session::TensorDecoder;

use crate::decode::measured_passes;
use crate::raw::{pass, threads};
use crate::report::{Measurement, Role, Section};
use crate::settings::Settings;
use crate::turns;

/// The shape of a tensor of float32.
const SHAPE: [usize; 2] = [64, 64];

/// The bytes of a tensor.
const ROW_BYTES: usize = 4 * SHAPE[0] * SHAPE[1];

/// The share of the codec's own rate that decoding to tensors should reach.
const BAR: f64 = 0.85;

thread_local! {
    /// The decoder of a thread of the ceiling.
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
}

/// Frames in memory, in batches.
struct Frames {
    tensor: CompressedTensor,
    batches: Vec<ArrayRef>,
    num_rows: u64,
    threads: usize,
}

/// Measures each codec and batches of its frames in memory, alternately.
pub fn measure(settings: &Settings) -> anyhow::Result<Vec<Section>> {
    Codec::NAMES.into_iter().map(|codec| of_codec(settings, codec)).collect()
}

fn of_codec(settings: &Settings, codec: &str) -> anyhow::Result<Section> {
    let frames = Frames::make(settings, codec)?;
    let frame_bytes: usize = frames.batches.iter().map(|batch| batch.as_binary::<i64>().values().len()).sum();
    let ratio = frames.num_rows as f64 * ROW_BYTES as f64 / frame_bytes.max(1) as f64;
    let row = format!("float32{SHAPE:?}, compressed to 1/{ratio:.2}");
    let title = format!("decoding {codec}");
    let mut section = Section::of_rows(&title, settings, ("frames", &row, frames.num_rows));
    for turn in turns(title.clone(), settings) {
        section.begin(turn);
        section.measure("codec alone", Role::Ceiling, || frames.codec_alone(settings.epochs))?;
        section.measure("tensors, from memory", Role::Path { bar: Some(BAR) }, || frames.tensors(settings.epochs))?;
    }
    section.note(format!(
        "Codec alone: frames in memory, into a reused buffer for each of {} threads; MB/s: of tensors. From memory: batches of \
         the column to float32{SHAPE:?}, as streams decode them.",
        frames.threads
    ));
    Ok(section)
}

impl Frames {
    fn make(settings: &Settings, codec: &str) -> anyhow::Result<Self> {
        let plain = TensorType { element: DataType::Float32, shape: SHAPE.to_vec() }.to_field("x");
        let tensor = CompressedTensor::try_new(&plain, codec.parse()?).map_err(anyhow::Error::msg)?;
        let num_rows = settings.jpeg_rows;
        let starts = (0..num_rows).step_by(usize::try_from(settings.batch_size)?);
        let batches = starts.map(|start| {
            let rows = start..num_rows.min(start + settings.batch_size);
            let values: Float32Array =
                rows.clone().flat_map(|row| (0..SHAPE[0] * SHAPE[1]).map(move |at| value(row, at))).collect();
            let item = Arc::new(Field::new("item", DataType::Float32, false));
            let lists = FixedSizeListArray::try_new(item, i32::try_from(SHAPE[0] * SHAPE[1])?, Arc::new(values), None)?;
            tensor.compress(&(Arc::new(lists) as ArrayRef)).context("compressing")
        });
        Ok(Self {
            batches: batches.collect::<anyhow::Result<_>>()?,
            tensor: tensor.clone(),
            num_rows,
            threads: threads(),
        })
    }

    /// Decodes all frames in each pass, and discards the tensors.
    fn codec_alone(&self, epochs: u64) -> anyhow::Result<Measurement> {
        let frames: Vec<&[u8]> =
            self.batches.iter().flat_map(|batch| batch.as_binary::<i64>().iter().flatten()).collect();
        let (row, dictionary) = (self.tensor.row(), self.tensor.dictionary.as_ref());
        // Each thread decodes as many frames at once as a stream does.
        let at_once = (64 << 10) / ROW_BYTES;
        let pieces: Vec<&[&[u8]]> = frames.chunks(at_once).collect();
        let mut tensors = vec![vec![vec![0u8; ROW_BYTES]]; self.threads];
        let decode = |index: usize, tensor: &mut [u8]| {
            DECODER.with_borrow_mut(|decoder| {
                let decoder = match decoder {
                    Some(decoder) => decoder,
                    None => decoder.insert(Decoder::try_new().map_err(io::Error::other)?),
                };
                pieces[index]
                    .iter()
                    .try_for_each(|frame| decoder.decode(&row, dictionary, frame, tensor))
                    .map_err(io::Error::other)?;
                Ok((pieces[index].len() * ROW_BYTES) as u64)
            })
        };
        self.passes(epochs, || pass(&mut tensors, 0..pieces.len(), &decode).map(drop))
    }

    /// Decodes all batches in each pass, into the same memory.
    fn tensors(&self, epochs: u64) -> anyhow::Result<Measurement> {
        let decoder = BatchDecoder::try_new(Box::new(TensorDecoder::new(self.tensor.clone())), self.threads)?;
        let rows_max = self.batches.iter().map(|batch| batch.len()).max().unwrap_or(0);
        let (mut tensors, seeds) = (vec![0u8; rows_max * ROW_BYTES], vec![0; rows_max]);
        self.passes(epochs, || {
            for batch in &self.batches {
                let memory = tensors.chunks_exact_mut(ROW_BYTES).take(batch.len()).map(|tensor| vec![tensor]);
                let memory = memory.collect::<Vec<RowMemory<'_>>>();
                let failed = decoder.decode_each(batch, &[], &seeds[..batch.len()], memory)?;
                ensure!(failed.is_empty(), "a frame cannot be decoded: {failed:?}");
            }
            Ok(())
        })
    }

    /// Measures passes over all frames; if there are several, the first does not count.
    fn passes(&self, epochs: u64, pass: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Measurement> {
        measured_passes(epochs, self.num_rows, ROW_BYTES as u64, pass)
    }
}

/// A number of a row: a smooth surface with noise in its last bits, as measured depth has.
fn value(row: u64, at: usize) -> f32 {
    let bits =
        (row.wrapping_mul(6_364_136_223_846_793_005) ^ (at as u64).wrapping_mul(1_442_695_040_888_963_407)) >> 40;
    let noise = (bits % 64) as f32 / 4096.0;
    #[expect(clippy::cast_possible_truncation, reason = "a number with fewer bits is the aim")]
    let wave = ((row as f64 + (at % SHAPE[1]) as f64) / 17.0).sin() as f32 * 3.0 + (at / SHAPE[1]) as f32 * 0.25;
    (wave * 4096.0).round() / 4096.0 + noise
}
