//! Decodes rows of pages to one array of lists.

use std::sync::Arc;

use arrow_array::{ArrayRef, GenericListArray, OffsetSizeTrait, make_array};
use arrow_buffer::{BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, FieldRef};
use bytes::Bytes;
use lance_encoding::buffer::LanceBuffer;
use stoker_batch::{BufferPool, Pooled};
use stoker_types::catch_panic;

use crate::chunk_levels::ChunkLevels;
use crate::error::Result;
use crate::{BadPage, ListChunks, ListPage};

/// Rows of a page, and the chunks that hold them.
#[derive(Clone, Debug)]
pub struct PageRows {
    /// The page.
    pub page: Arc<ListPage>,
    /// The index of its chunks.
    pub chunks: Arc<ListChunks>,
    /// The rows, counted from the first one of the page, in ascending order.
    pub rows: Vec<u64>,
    /// The numbers and the bytes of all chunks that hold these rows, in ascending order.
    pub read: Vec<(usize, Bytes)>,
}

/// Returns rows of several pages as one array of a list type. Without `places`, it has the rows of the pages one after the
/// other; with `places`, it has at each index the row with that number among all of these rows.
///
/// The memory of the numbers comes from `pool` if there is one. It takes no more bytes than the rows have. While it is made, a run of
/// numbers takes 24 bytes: there is one for each row, and one more where a chunk begins within a row.
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

/// The number of levels that are passed over together.
const LEVELS_AT_ONCE: usize = 32;

/// Successive numbers of a row.
struct ValueRun {
    /// The number of the row among all that are read.
    row: usize,
    /// The index of the first number in its chunk.
    start: usize,
    length: usize,
}

/// A chunk of which numbers are wanted.
struct OpenChunk<'a> {
    page: &'a ListPage,
    values: Vec<LanceBuffer>,
    num_items: u64,
    runs: Vec<ValueRun>,
}

/// The runs of numbers of all rows.
#[derive(Default)]
struct Runs<'a> {
    chunks: Vec<OpenChunk<'a>>,
    /// The number of numbers of each row.
    lengths: Vec<usize>,
    /// The rows that are null.
    nulls: Vec<usize>,
}

impl<'a> Runs<'a> {
    /// Finds the runs of the rows of a page.
    fn add(&mut self, rows: &'a PageRows) -> Result<()> {
        let PageRows { page, chunks, rows, read } = rows;
        let first_row = self.lengths.len();
        self.lengths.resize(first_row + rows.len(), 0);
        let mut left = rows.iter().copied().enumerate().peekable();
        let mut current: Option<usize> = None;
        let mut before: Option<usize> = None;
        for (number, bytes) in read {
            let levels = ChunkLevels::try_new(page, bytes)?;
            let is_continued = number.checked_sub(1).is_some_and(|last| before == Some(last) && chunks.continues(last));
            if !is_continued {
                current = None;
            }
            before = Some(*number);
            let num_items = chunks.num_items(*number);
            let mut next_row = chunks.rows_before(*number);
            let mut runs = Vec::new();
            let mut start = 0;
            let mut begin = |item: usize, current: &mut Option<usize>, start: &mut usize| {
                if let Some(row) = *current
                    && item > *start
                {
                    runs.push(ValueRun { row, start: *start, length: item - *start });
                }
                *start = item;
                *current = left.next_if(|(_, row)| *row == next_row).map(|(index, _)| first_row + index);
                next_row += 1;
            };
            let mut items = 0;
            match &levels.def {
                None => {
                    for item in row_begins(&levels.rep) {
                        begin(item, &mut current, &mut start);
                    }
                    items = levels.rep.len();
                }
                Some(def) => {
                    for (rep, def) in levels.rep.iter().zip(def.iter()) {
                        if *rep != 0 {
                            begin(items, &mut current, &mut start);
                        }
                        match def {
                            0 => items += 1,
                            1 if page.levels.has_nulls => self.nulls.extend(current),
                            _ => {}
                        }
                    }
                }
            }
            if items as u64 != num_items || next_row != chunks.rows_before(*number + 1) {
                let (begun, rows) = (next_row, chunks.rows_before(*number + 1));
                return Err(BadPage::new(format!(
                    "chunk {number} of a page has {items} numbers and ends at row {begun}, not {num_items} and {rows}"
                )));
            }
            if let Some(row) = current
                && items > start
            {
                runs.push(ValueRun { row, start, length: items - start });
            }
            for run in &runs {
                self.lengths[run.row] += run.length;
            }
            if !runs.is_empty() {
                self.chunks.push(OpenChunk { page, values: levels.values, num_items, runs });
            }
        }
        match left.next() {
            None => Ok(()),
            Some((_, row)) => Err(BadPage::new(format!("no chunk of the page has its row {row}"))),
        }
    }
}

/// Returns the indexes of the levels with which rows begin. Most levels are those of numbers within a row, and are zero:
/// they are passed over together.
fn row_begins(levels: &[u16]) -> impl Iterator<Item = usize> {
    let several = levels.chunks(LEVELS_AT_ONCE).enumerate();
    let with_rows = several.filter(|(_, levels)| levels.iter().fold(0, |all, level| all | level) != 0);
    with_rows.flat_map(|(number, levels)| {
        let begins = levels.iter().enumerate().filter(|(_, level)| **level != 0);
        begins.map(move |(index, _)| number * LEVELS_AT_ONCE + index)
    })
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

/// The memory of an array's numbers.
enum Numbers {
    New(MutableBuffer),
    Pooled(Pooled),
}

impl Numbers {
    /// Returns memory with arbitrary content.
    fn of_bytes(length: usize, pool: Option<&BufferPool>) -> Result<Self> {
        match pool {
            Some(pool) if length > 0 => pool.take(length).map(Self::Pooled).map_err(BadPage::new),
            _ => Ok(Self::New(MutableBuffer::from_len_zeroed(length))),
        }
    }

    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::New(memory) => memory.as_slice_mut(),
            Self::Pooled(memory) => memory.as_mut(),
        }
    }

    fn freeze(self) -> Buffer {
        match self {
            Self::New(memory) => memory.into(),
            Self::Pooled(memory) => memory.freeze(),
        }
    }
}

fn gather<O: OffsetSizeTrait>(
    pages: &[PageRows],
    places: Option<&[u64]>,
    item: &FieldRef,
    pool: Option<&BufferPool>,
) -> Result<ArrayRef> {
    let mut runs = Runs::default();
    pages.iter().try_for_each(|page| runs.add(page))?;
    let Runs { chunks, lengths, nulls } = runs;
    let targets = places.map(|places| Targets::new(lengths.len(), places)).transpose()?;
    let lengths_of_rows: Vec<usize> = match places {
        None => lengths,
        Some(places) => places.iter().map(|place| lengths[usize::try_from(*place).unwrap_or_default()]).collect(),
    };
    let num_rows = lengths_of_rows.len();
    let num_items = lengths_of_rows.iter().try_fold(0usize, |sum, length| sum.checked_add(*length));
    let num_items = num_items.filter(|items| O::from_usize(*items).is_some()).ok_or_else(|| {
        BadPage::new("the rows have more than 2^31 numbers together: read fewer rows at a time, or store a large list")
    })?;
    let width = item.data_type().primitive_width().unwrap_or_default();
    let mut ends: Vec<usize> =
        lengths_of_rows.iter().scan(0, |end, length| Some(std::mem::replace(end, *end + length) * width)).collect();
    let mut numbers_of_rows = Numbers::of_bytes(num_items * width, pool)?;
    let values = numbers_of_rows.as_mut();
    for chunk in chunks {
        let OpenChunk { page, values: buffers, num_items, runs } = chunk;
        if page.width != width {
            return Err(BadPage::new(format!("numbers of {} bytes are no {}", page.width, item.data_type())));
        }
        let numbers = page.decompress(buffers, num_items)?;
        for ValueRun { row, start, length } in runs {
            let run = &numbers[start * width..(start + length) * width];
            let one = [row];
            for index in targets.as_ref().map_or(&one[..], |targets| targets.of(row)) {
                let end = ends[*index] + run.len();
                values[ends[*index]..end].copy_from_slice(run);
                ends[*index] = end;
            }
        }
    }
    let values =
        ArrayData::builder(item.data_type().clone()).len(num_items).add_buffer(numbers_of_rows.freeze()).build();
    let values = make_array(values.map_err(BadPage::new)?);
    let nulls = (!nulls.is_empty()).then(|| {
        let mut valid = BooleanBufferBuilder::new(num_rows);
        valid.append_n(num_rows, true);
        for row in nulls {
            let one = [row];
            targets
                .as_ref()
                .map_or(&one[..], |targets| targets.of(row))
                .iter()
                .for_each(|index| valid.set_bit(*index, false));
        }
        NullBuffer::new(valid.finish())
    });
    let offsets = OffsetBuffer::<O>::from_lengths(lengths_of_rows);
    let lists = GenericListArray::<O>::try_new(item.clone(), offsets, values, nulls).map_err(BadPage::new)?;
    Ok(Arc::new(lists))
}
