//! Decodes rows of pages to one array of lists.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, GenericListArray, OffsetSizeTrait, make_array};
use arrow_buffer::{BooleanBufferBuilder, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, FieldRef};
use bytes::Bytes;
use stoker_batch::{BufferPool, RowMemory};
use stoker_types::catch_panic;

use crate::chunk_parts::ChunkBytes;
use crate::error::Result;
use crate::list_runs::{FoundRows, NumberRun, OpenChunk, Runs};
use crate::numbers::{Compressed, NumberCodec, Scratch};
use crate::{BadPage, ListChunks, ListPage};

/// The most numbers for each byte of chunks that get memory before they are counted. Runs of 255 equal levels take three
/// bytes.
const ITEMS_PER_BYTE_MAX: usize = 128;

/// Rows of a page, and the chunks that hold them.
#[derive(Clone, Debug)]
pub struct PageRows {
    /// The page.
    pub page: Arc<ListPage>,
    /// The index of its chunks.
    pub chunks: Arc<ListChunks>,
    /// The rows, counted from the first one of the page, in ascending order.
    pub rows: Vec<u64>,
    /// All chunks that hold these rows, and maybe others, in ascending order.
    pub read: Vec<ChunksRead>,
}

/// Successive chunks of a page that were read together.
#[derive(Clone, Debug)]
pub struct ChunksRead {
    /// Their numbers.
    pub numbers: Range<usize>,
    /// Their bytes.
    pub bytes: Bytes,
}

impl PageRows {
    /// Returns whether the rows follow each other.
    fn is_run(&self) -> bool {
        self.rows.first().zip(self.rows.last()).is_none_or(|(first, last)| last - first + 1 == self.rows.len() as u64)
    }

    /// Returns the number of numbers in each of the chunks that were read.
    fn chunk_items(&self) -> impl Iterator<Item = usize> {
        let chunks = self.read.iter().flat_map(|read| read.numbers.clone());
        chunks.map(|chunk| usize::try_from(self.chunks.num_items(chunk)).unwrap_or(usize::MAX))
    }
}

impl ChunksRead {
    /// Returns each chunk with its number, or `None` where bytes are missing.
    pub(crate) fn chunks<'a>(
        &'a self,
        chunks: &'a ListChunks,
    ) -> impl Iterator<Item = (usize, Option<ChunkBytes<'a>>)> {
        let first = chunks.byte_range(self.numbers.start..self.numbers.start).start;
        self.numbers.clone().map(move |number| {
            let Range { start, end } = chunks.byte_range(number..number + 1);
            let offset = |at: u64| usize::try_from(at.saturating_sub(first)).unwrap_or(usize::MAX);
            (number, ChunkBytes::new(&self.bytes, offset(start)..offset(end)))
        })
    }
}

/// Returns rows of several pages as one array of a list type. Without `places`, it has the rows of the pages one after the
/// other; with `places`, it has at each index the row with that number among all of these rows.
///
/// The memory of the numbers comes from `pool` if there is one. It takes no more bytes than the rows have, or the chunks of
/// successive rows. While rows are put in another order, a run of numbers takes 24 bytes: there is one for each row, and one more
/// where a chunk begins within a row.
///
/// # Errors
/// [`BadPage`] for damaged chunks, and for more than 2^31 numbers in lists with offsets of 32 bits.
pub fn gather_lists(
    pages: &[PageRows],
    places: Option<&[u64]>,
    data_type: &DataType,
    pool: Option<&BufferPool>,
) -> Result<ArrayRef> {
    let gather = || match data_type {
        DataType::List(item) => gather::<i32>(pages, places, item, pool),
        DataType::LargeList(item) => gather::<i64>(pages, places, item, pool),
        other => Err(BadPage::new(format!("{other} is no type of lists"))),
    };
    catch_panic(gather, BadPage::new)
}

/// For each row, the indexes at which the result has it.
struct Targets {
    /// The indexes, in the order of their rows.
    indexes: Vec<usize>,
    /// For each row, where its indexes begin, and the end of the last ones.
    starts: Vec<usize>,
}

impl Targets {
    fn new(num_rows: usize, places: &[u64]) -> Result<Self> {
        let mut starts = vec![0; num_rows + 1];
        for place in places {
            let count = usize::try_from(*place).ok().and_then(|row| starts.get_mut(row + 1));
            *count.ok_or_else(|| BadPage::new(format!("row {place} of {num_rows} is wanted")))? += 1;
        }
        for row in 0..num_rows {
            starts[row + 1] += starts[row];
        }
        let mut next = starts.clone();
        let mut indexes = vec![0; places.len()];
        for (index, place) in places.iter().enumerate() {
            let next = &mut next[usize::try_from(*place).unwrap_or_default()];
            indexes[*next] = index;
            *next += 1;
        }
        Ok(Self { indexes, starts })
    }

    fn of(&self, row: usize) -> &[usize] {
        &self.indexes[self.starts[row]..self.starts[row + 1]]
    }
}

/// Writes numbers to where they belong.
struct Writer<'a> {
    targets: Option<&'a Targets>,
    /// For each row of the result, where its next number belongs, in bytes.
    ends: Vec<usize>,
    width: usize,
    numbers: &'a mut [u8],
}

impl Writer<'_> {
    /// Writes the runs of a chunk.
    fn write(
        &mut self,
        codec: &NumberCodec,
        compressed: Compressed<'_>,
        runs: &[NumberRun],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let width = self.width;
        if let Some(start) = self.start_of_all(runs, compressed.num_items)
            && let Some(target) = self.numbers.get_mut(start..start + compressed.num_items * width)
            && codec.decompress_to(compressed, target, scratch)?
        {
            self.advance(runs);
            return Ok(());
        }
        let numbers = codec.decompress(compressed, scratch)?;
        for NumberRun { row, start, length } in runs {
            let run = &numbers[start * width..(start + length) * width];
            let one = [*row];
            for index in self.targets.map_or(&one[..], |targets| targets.of(*row)) {
                let end = self.ends[*index] + run.len();
                self.numbers[self.ends[*index]..end].copy_from_slice(run);
                self.ends[*index] = end;
            }
        }
        Ok(())
    }

    /// Returns where the numbers of a chunk begin in the result if all of them belong there one after the other.
    fn start_of_all(&self, runs: &[NumberRun], num_items: usize) -> Option<usize> {
        let mut next = 0;
        let mut first_byte = None;
        for NumberRun { row, start, length } in runs {
            let byte = self.ends[self.only_target(*row)?];
            let first = *first_byte.get_or_insert(byte);
            if *start != next || byte != first + next * self.width {
                return None;
            }
            next += length;
        }
        first_byte.filter(|_| next == num_items)
    }

    /// Notes that runs, each of which has one place in the result, are written.
    fn advance(&mut self, runs: &[NumberRun]) {
        for NumberRun { row, length, .. } in runs {
            if let Some(index) = self.only_target(*row) {
                self.ends[index] += length * self.width;
            }
        }
    }

    fn only_target(&self, row: usize) -> Option<usize> {
        match self.targets.map(|targets| targets.of(row)) {
            None => Some(row),
            Some([index]) => Some(*index),
            Some(_) => None,
        }
    }
}

fn gather<O: OffsetSizeTrait>(
    pages: &[PageRows],
    places: Option<&[u64]>,
    item: &FieldRef,
    pool: Option<&BufferPool>,
) -> Result<ArrayRef> {
    if places.is_none()
        && let Some(items_max) = items_in_order::<O>(pages)
    {
        return in_order::<O>(pages, items_max, item, pool);
    }
    let Runs { chunks, runs, rows: FoundRows { lengths, nulls, .. } } = Runs::of(pages)?;
    let targets = places.map(|places| Targets::new(lengths.len(), places)).transpose()?;
    let lengths: Vec<usize> = match places {
        None => lengths,
        Some(places) => places.iter().map(|place| lengths[usize::try_from(*place).unwrap_or_default()]).collect(),
    };
    let num_items = checked_items::<O>(lengths.iter().copied())?;
    let width = width_of(item);
    let ends = lengths.iter().scan(0, |end, length| Some(mem::replace(end, *end + length) * width)).collect();
    let mut memory = RowMemory::of_bytes(num_items * width, pool).map_err(BadPage::new)?;
    let mut writer = Writer { targets: targets.as_ref(), ends, width, numbers: &mut memory };
    let mut scratch = Scratch::default();
    for OpenChunk { page, chunk, parts, num_items, runs: of_chunk } in chunks {
        check_width(page, item)?;
        let compressed = Compressed { chunk, buffers: parts.numbers(), num_items };
        writer.write(&page.numbers, compressed, &runs[of_chunk], &mut scratch)?;
    }
    let nulls =
        nulls.into_iter().flat_map(|row| targets.as_ref().map_or(vec![row], |targets| targets.of(row).to_vec()));
    lists::<O>(&lengths, nulls.collect(), memory, item)
}

/// Returns the rows of pages of which each has successive rows. Their numbers lie one after the other in their chunks.
fn in_order<O: OffsetSizeTrait>(
    pages: &[PageRows],
    items_max: usize,
    item: &FieldRef,
    pool: Option<&BufferPool>,
) -> Result<ArrayRef> {
    let width = width_of(item);
    let mut memory = RowMemory::of_bytes(items_max * width, pool).map_err(BadPage::new)?;
    let (mut scratch, mut rows, mut runs) = (Scratch::default(), FoundRows::for_pages(pages), Vec::new());
    let mut rest = &mut *memory;
    for page in pages {
        rows.add(page, &mut runs, |OpenChunk { page, chunk, parts, num_items, .. }, runs| {
            check_width(page, item)?;
            let compressed = Compressed { chunk, buffers: parts.numbers(), num_items };
            let start = runs.first().map_or(0, |run| run.start);
            let end = runs.last().map_or(0, |run| run.start + run.length);
            runs.clear();
            let short = || BadPage::new("chunks have more numbers than their index says");
            let (target, after) = mem::take(&mut rest).split_at_mut_checked((end - start) * width).ok_or_else(short)?;
            rest = after;
            if end - start < num_items || !page.numbers.decompress_to(compressed, target, &mut scratch)? {
                let numbers = page.numbers.decompress(compressed, &mut scratch)?;
                target.copy_from_slice(&numbers[start * width..end * width]);
            }
            Ok(())
        })?;
    }
    lists::<O>(&rows.lengths, rows.nulls, memory, item)
}

/// Returns the number of numbers in the chunks of pages of which each has successive rows: those of these rows, and of some
/// before the first one and after the last one. `None` for other rows, for more numbers than offsets count, and for an
/// index that says more numbers than so many bytes usually have, which are counted before they get memory.
fn items_in_order<O: OffsetSizeTrait>(pages: &[PageRows]) -> Option<usize> {
    let items: usize = pages.iter().flat_map(PageRows::chunk_items).try_fold(0, usize::checked_add)?;
    let bytes: usize = pages.iter().flat_map(|page| &page.read).map(|read| read.bytes.len()).sum();
    let is_usual = items <= bytes.saturating_mul(ITEMS_PER_BYTE_MAX) && O::from_usize(items).is_some();
    (is_usual && pages.iter().all(PageRows::is_run)).then_some(items)
}

/// Returns the sum of numbers of items, which offsets must be able to count.
fn checked_items<O: OffsetSizeTrait>(mut items: impl Iterator<Item = usize>) -> Result<usize> {
    let sum = items.try_fold(0usize, |sum, items| sum.checked_add(items));
    sum.filter(|items| O::from_usize(*items).is_some()).ok_or_else(|| {
        BadPage::new("the rows have more than 2^31 numbers together: read fewer rows at a time, or store a large list")
    })
}

/// The bytes of a number.
fn width_of(item: &FieldRef) -> usize {
    item.data_type().primitive_width().unwrap_or_default()
}

fn check_width(page: &ListPage, item: &FieldRef) -> Result<()> {
    match page.numbers.width == width_of(item) {
        true => Ok(()),
        false => Err(BadPage::new(format!("numbers of {} bytes are no {}", page.numbers.width, item.data_type()))),
    }
}

/// Returns lists of these lengths, whose numbers are in `memory` one after the other.
fn lists<O: OffsetSizeTrait>(
    lengths: &[usize],
    nulls: Vec<usize>,
    memory: RowMemory,
    item: &FieldRef,
) -> Result<ArrayRef> {
    let num_items = lengths.iter().sum();
    let values = ArrayData::builder(item.data_type().clone()).len(num_items).add_buffer(memory.freeze()).build();
    let values = make_array(values.map_err(BadPage::new)?);
    let nulls = (!nulls.is_empty()).then(|| {
        let mut valid = BooleanBufferBuilder::new(lengths.len());
        valid.append_n(lengths.len(), true);
        nulls.into_iter().for_each(|row| valid.set_bit(row, false));
        NullBuffer::new(valid.finish())
    });
    let offsets = OffsetBuffer::<O>::from_lengths(lengths.iter().copied());
    let lists = GenericListArray::<O>::try_new(item.clone(), offsets, values, nulls).map_err(BadPage::new)?;
    Ok(Arc::new(lists))
}
