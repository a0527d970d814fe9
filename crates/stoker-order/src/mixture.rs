//! How the draws of a mixture are dealt to its sources.

use std::sync::OnceLock;

use stoker_types::{MixtureSegment, MixtureSpec, MixtureStop};

use crate::Key;

/// Labels that keep the keys of mixtures apart from those of orders, and from each other.
const MIXTURE: u64 = 4;
const TABLE: u64 = 0;
const CHOICE: u64 = 1;

/// Tables per segment; each period takes one of them.
const NUM_TABLES: u64 = 8;

/// Passes of exchanges over a table.
const NUM_PASSES: u64 = 8;

/// Exchanges reach at most so many slots ahead, as a power of two.
const REACH_BITS: u64 = 8;

/// One draw: the row number `index`, counted over the source's own epochs, of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Which source.
    pub source: usize,
    /// How many rows of the source were drawn before.
    pub index: u64,
}

/// Deals draws to sources: a pure function of weights and seed.
///
/// After any number of draws since the weights were set, each source has its share of them, give or take less than one row.
/// Tables of one period are made on first use; everything else is arithmetic, so that any draw costs the same.
#[derive(Debug)]
pub struct Mixture {
    segments: Vec<Segment>,
}

#[derive(Debug)]
struct Segment {
    weights: MixtureSegment,
    period: u64,
    key: Key,
    tables: [OnceLock<Table>; NUM_TABLES as usize],
}

/// For each slot of a period, its source, and how many slots of that source come before it.
type Table = Box<[(u32, u32)]>;

impl Mixture {
    /// The mixture of a specification that is valid, under a seed.
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

    /// The source and row of a draw, counted over all epochs.
    pub fn draw(&self, number: u64) -> Draw {
        let segment = self.segment(number);
        let (period, slot) = segment.place(number);
        let (source, before) = segment.table(period)[slot];
        let source = source as usize;
        let weights = &segment.weights;
        Draw { source, index: weights.drawn[source] + period * u64::from(weights.slots[source]) + u64::from(before) }
    }

    /// For each source, its draws before a draw.
    pub fn drawn_before(&self, number: u64) -> Vec<u64> {
        let segment = self.segment(number);
        let (period, slot) = segment.place(number);
        let full = |(drawn, slots): (&u64, &u32)| drawn + period * u64::from(*slots);
        let mut drawn: Vec<u64> = segment.weights.drawn.iter().zip(&segment.weights.slots).map(full).collect();
        segment.table(period)[..slot].iter().for_each(|(source, _)| drawn[*source as usize] += 1);
        drawn
    }

    /// How many draws deliver sources of these sizes until `stop`; `rows` for [`MixtureStop::Rows`]. Looks at the first weights.
    ///
    /// `None` past 2^64.
    pub fn epoch_rows(&self, sizes: &[u64], stop: MixtureStop, rows: u64) -> Option<u64> {
        let ends = sizes.iter().enumerate().map(|(source, size)| self.rows_until(source, *size));
        match stop {
            MixtureStop::Rows => Some(rows),
            MixtureStop::First => ends.flatten().min(),
            MixtureStop::All => ends.collect::<Option<Vec<u64>>>()?.into_iter().max(),
        }
    }

    /// Draws until a source has delivered `size` rows, at least one.
    fn rows_until(&self, source: usize, size: u64) -> Option<u64> {
        let segment = &self.segments[0];
        let slots = u64::from(segment.weights.slots[source]);
        let (period, nth) = ((size - 1) / slots, (size - 1) % slots);
        let wanted = (source as u32, nth as u32);
        let slot = segment.table(period).iter().position(|slot| *slot == wanted)? as u64;
        period.checked_mul(segment.period)?.checked_add(slot)?.checked_add(1)
    }

    fn segment(&self, number: u64) -> &Segment {
        let after = self.segments.partition_point(|segment| segment.weights.start <= number);
        &self.segments[after - 1]
    }
}

impl Segment {
    /// Period and slot of a draw.
    fn place(&self, number: u64) -> (u64, usize) {
        let since = number - self.weights.start;
        (since / self.period, (since % self.period) as usize)
    }

    fn table(&self, period: u64) -> &Table {
        let choice = self.key.with(CHOICE).with(period).bits() % NUM_TABLES;
        self.tables[choice as usize].get_or_init(|| table(&self.weights.slots, self.key.with(TABLE).with(choice)))
    }
}

/// A table that holds source s `slots[s]` times, such that each prefix of k slots holds it ⌊k·slots[s]/P⌋ or ⌈k·slots[s]/P⌉ times.
///
/// Begins with the earliest-deadline-first schedule of the windows in which each slot must fall for that, as in Pfair scheduling
/// (Baruah, Cohen, Plaxton and Varvel, Algorithmica 1996), and exchanges pairs of slots wherever the rule still holds.
fn table(slots: &[u32], key: Key) -> Table {
    let bounds = Bounds::new(slots);
    let mut sources = schedule(&bounds);
    let mut counts = Counts::of(&sources, slots.len());
    for pass in 0..NUM_PASSES {
        let key = key.with(pass);
        for first in 0..sources.len() {
            let random = key.with(first as u64).bits();
            let reach = 1 << (random % REACH_BITS);
            let second = first + 1 + ((random >> 32) % reach) as usize;
            if second < sources.len() {
                exchange(&mut sources, &mut counts, &bounds, first, second);
            }
        }
    }
    let mut before = vec![0; slots.len()];
    let numbered = sources.iter().map(|source| {
        let nth = before[*source];
        before[*source] += 1;
        (*source as u32, nth)
    });
    numbered.collect()
}

/// Exchanges two slots, if the counts between them allow it.
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

/// The earliest-deadline-first schedule.
fn schedule(bounds: &Bounds) -> Vec<usize> {
    let mut taken = vec![0u64; bounds.slots.len()];
    let mut sources = Vec::with_capacity(bounds.period as usize);
    for k in 1..=bounds.period as usize {
        let ready = (0..taken.len()).filter(|source| taken[*source] < bounds.high(k, *source));
        // The k at which the lower bound asks for one more.
        let deadline =
            |source: &usize| ((taken[*source] + 1) * bounds.period).div_ceil(u64::from(bounds.slots[*source]));
        let next = ready.min_by_key(deadline).unwrap_or_default();
        taken[next] += 1;
        sources.push(next);
    }
    sources
}

/// How many of the first k slots may be a source's.
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

/// How many of the first k slots are a source's, for every k.
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
