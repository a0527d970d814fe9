//! Mixtures: how the rows of several queries are interleaved.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Digest, Error, Result};

/// The version of the interleaving's definition (`crates/stoker-order/ORDER.md`). A change of any formula is a new version.
pub const MIXTURE_VERSION: u32 = 1;

/// The most sources of a mixture.
pub const SOURCES_MAX: usize = 64;

/// The most slots of a period: weights are multiples of one part in so many.
const PERIOD_MAX: u32 = 65_536;

/// Periods have at least so many slots, as far as the weights allow, so that there is room to vary them.
const PERIOD_MIN: u32 = 1_024;

/// The most weights that one specification holds.
const SEGMENTS_MAX: usize = 4_096;

/// A specification with so many weights keeps them: the one after the next change names it in place of repeating them.
const OWN_SEGMENTS_MAX: usize = 32;

/// What ends an epoch of a mixture. Sources that end earlier begin their next epoch; the others go on in the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MixtureStop {
    /// The first source that was delivered whole.
    First,
    /// The last source that was delivered whole.
    All,
    /// A given number of rows.
    Rows,
}

impl MixtureStop {
    /// The name in specifications and options.
    pub fn as_str(self) -> &'static str {
        match self {
            MixtureStop::First => "first",
            MixtureStop::All => "all",
            MixtureStop::Rows => "rows",
        }
    }

    /// The rule of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [MixtureStop::First, MixtureStop::All, MixtureStop::Rows].into_iter().find(|stop| stop.as_str() == name)
    }
}

/// How the rows of several sources are interleaved, frozen in a stream's specification.
///
/// Draws are counted over all epochs: draw `epoch · num_rows + position`. Each one takes the next row of one source, whose own
/// epochs follow each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureSpec {
    /// The definition, [`MIXTURE_VERSION`].
    pub version: u32,
    /// What decided the length of an epoch.
    pub stop: MixtureStop,
    /// Weights from a draw on; the first begins at 0, and their starts ascend.
    pub segments: Vec<MixtureSegment>,
    /// The stream before some change of weights: its specification has the weights between the first two segments of this one. Without
    /// it, there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Digest>,
}

/// The weights from a draw on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixtureSegment {
    /// The first draw.
    pub start: u64,
    /// For each source, its draws before `start`.
    pub drawn: Vec<u64>,
    /// For each source, its draws in a period; the period is their sum.
    pub slots: Vec<u32>,
}

impl MixtureSegment {
    /// Draws in a period.
    pub fn period(&self) -> u64 {
        self.slots.iter().map(|slots| u64::from(*slots)).sum()
    }

    /// The share of each source, as it is kept.
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
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] naming what is wrong.
    pub fn validate(&self, num_sources: usize) -> Result<()> {
        let fail = |reason: String| Err(Error::InvalidValue { what: "mixture", reason });
        if self.version != MIXTURE_VERSION {
            return fail(format!("this build knows version {MIXTURE_VERSION}, the stream has {}", self.version));
        }
        if num_sources > SOURCES_MAX || self.segments.is_empty() || self.segments.len() > SEGMENTS_MAX {
            return fail(format!(
                "{num_sources} sources and {} changes of weights; the most are {SOURCES_MAX} and {SEGMENTS_MAX}",
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
                return fail(format!("the draws {:?} before draw {} are impossible", segment.drawn, segment.start));
            }
            (start, drawn) = (segment.start, segment.drawn.clone());
        }
        match self.segments[0].start {
            0 if self.earlier.is_some() && self.segments.len() < 2 => {
                fail("it names an earlier stream and has no weights after that".into())
            }
            0 => Ok(()),
            start => fail(format!("it begins at draw {start}")),
        }
    }

    /// Whether one of the two is the other after its weights were changed, as far as both tell.
    pub fn continues(&self, other: &MixtureSpec) -> bool {
        let first = (self.version, self.stop, self.segments.first());
        let same = first == (other.version, other.stop, other.segments.first());
        same && self.agrees_with(other) && other.agrees_with(self)
    }

    /// Whether the weights are those of `other` wherever its segments tell.
    fn agrees_with(&self, other: &MixtureSpec) -> bool {
        let last = other.last_start();
        let mut told = self.segments.iter().filter(|mine| other.knows(mine.start) && mine.start <= last);
        told.all(|mine| other.segments.contains(mine))
    }

    /// Whether the weights of a draw, and of those after it, are in this specification, not in an earlier one.
    pub fn knows(&self, draw: u64) -> bool {
        self.earlier.is_none() || self.segments.get(1).is_some_and(|oldest| oldest.start <= draw)
    }

    /// The draw at which the weights changed last.
    pub fn last_start(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.start)
    }

    /// The same mixture with other weights from a draw on, which it must [know](MixtureSpec::knows) unless it is the first one. `own_id`
    /// is the stream of this mixture, where the new one may name it in place of repeating what it holds: then specifications have a
    /// bounded size, however often weights change.
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

    /// The same mixture with the weights that the specification of its earlier stream holds.
    #[must_use]
    pub fn preceded_by(&self, earlier: &MixtureSpec) -> Self {
        let oldest = self.segments.get(1).map_or(u64::MAX, |oldest| oldest.start);
        let mut segments: Vec<MixtureSegment> =
            earlier.segments.iter().filter(|segment| segment.start < oldest).cloned().collect();
        segments.extend(self.segments.iter().skip(1).cloned());
        Self { segments, earlier: earlier.earlier, ..self.clone() }
    }
}

/// The slots of a period for these weights, which need not add up to one: exact where a period of at most 65,536 slots can be,
/// else rounded to the nearest 65,536th.
///
/// # Errors
/// [`Error::InvalidValue`] for no or too many weights, or one that is not positive or too small.
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
            shares.iter().map(|share| (share * f64::from(period)).round() as u32 * times).collect()
        }
        None => largest_remainders(&shares),
    };
    Ok(slots)
}

/// [`PERIOD_MAX`] slots dealt by the method of largest remainders, at least one for each share.
fn largest_remainders(shares: &[f64]) -> Vec<u32> {
    let ideal: Vec<f64> = shares.iter().map(|share| share * f64::from(PERIOD_MAX)).collect();
    let mut slots: Vec<u32> = ideal.iter().map(|ideal| (*ideal as u32).max(1)).collect();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    let rest = |index: &usize| ideal[*index] - ideal[*index].floor();
    order.sort_by(|a, b| rest(b).total_cmp(&rest(a)).then(a.cmp(b)));
    let dealt: u32 = slots.iter().sum();
    for index in order.iter().cycle().take(PERIOD_MAX.saturating_sub(dealt) as usize) {
        slots[*index] += 1;
    }
    slots
}
