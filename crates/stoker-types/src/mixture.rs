//! Mixtures: how the rows of several queries are interleaved.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Digest, Error, Result, round_to_u32};

/// The version of the definition of the interleaving (`crates/stoker-order/ORDER.md`). A change of any formula makes a
/// new version.
pub const MIXTURE_VERSION: u32 = 1;

/// The largest number of sources in a mixture.
pub const SOURCES_MAX: usize = 64;

/// The largest number of slots in a period. Weights are therefore multiples of 1/65,536 at the finest.
const PERIOD_MAX: u32 = 65_536;

/// The smallest number of slots in a period, where the weights allow it. Long periods leave room to vary the order of
/// the draws.
const PERIOD_MIN: u32 = 1_024;

/// The largest number of segments in one specification.
const SEGMENTS_MAX: usize = 4_096;

/// A specification with this many segments is not copied further: after the next change of weights, the new
/// specification names the stream of this one ([`MixtureSpec::earlier`]) and repeats only its first segment.
const OWN_SEGMENTS_MAX: usize = 32;

/// What ends an epoch of a mixture. A source that ends before the mixture's epoch begins its own next epoch; a source
/// that has not ended continues in the mixture's next epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MixtureStop {
    /// The epoch ends when the first source has been delivered completely.
    First,
    /// The epoch ends when every source has been delivered completely.
    All,
    /// The epoch ends after a given number of rows.
    Rows,
}

impl MixtureStop {
    /// Returns the rule's name in specifications and options.
    pub fn as_str(self) -> &'static str {
        match self {
            MixtureStop::First => "first",
            MixtureStop::All => "all",
            MixtureStop::Rows => "rows",
        }
    }

    /// Returns the rule with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [MixtureStop::First, MixtureStop::All, MixtureStop::Rows].into_iter().find(|stop| stop.as_str() == name)
    }
}

/// How the rows of several sources are interleaved, frozen in a stream's specification.
///
/// Draws are counted over all epochs: position `p` of epoch `e` is draw `e · num_rows + p`. Each draw takes the next
/// row of one source. The epochs of that source follow one another, independently of the mixture's epochs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureSpec {
    /// The version of the definition, [`MIXTURE_VERSION`].
    pub version: u32,
    /// The rule by which the length of an epoch was computed.
    pub stop: MixtureStop,
    /// The weights, each from one draw on. The first segment begins at draw 0, and the starts ascend.
    pub segments: Vec<MixtureSegment>,
    /// The stream that preceded a change of weights. Its specification holds the segments between the first two of this
    /// one. If it is `None`, there are no segments between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Digest>,
}

/// The weights that hold from one draw on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureSegment {
    /// The first draw with these weights.
    pub start: u64,
    /// For each source, the number of its draws before `start`.
    pub drawn: Vec<u64>,
    /// For each source, the number of its draws in a period. The period is the sum of these numbers.
    pub slots: Vec<u32>,
}

impl MixtureSegment {
    /// Returns the number of draws in a period.
    pub fn period(&self) -> u64 {
        self.slots.iter().map(|slots| u64::from(*slots)).sum()
    }

    /// Returns the weight of each source, as rounded to slots. The weights add up to one.
    pub fn weights(&self) -> Vec<f64> {
        let period = self.period().max(1) as f64;
        self.slots.iter().map(|slots| f64::from(*slots) / period).collect()
    }
}

impl fmt::Display for MixtureSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            let weights: Vec<String> = segment.weights().iter().map(|weight| format!("{weight:.4}")).collect();
            let gap = if index == 1 && self.earlier.is_some() { ", …" } else { "" };
            let from = if index == 0 { String::new() } else { format!("{gap}, from draw {} on ", segment.start) };
            write!(f, "{from}{}", weights.join(" : "))?;
        }
        write!(f, ", stop {}", self.stop.as_str())
    }
}

impl MixtureSpec {
    /// Checks that the version, the segments and the numbers of draws are consistent and within their limits.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] naming what is wrong.
    pub fn validate(&self, num_sources: usize) -> Result<()> {
        let fail = |reason: String| Err(Error::InvalidValue { what: "mixture", reason });
        if self.version != MIXTURE_VERSION {
            return fail(format!("its version is {}; this build of Stoker reads {MIXTURE_VERSION}", self.version));
        }
        if num_sources > SOURCES_MAX || self.segments.is_empty() || self.segments.len() > SEGMENTS_MAX {
            return fail(format!(
                "it has {num_sources} sources and {} sets of weights; the limits are {SOURCES_MAX} and {SEGMENTS_MAX}",
                self.segments.len()
            ));
        }
        let mut drawn = vec![0; num_sources];
        let mut start = 0;
        for segment in &self.segments {
            let period = segment.period();
            let fits = segment.slots.len() == num_sources && segment.drawn.len() == num_sources;
            if !fits || segment.slots.contains(&0) || period > u64::from(PERIOD_MAX) {
                return fail(format!("its weights {:?} do not fit {num_sources} sources", segment.slots));
            }
            let total = segment.drawn.iter().try_fold(0u64, |sum, drawn| sum.checked_add(*drawn));
            let went_back = segment.drawn.iter().zip(&drawn).any(|(now, before)| now < before);
            if segment.start < start || total != Some(segment.start) || went_back {
                return fail(format!(
                    "the draws {:?} of its sources do not add up to {}",
                    segment.drawn, segment.start
                ));
            }
            (start, drawn) = (segment.start, segment.drawn.clone());
        }
        match self.segments[0].start {
            0 if self.earlier.is_some() && self.segments.len() < 2 => {
                fail("it names an earlier stream, but has only one set of weights".into())
            }
            0 => Ok(()),
            start => fail(format!("its first weights begin at draw {start}, not at draw 0")),
        }
    }

    /// Returns whether one of the two mixtures results from the other by changes of weights, as far as the two
    /// specifications show.
    pub fn continues(&self, other: &MixtureSpec) -> bool {
        let first = (self.version, self.stop, self.segments.first());
        let same = first == (other.version, other.stop, other.segments.first());
        same && self.agrees_with(other) && other.agrees_with(self)
    }

    /// Returns whether each segment that `other` can confirm is also a segment of `other`.
    fn agrees_with(&self, other: &MixtureSpec) -> bool {
        let last = other.last_start();
        let mut told = self.segments.iter().filter(|mine| other.knows(mine.start) && mine.start <= last);
        told.all(|mine| other.segments.contains(mine))
    }

    /// Returns whether this specification itself, without the earlier one, holds the weights of `draw` and of all draws
    /// after it.
    pub fn knows(&self, draw: u64) -> bool {
        self.earlier.is_none() || self.segments.get(1).is_some_and(|oldest| oldest.start <= draw)
    }

    /// Returns the draw at which the weights changed last.
    pub fn last_start(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.start)
    }

    /// Returns the same mixture with other weights from a draw on. This specification must [know](MixtureSpec::knows)
    /// that draw, unless it is draw 0.
    ///
    /// `own_id` is the stream id of this mixture, where the new specification may refer to it. With it, the new
    /// specification names this stream in place of repeating 32 or more segments, so that specifications have a bounded
    /// size however often the weights change.
    #[must_use]
    pub fn changed(&self, segment: MixtureSegment, own_id: Option<Digest>) -> Self {
        let before = self.segments.iter().filter(|before| before.start < segment.start);
        let mut segments: Vec<MixtureSegment> = before.cloned().collect();
        let mut earlier = self.earlier.filter(|_| !segments.is_empty());
        if let Some(own_id) = own_id.filter(|_| segments.len() >= OWN_SEGMENTS_MAX) {
            segments.truncate(1);
            earlier = Some(own_id);
        }
        segments.push(segment);
        Self { segments, earlier, ..self.clone() }
    }

    /// Returns the same mixture with the segments that the specification of its earlier stream holds.
    #[must_use]
    pub fn preceded_by(&self, earlier: &MixtureSpec) -> Self {
        let oldest = self.segments.get(1).map_or(u64::MAX, |oldest| oldest.start);
        let mut segments: Vec<MixtureSegment> =
            earlier.segments.iter().filter(|segment| segment.start < oldest).cloned().collect();
        segments.extend(self.segments.iter().skip(1).cloned());
        Self { segments, earlier: earlier.earlier, ..self.clone() }
    }
}

/// Returns the number of slots in a period for each weight. The weights need not add up to one. They are represented
/// exactly if a period of at most 65,536 slots can do so, else rounded to multiples of 1/65,536.
///
/// # Errors
/// [`Error::InvalidValue`] if there are no weights or more than 64, or if a weight is not positive or less than
/// 1/65,536 of their sum.
pub fn slots_for(weights: &[f64]) -> Result<Vec<u32>> {
    let fail = |reason: String| Err(Error::InvalidValue { what: "weights", reason });
    if weights.is_empty() || weights.len() > SOURCES_MAX {
        return fail(format!("{} were given; a mixture has 1 to {SOURCES_MAX} sources", weights.len()));
    }
    if let Some(weight) = weights.iter().find(|weight| !(weight.is_finite() && **weight > 0.0)) {
        return fail(format!("{weight} is not a positive number"));
    }
    let total: f64 = weights.iter().sum();
    let shares: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
    if !total.is_finite() || shares.iter().any(|share| *share < 1.0 / f64::from(PERIOD_MAX)) {
        return fail(format!("a weight is less than 1/{PERIOD_MAX} of their sum, {total}"));
    }
    let exact = |period: &u32| {
        let near = |share: &f64| {
            let slots = share * f64::from(*period);
            (slots - slots.round()).abs() <= 1e-9 * f64::from(*period) && slots.round() >= 1.0
        };
        shares.iter().all(near)
    };
    let slots = match (1..=PERIOD_MAX).find(exact) {
        Some(period) => {
            let times = PERIOD_MIN.div_ceil(period);
            shares.iter().map(|share| round_to_u32(share * f64::from(period)) * times).collect()
        }
        None => largest_remainders(&shares),
    };
    Ok(slots)
}

/// Divides [`PERIOD_MAX`] slots by the method of largest remainders, with at least one slot for each share.
fn largest_remainders(shares: &[f64]) -> Vec<u32> {
    let ideal: Vec<f64> = shares.iter().map(|share| share * f64::from(PERIOD_MAX)).collect();
    let mut slots: Vec<u32> = ideal.iter().map(|ideal| round_to_u32(ideal.floor()).max(1)).collect();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    let rest = |index: &usize| ideal[*index] - ideal[*index].floor();
    order.sort_by(|a, b| rest(b).total_cmp(&rest(a)).then(a.cmp(b)));
    let dealt: u32 = slots.iter().sum();
    for index in order.iter().cycle().take(PERIOD_MAX.saturating_sub(dealt) as usize) {
        slots[*index] += 1;
    }
    slots
}
