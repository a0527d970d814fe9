//! Reads the clips of rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::builder::LargeBinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeBinaryArray};
use futures::future::try_join_all;
use stoker_chunks::ChunkScan;
use stoker_decode::{Number, draw_start, numbers, sample_seed};
use stoker_lake::Table;
use stoker_video::{CheckedIndex, ClipBytes, Position, Start, VideoClip};

use super::found_frames::FoundFrames;
use super::{ClipColumn, index_of};
use crate::found_rows::SourceRows;
use crate::light::take_verified;
use crate::read::{Damage, Reader, supplier};
use crate::source::{ColumnPlan, SourcePlan};
use crate::unit_clock::UnitClock;
use crate::{Error, Result};

/// The gaps between frames that are read rather than skipped, in bytes: of local files, and of object stores, where a
/// request takes as long as the transfer of a megabyte.
const LOCAL_GAP_BYTES: u64 = 4 << 10;
const REMOTE_GAP_BYTES: u64 = 64 << 10;

/// The rows by which the bytes of clips are estimated.
const SAMPLED_ROWS: u64 = 8;

/// A row of one of the tables that can supply a column: the number of the table among these, and the address.
type Supplied = (usize, u64);

/// What is delivered of a row.
enum ClipPart {
    /// Nothing, because no table supplies the row.
    Null,
    /// No bytes, because the row is bad.
    Bad,
    /// The whole file.
    Whole,
    /// The frames of a clip.
    Frames(FoundFrames),
}

/// Reads the clips of the rows of a source, for each column of which the stream reads clips. Rows that turn out to be bad
/// are added to `bad`, by their index.
pub(crate) async fn read_clips(
    reader: Reader<'_>,
    source: &SourcePlan,
    found: &SourceRows,
    arrays: &mut [Option<ArrayRef>],
    bad: &mut BTreeMap<usize, Damage>,
) -> Result<()> {
    for column in reader.plan.clips.columns() {
        let ColumnPlan::Table { sources } = &source.columns[column.column] else { continue };
        let Reader { scan, clock, .. } = reader;
        let reads = ClipReads { source, column, sources, scan, clock };
        let chosen_by: Vec<_> = column.chosen_by.iter().map(|index| arrays.get(*index).cloned().flatten()).collect();
        let array = reads.read(reader, found, &chosen_by, bad).await?;
        if let Some(place) = arrays.get_mut(column.column) {
            *place = Some(array);
        }
    }
    Ok(())
}

/// Returns the bytes that the clips of a column take of a row of a source, by a sample of the rows. `None` if it has no rows
/// with an index.
pub(super) async fn sampled_bytes(source: &SourcePlan, column: &ClipColumn, scan: &ChunkScan) -> Result<Option<u64>> {
    let ColumnPlan::Table { sources } = &source.columns[column.column] else { return Ok(None) };
    let num_rows = source.row_set.num_rows();
    let num_sampled = num_rows.min(SAMPLED_ROWS);
    let ordinals: Vec<u64> = (0..num_sampled).map(|row| row * (num_rows / num_sampled.max(1))).collect();
    let rows = source.row_set.resolve(&ordinals).await?;
    let clock = UnitClock::start(scan.clock());
    let reads = ClipReads { source, column, sources, scan, clock: &clock };
    let supplied: Vec<Supplied> = (0..ordinals.len()).filter_map(|row| reads.supplied(&rows.addrs, row)).collect();
    let indexes = reads.indexes(supplied.iter().copied()).await?;
    // Any start does for an estimate, anywhere in the video.
    let start = match &column.clip.start {
        Start::Column(_) => Start::Random,
        start => start.clone(),
    };
    let clip = VideoClip { start, within: None, ..column.clip.clone() };
    let mut sizes = Vec::new();
    for (number, row) in supplied.iter().enumerate() {
        let Some(index) = indexes.get(row).and_then(Option::as_ref) else { continue };
        let draw = (number as u64).wrapping_mul(u64::MAX / SAMPLED_ROWS);
        let Ok(frames) = clip.frames_of(index.index(), None, draw) else { continue };
        let gap = if reads.table(row.0).is_local() { LOCAL_GAP_BYTES } else { REMOTE_GAP_BYTES };
        let ranges = frames.packets(index.index()).byte_ranges(index.index(), gap);
        let frames: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        sizes.push(frames.saturating_add(ClipBytes::head(index.index(), &ranges).len() as u64));
    }
    let total = sizes.iter().fold(0u64, |total, size| total.saturating_add(*size));
    Ok((!sizes.is_empty()).then(|| total.div_ceil(sizes.len() as u64)))
}

/// What the clips of one column are read with.
struct ClipReads<'a> {
    source: &'a SourcePlan,
    column: &'a ClipColumn,
    /// The tables that can supply the column, by their index, and its name in them.
    sources: &'a [(usize, String)],
    scan: &'a ChunkScan,
    clock: &'a UnitClock,
}

impl ClipReads<'_> {
    async fn read(
        &self,
        reader: Reader<'_>,
        found: &SourceRows,
        chosen_by: &[Option<ArrayRef>],
        bad: &mut BTreeMap<usize, Damage>,
    ) -> Result<ArrayRef> {
        let positions = &found.delivered.positions;
        if positions.len() != found.places.len() {
            let reason = format!("{} rows are delivered at {} positions", found.places.len(), positions.len());
            return Err(Error::Internal { reason });
        }
        let place = |place: &u64| self.supplied(&found.rows.addrs, stoker_types::to_usize(*place));
        let supplied: Vec<Option<Supplied>> = found.places.iter().map(place).collect();
        let in_rows = |array: &Option<ArrayRef>| match array {
            Some(array) => {
                let failed = |error: stoker_decode::Error| Error::Internal { reason: error.to_string() };
                numbers(array.as_ref()).map_err(failed)
            }
            None => Ok(vec![None; positions.len()]),
        };
        let chosen_by = chosen_by.iter().map(in_rows).collect::<Result<Vec<_>>>()?;
        let sound = supplied.iter().enumerate().filter(|(row, _)| !bad.contains_key(row));
        let indexes = self.indexes(sound.filter_map(|(_, supplied)| *supplied)).await?;
        let (seed, epoch, is_bad) = (reader.plan.spec.seed, found.delivered.epoch, |row| bad.contains_key(&row));
        let rows = supplied.iter().zip(positions).enumerate();
        let reads = rows.map(|(row, (supplied, position))| {
            let numbers: Vec<Option<Number>> =
                chosen_by.iter().map(|column| column.get(row).copied().flatten()).collect();
            let index = supplied.as_ref().and_then(|supplied| indexes.get(supplied)?.as_ref());
            let (is_bad, draw) = (is_bad(row), draw_start(sample_seed(seed, epoch, *position, &self.column.name)).0);
            async move {
                match (supplied, index) {
                    (None, _) => Ok(ClipPart::Null),
                    (Some(_), _) if is_bad => Ok(ClipPart::Bad),
                    (Some(_), None) => Ok(ClipPart::Whole),
                    (Some(supplied), Some(index)) => {
                        let found = self.frames(reader, *supplied, index, &numbers, draw).await?;
                        let Some(mut frames) = found else { return Ok(ClipPart::Whole) };
                        let are_read = frames.fill(self.scan, self.column.has_fixed_frames()).await?;
                        Ok::<_, Error>(if are_read { ClipPart::Frames(frames) } else { ClipPart::Whole })
                    }
                }
            }
        });
        let parts = self.clock.read(try_join_all(reads)).await?;
        let whole = self.whole_files(&supplied, &parts).await?;
        self.array(&supplied, parts, &whole, bad)
    }

    /// Returns which table supplies a row, and the row's address in it.
    fn supplied(&self, addrs: &[Vec<u64>], row: usize) -> Option<Supplied> {
        let number = supplier(self.sources.iter().map(|(table, _)| *table), addrs, row)?;
        let (table, _) = self.sources.get(number)?;
        Some((number, addrs[*table][row]))
    }

    fn table(&self, number: usize) -> &Table {
        &self.source.row_set.sources()[self.sources[number].0]
    }

    /// Reads the indexes of rows. There is none for a row whose file is to be read as a whole: one without an index that
    /// can be read, or whose frames could not be verified.
    async fn indexes(
        &self,
        rows: impl Iterator<Item = Supplied>,
    ) -> Result<HashMap<Supplied, Option<Arc<CheckedIndex>>>> {
        let unique: BTreeSet<Supplied> = rows.collect();
        let mut indexes = HashMap::with_capacity(unique.len());
        let unique: Vec<Supplied> = unique.into_iter().collect();
        for rows in unique.chunk_by(|one, next| one.0 == next.0) {
            let Some((number, _)) = rows.first().copied() else { continue };
            let table = self.table(number);
            let Some(column) = index_of(table, &self.sources[number].1) else { continue };
            let addrs: Vec<u64> = rows.iter().map(|(_, address)| *address).collect();
            let (arrays, damaged) = take_verified(table, &[column], &addrs, self.scan, self.clock).await?;
            let damaged: BTreeSet<u64> = damaged.into_iter().map(|(address, _)| address).collect();
            let Some(values) = arrays.first().and_then(|array| array.as_binary_opt::<i64>()) else { continue };
            for (row, value) in rows.iter().zip(values.iter()) {
                let value = value.filter(|_| !damaged.contains(&row.1));
                let index = value.and_then(|value| CheckedIndex::from_bytes(value).ok());
                let index = index.filter(|index| index.has_checksums() || !self.scan.verifies());
                indexes.insert(*row, index.map(Arc::new));
            }
        }
        Ok(indexes)
    }

    /// Chooses the frames of a row, and finds out where they lie. `None` if the file is to be read as a whole.
    async fn frames(
        &self,
        reader: Reader<'_>,
        (number, address): Supplied,
        index: &Arc<CheckedIndex>,
        numbers: &[Option<Number>],
        draw: u64,
    ) -> Result<Option<FoundFrames>> {
        let (table, name) = (self.table(number), &self.sources[number].1);
        let placed = reader.plan.clips.files.place(table, name, address, self.scan).await?;
        let Some((file, value)) = placed else { return Ok(None) };
        if value.end - value.start != index.index().file_bytes() {
            // The index was made of another file, and says nothing about this one.
            return Ok(None);
        }
        let positions: Vec<Option<Position>> = numbers.iter().map(|number| number.map(Position::from)).collect();
        let chosen = self.column.clip.frames_of_row(index.index(), &positions, draw);
        let packets = chosen.ok().map(|frames| frames.packets(index.index()));
        let gap = if file.local().is_some() { LOCAL_GAP_BYTES } else { REMOTE_GAP_BYTES };
        let ranges = packets.as_ref().map(|packets| packets.byte_ranges(index.index(), gap)).unwrap_or_default();
        let index = index.clone();
        Ok(Some(FoundFrames { index, packets, ranges, bytes: Vec::new(), reader: file, offset: value.start }))
    }

    /// Reads the files that are delivered as a whole. Returns for each of them its value, or what is wrong with it.
    async fn whole_files(
        &self,
        supplied: &[Option<Supplied>],
        parts: &[ClipPart],
    ) -> Result<HashMap<Supplied, Result<(LargeBinaryArray, usize), String>>> {
        let rows = supplied.iter().zip(parts).filter(|(_, part)| matches!(part, ClipPart::Whole));
        let unique: BTreeSet<Supplied> = rows.filter_map(|(supplied, _)| *supplied).collect();
        let unique: Vec<Supplied> = unique.into_iter().collect();
        let mut whole = HashMap::with_capacity(unique.len());
        for rows in unique.chunk_by(|one, next| one.0 == next.0) {
            let Some((number, _)) = rows.first().copied() else { continue };
            let addrs: Vec<u64> = rows.iter().map(|(_, address)| *address).collect();
            let names = [self.sources[number].1.clone()];
            let (arrays, damaged) = take_verified(self.table(number), &names, &addrs, self.scan, self.clock).await?;
            let damaged: HashMap<u64, String> = damaged.into_iter().collect();
            let values = arrays.first().and_then(|array| array.as_binary_opt::<i64>());
            let missing = || Error::Internal { reason: format!("column {} was not read", self.column.name) };
            let values = values.ok_or_else(missing)?;
            for (place, row) in rows.iter().enumerate() {
                let value = match damaged.get(&row.1) {
                    Some(reason) => Err(reason.clone()),
                    None => Ok((values.clone(), place)),
                };
                whole.insert(*row, value);
            }
        }
        Ok(whole)
    }

    /// Puts the values of the rows into an array.
    fn array(
        &self,
        supplied: &[Option<Supplied>],
        parts: Vec<ClipPart>,
        whole: &HashMap<Supplied, Result<(LargeBinaryArray, usize), String>>,
        bad: &mut BTreeMap<usize, Damage>,
    ) -> Result<ArrayRef> {
        let bytes = parts.iter().map(|part| match part {
            ClipPart::Frames(frames) => frames.num_bytes(),
            ClipPart::Null | ClipPart::Bad | ClipPart::Whole => 0,
        });
        let mut values = LargeBinaryBuilder::with_capacity(parts.len(), bytes.sum::<usize>());
        for (row, (part, supplied)) in parts.into_iter().zip(supplied).enumerate() {
            match (part, supplied) {
                (ClipPart::Null, _) | (ClipPart::Whole, None) => values.append_null(),
                (ClipPart::Bad, _) => values.append_value(b""),
                (ClipPart::Frames(frames), _) => values.append_value(frames.into_value()),
                (ClipPart::Whole, Some((number, address))) => match whole.get(&(*number, *address)) {
                    Some(Ok((files, place))) if files.is_valid(*place) => values.append_value(files.value(*place)),
                    Some(Ok(_)) => values.append_null(),
                    Some(Err(reason)) => {
                        let (table, address) = (self.sources[*number].0, *address);
                        bad.entry(row).or_insert(Damage { table, address, reason: reason.clone() });
                        values.append_value(b"");
                    }
                    None => {
                        let reason = format!("row {address:#x} of column {} was not read", self.column.name);
                        return Err(Error::Internal { reason });
                    }
                },
            }
        }
        Ok(Arc::new(values.finish()))
    }
}
