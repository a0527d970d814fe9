//! How the draws of a mixture are distributed over its sources.

use std::sync::OnceLock;

use stoker_types::{MixtureSegment, MixtureSpec, MixtureStop, to_usize};

use crate::Key;

/// Labels that keep the keys of mixtures distinct from those of orders, and from each other.
const MIXTURE: u64 = 4;
const TABLE: u64 = 0;
const CHOICE: u64 = 1;

/// The number of tables of a segment. Each period uses one of them.
const NUM_TABLES: usize = 8;

/// The number of passes over a table that exchange slots.
const NUM_PASSES: u64 = 8;

/// The number of different reaches of an exchange. A reach is one of the powers of two from 2^0 to 2^7 slots.
const REACH_BITS: u64 = 8;

/// The result of a draw: a source, and the index of a row of it, counted over the source's own epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The source's index.
    pub source: usize,
    /// The number of rows of the source that were drawn before.
    pub index: u64,
}

/// Assigns draws to sources, as a pure function of the weights and the seed.
///
/// After any number of draws since the weights were set, the draws of each source differ from its exact share by less
/// than one row. The table of a period is built on first use. Everything else is arithmetic, so that all draws take the
/// same time.
#[derive(Debug)]
pub struct Mixture {
    segments: Vec<Segment>,
}

#[derive(Debug)]
struct Segment {
    weights: MixtureSegment,
    period: u64,
    key: Key,
    tables: [OnceLock<Table>; NUM_TABLES],
}

/// For each slot of a period, its source, and the number of slots of that source before it.
type Table = Box<[(u32, u32)]>;

impl Mixture {
    /// Makes the mixture of a valid specification under a seed.
    pub fn new(spec: &MixtureSpec, seed: u64) -> Self {
        let key = Key::new(seed).with(MIXTURE);
        let segment = |weights: &MixtureSegment| Segment {
            weights: weights.clone(),
            period: weights.period(),
            key: key.with(weights.start),
            tables: Default::default(),
        };
        Self { segments: spec.segments.iter().map(segment).collect() }
    }

    /// Returns the source and row of draw `number`, counted over all epochs.
    pub fn draw(&self, number: u64) -> Draw {
        let segment = self.segment(number);
        let (period, slot) = segment.place(number);
        let (source, before) = segment.table(period)[slot];
        let source = source as usize;
        let weights = &segment.weights;
        Draw { source, index: weights.drawn[source] + period * u64::from(weights.slots[source]) + u64::from(before) }
    }

    /// Returns for each source the number of its draws before draw `number`.
    pub fn drawn_before(&self, number: u64) -> Vec<u64> {
        let segment = self.segment(number);
        let (period, slot) = segment.place(number);
        let full = |(drawn, slots): (&u64, &u32)| drawn + period * u64::from(*slots);
        let mut drawn: Vec<u64> = segment.weights.drawn.iter().zip(&segment.weights.slots).map(full).collect();
        segment.table(period)[..slot].iter().for_each(|(source, _)| drawn[*source as usize] += 1);
        drawn
    }

    /// Returns the number of rows in an epoch: the draws until `stop`, for sources of these sizes. It is `rows` for
    /// [`MixtureStop::Rows`]. Only the first weights are used.
    ///
    /// Returns `None` for more than 2^64 draws.
    pub fn epoch_rows(&self, sizes: &[u64], stop: MixtureStop, rows: u64) -> Option<u64> {
        let ends = sizes.iter().enumerate().map(|(source, size)| self.rows_until(source, *size));
        match stop {
            MixtureStop::Rows => Some(rows),
            MixtureStop::First => ends.flatten().min(),
            MixtureStop::All => ends.collect::<Option<Vec<u64>>>()?.into_iter().max(),
        }
    }

    /// Returns the number of draws until a source has delivered `size` rows. `size` must be at least 1.
    fn rows_until(&self, source: usize, size: u64) -> Option<u64> {
        let segment = &self.segments[0];
        let slots = u64::from(segment.weights.slots[source]);
        let (period, nth) = ((size - 1) / slots, (size - 1) % slots);
        let is_wanted = |slot: &(u32, u32)| slot.0 as usize == source && u64::from(slot.1) == nth;
        let slot = segment.table(period).iter().position(is_wanted)? as u64;
        period.checked_mul(segment.period)?.checked_add(slot)?.checked_add(1)
    }

    fn segment(&self, number: u64) -> &Segment {
        let after = self.segments.partition_point(|segment| segment.weights.start <= number);
        &self.segments[after - 1]
    }
}

impl Segment {
    /// Returns the period and the slot of a draw.
    fn place(&self, number: u64) -> (u64, usize) {
        let since = number - self.weights.start;
        (since / self.period, to_usize(since % self.period))
    }

    fn table(&self, period: u64) -> &Table {
        let choice = self.key.with(CHOICE).with(period).bits() % NUM_TABLES as u64;
        self.tables[to_usize(choice)].get_or_init(|| table(&self.weights.slots, self.key.with(TABLE).with(choice)))
    }
}

/// Makes a table in which source s has `slots[s]` slots, such that every prefix of k slots holds it ⌊k·slots[s]/P⌋ or
/// ⌈k·slots[s]/P⌉ times.
///
/// The bounds give each slot a range of possible indexes. The table begins as the earliest-deadline-first schedule of
/// these ranges, as in Pfair scheduling (Baruah, Cohen, Plaxton and Varvel, Algorithmica 1996). Then pairs of slots are
/// exchanged wherever the bounds still hold.
fn table(slots: &[u32], key: Key) -> Table {
    let bounds = Bounds::new(slots);
    let mut sources = schedule(&bounds);
    let mut counts = Counts::of(&sources, slots.len());
    for pass in 0..NUM_PASSES {
        let key = key.with(pass);
        for first in 0..sources.len() {
            let random = key.with(first as u64).bits();
            let reach = 1 << (random % REACH_BITS);
            let second = first + 1 + to_usize((random >> 32) % reach);
            if second < sources.len() {
                exchange(&mut sources, &mut counts, &bounds, first, second);
            }
        }
    }
    let mut before = vec![0; slots.len()];
    #[expect(clippy::cast_possible_truncation, reason = "a mixture has at most `SOURCES_MAX` sources")]
    let numbered = sources.iter().map(|source| {
        let nth = before[*source];
        before[*source] += 1;
        (*source as u32, nth)
    });
    numbered.collect()
}

/// Exchanges two slots if the bounds of all prefixes between them still hold afterwards.
fn exchange(sources: &mut [usize], counts: &mut Counts, bounds: &Bounds, first: usize, second: usize) {
    let (moved_back, moved_on) = (sources[second], sources[first]);
    let fits = |k: usize| {
        counts.get(k, moved_on) > bounds.low(k, moved_on) && counts.get(k, moved_back) < bounds.high(k, moved_back)
    };
    if moved_back == moved_on || !(first + 1..=second).all(fits) {
        return;
    }
    for k in first + 1..=second {
        *counts.at(k, moved_on) -= 1;
        *counts.at(k, moved_back) += 1;
    }
    sources.swap(first, second);
}

/// Returns the earliest-deadline-first schedule: the source of each slot.
fn schedule(bounds: &Bounds) -> Vec<usize> {
    let mut taken = vec![0u64; bounds.slots.len()];
    let period = to_usize(bounds.period);
    let mut sources = Vec::with_capacity(period);
    for k in 1..=period {
        let ready = (0..taken.len()).filter(|source| taken[*source] < bounds.high(k, *source));
        // The deadline is the smallest k whose lower bound requires one more slot of the source.
        let deadline =
            |source: &usize| ((taken[*source] + 1) * bounds.period).div_ceil(u64::from(bounds.slots[*source]));
        let next = ready.min_by_key(deadline).unwrap_or_default();
        taken[next] += 1;
        sources.push(next);
    }
    sources
}

/// The bounds on the number of slots of a source among the first k slots.
struct Bounds<'a> {
    slots: &'a [u32],
    period: u64,
}

impl<'a> Bounds<'a> {
    fn new(slots: &'a [u32]) -> Self {
        Self { slots, period: slots.iter().map(|slots| u64::from(*slots)).sum() }
    }

    fn low(&self, k: usize, source: usize) -> u64 {
        k as u64 * u64::from(self.slots[source]) / self.period
    }

    fn high(&self, k: usize, source: usize) -> u64 {
        (k as u64 * u64::from(self.slots[source])).div_ceil(self.period)
    }
}

/// The number of slots of each source among the first k slots, for every k.
struct Counts {
    num_sources: usize,
    counts: Vec<u64>,
}

impl Counts {
    fn of(sources: &[usize], num_sources: usize) -> Self {
        let mut counts = vec![0; num_sources];
        for source in sources {
            let last = counts.len() - num_sources;
            counts.extend_from_within(last..);
            let last = counts.len() - num_sources;
            counts[last + source] += 1;
        }
        Self { num_sources, counts }
    }

    fn get(&self, k: usize, source: usize) -> u64 {
        self.counts[k * self.num_sources + source]
    }

    fn at(&mut self, k: usize, source: usize) -> &mut u64 {
        &mut self.counts[k * self.num_sources + source]
    }
}
