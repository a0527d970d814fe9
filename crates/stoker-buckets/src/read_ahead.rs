//! Decides which parts of a file are requested, and when.
//!
//! ```text
//! small file:           [■■■■■■■■]                       one request, kept
//! a few known ranges:   [■■■■][■■■■]   [■■]              all requested at once, kept
//! a large file:         ·····▒▒▒▒[■■■■][■■■■][■■■■]·····  one place of many: read so far, in flight, not yet
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use stoker_types::to_usize;

/// The most bytes of a request. Smaller files are fetched whole.
pub(crate) const PART_BYTES: u64 = 4 << 20;

/// The fewest bytes of a request in a larger file, and of its end, where footers are.
const PART_BYTES_MIN: u64 = 64 << 10;

/// Of smaller files, the end is not requested alone.
const END_IN_FILE_BYTES: u64 = 4 * PART_BYTES_MIN;

/// The most bytes of known ranges that are all requested at once and kept.
const KEPT_BYTES_MAX: u64 = 32 << 20;

/// The most bytes between two known ranges that are fetched with them, because another request takes longer.
const GAP_BYTES_MAX: u64 = 256 << 10;

/// The bytes that are requested ahead of all places of a file together.
const WINDOW_BYTES: u64 = 16 << 20;

/// The most places at which a file is read in turns. The place that was read longest ago is forgotten.
const PLACES_MAX: usize = 1024;

/// The parts of a file that were requested. `T` stands for a request.
#[derive(Debug)]
pub(crate) struct ReadAhead<T> {
    size: u64,
    kept: Vec<Part<T>>,
    kept_bytes: u64,
    /// The place that was read last is the last one.
    places: Vec<ReadPlace<T>>,
}

#[derive(Debug)]
struct Part<T> {
    range: Range<u64>,
    request: T,
}

/// A place at which the file is read in order.
#[derive(Debug)]
struct ReadPlace<T> {
    /// The parts that were not read to their ends yet.
    parts: VecDeque<Part<T>>,
    /// The end of the parts that were requested.
    requested: u64,
    /// The end of what will be read.
    end: u64,
    /// The bytes that are requested ahead.
    window: u64,
}

impl<T: Clone> ReadAhead<T> {
    /// Begins with no parts, or with all of the file.
    pub fn new(size: u64, whole: Option<T>) -> Self {
        let kept: Vec<Part<T>> = whole.into_iter().map(|request| Part { range: 0..size, request }).collect();
        Self { size, kept_bytes: if kept.is_empty() { 0 } else { size }, kept, places: Vec::new() }
    }

    /// Returns the requests that have the bytes of a range, in order, each with the range in its bytes. Begins those that are
    /// missing, and those of the bytes that are likely to be read next.
    pub fn read(&mut self, range: Range<u64>, begin: &mut impl FnMut(Range<u64>) -> T) -> Vec<(T, Range<usize>)> {
        let (mut found, mut at) = (Vec::new(), range.start);
        while at < range.end.min(self.size) {
            if let Some(part) = self.kept.iter().find(|part| part.range.contains(&at)) {
                at = part.add(at..range.end, &mut found);
            } else if self.size - at <= PART_BYTES_MIN && self.size > END_IN_FILE_BYTES {
                self.keep(self.size - PART_BYTES_MIN..self.size, begin);
            } else if self.size <= PART_BYTES {
                self.keep(0..self.size, begin);
            } else {
                at = self.read_at_place(at..range.end, begin, &mut found);
            }
        }
        found
    }

    /// Begins to request ranges that will be read, each from its beginning to its end.
    pub fn will_read(&mut self, ranges: &[Range<u64>], begin: &mut impl FnMut(Range<u64>) -> T) {
        let ranges: Vec<Range<u64>> = ranges
            .iter()
            .map(|range| range.start..range.end.min(self.size))
            .filter(|range| !range.is_empty())
            .collect();
        if ranges.is_empty() {
            return;
        }
        let mut together = joined(&ranges);
        let sum = together.iter().fold(0u64, |sum, range| sum.saturating_add(range.end - range.start));
        if self.size <= PART_BYTES && sum > self.size / 2 {
            together.clear();
            together.push(0..self.size);
        }
        if self.kept_bytes.saturating_add(sum) <= KEPT_BYTES_MAX {
            together.into_iter().for_each(|range| self.keep_missing(range, begin));
            return;
        }
        for Range { start, end } in ranges.iter().rev() {
            self.add(ReadPlace { parts: VecDeque::new(), requested: *start, end: *end, window: 0 });
        }
        let (share, new) = (self.share(), ranges.len().min(self.places.len()));
        let first = self.places.len() - new;
        for place in self.places.iter_mut().skip(first) {
            place.window = share;
            place.request(place.requested, begin);
        }
    }

    /// Notes that a read at an offset takes more than one part, so that what follows is requested at once.
    pub fn will_go_on(&mut self, at: u64) {
        let share = self.share();
        match self.places.iter_mut().find(|place| place.holds(at)) {
            Some(place) => place.window = share,
            None if self.kept.iter().any(|part| part.range.contains(&at)) => {}
            None => self.add(ReadPlace { parts: VecDeque::new(), requested: at, end: self.size, window: share / 2 }),
        }
    }

    /// Reads at the place that holds the first byte, or at a new one. Returns the end of what was found.
    fn read_at_place(
        &mut self,
        range: Range<u64>,
        begin: &mut impl FnMut(Range<u64>) -> T,
        found: &mut Vec<(T, Range<usize>)>,
    ) -> u64 {
        let share = self.share();
        let place = match self.places.iter().position(|place| place.holds(range.start)) {
            Some(index) => {
                let mut place = self.places.remove(index);
                let length = range.end - range.start;
                place.window = place.window.max(length).saturating_mul(2).clamp(PART_BYTES_MIN.min(share), share);
                place
            }
            None => ReadPlace { parts: VecDeque::new(), requested: range.start, end: self.size, window: 0 },
        };
        self.add(place);
        let Some(place) = self.places.last_mut() else { return range.end };
        while place.parts.front().is_some_and(|part| part.range.end <= range.start) {
            place.parts.pop_front();
        }
        place.request(range.end, begin);
        let mut at = range.start;
        for part in place.parts.iter().take_while(|part| part.range.start < range.end) {
            at = part.add(at..range.end, found);
        }
        at
    }

    fn add(&mut self, place: ReadPlace<T>) {
        if self.places.len() >= PLACES_MAX {
            self.places.remove(0);
        }
        self.places.push(place);
    }

    /// The bytes that may be requested ahead of each place.
    fn share(&self) -> u64 {
        (WINDOW_BYTES / self.places.len().max(1) as u64).max(PART_BYTES_MIN)
    }

    fn keep(&mut self, range: Range<u64>, begin: &mut impl FnMut(Range<u64>) -> T) {
        self.kept_bytes += range.end - range.start;
        self.kept.push(Part { request: begin(range.clone()), range });
    }

    fn keep_missing(&mut self, range: Range<u64>, begin: &mut impl FnMut(Range<u64>) -> T) {
        let mut at = range.start;
        while at < range.end {
            let known = self.kept.iter().find(|part| part.range.contains(&at)).map(|part| part.range.end);
            let end = known.unwrap_or_else(|| range.end.min(at + PART_BYTES));
            if known.is_none() {
                self.keep(at..end, begin);
            }
            at = end;
        }
    }
}

impl<T: Clone> Part<T> {
    /// Adds the request for the bytes from the beginning of a range on. Returns where they end.
    fn add(&self, range: Range<u64>, found: &mut Vec<(T, Range<usize>)>) -> u64 {
        let end = range.end.min(self.range.end);
        let within = to_usize(range.start - self.range.start)..to_usize(end - self.range.start);
        found.push((self.request.clone(), within));
        end
    }
}

impl<T> ReadPlace<T> {
    fn holds(&self, at: u64) -> bool {
        let start = self.parts.front().map_or(self.requested, |part| part.range.start);
        start <= at && at <= self.requested && at < self.end
    }

    /// Requests what is missing up to `end`, and ahead of it.
    fn request(&mut self, end: u64, begin: &mut impl FnMut(Range<u64>) -> T) {
        let end = end.min(self.end);
        let part_bytes = (self.window / 4).clamp(PART_BYTES_MIN, PART_BYTES);
        let ahead = end.saturating_add(self.window).min(self.end);
        while self.requested < ahead || self.requested < end {
            let start = self.requested;
            // A read gets its own bytes in one request.
            let own = end.saturating_sub(start).min(PART_BYTES);
            let part_end = self.end.min(start + own.max(part_bytes));
            if start >= end && part_end > ahead {
                break;
            }
            self.parts.push_back(Part { request: begin(start..part_end), range: start..part_end });
            self.requested = part_end;
        }
    }
}

/// Joins ranges that are near each other.
fn joined(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_BYTES_MAX) => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}
