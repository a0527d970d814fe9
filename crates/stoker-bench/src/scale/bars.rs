//! The limits for the figures at the default size.

use std::fmt;

use serde::Serialize;

use crate::scale::report::QueryReport;
use crate::scale::step::OpenedAt;

/// A figure, with the limit that it must stay below.
#[derive(Debug, Serialize)]
pub struct Bar {
    what: &'static str,
    /// `None` if the kernel does not report the figure.
    measured: Option<f64>,
    limit: f64,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Unit {
    Secs,
    /// Units of 10^6 bytes.
    Megabytes,
    /// A ratio.
    Times,
}

impl Bar {
    /// Whether the bar fails the run. Only bars for memory do: times depend on the other load of the machine.
    pub fn fails(&self) -> bool {
        self.unit == Unit::Megabytes && self.is_missed()
    }

    fn is_missed(&self) -> bool {
        self.measured.is_some_and(|measured| measured >= self.limit)
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Secs => " s",
            Unit::Megabytes => " MB",
            Unit::Times => " times",
        };
        match self.measured {
            Some(measured) => write!(f, "{}: {measured:.3}{unit} (bar {}{unit})", self.what, self.limit)?,
            None => write!(f, "{}: not measured, the kernel does not tell (bar {}{unit})", self.what, self.limit)?,
        }
        f.write_str(if self.is_missed() { ", missed" } else { "" })
    }
}

/// Returns the bars for 10^9 rows. `half` is the query that keeps half of the rows; the bars for row sets are about its
/// row set. The other bars are about the worst figure of all queries.
pub fn bars(queries: &[QueryReport], half: &QueryReport) -> Vec<Bar> {
    let plans = || queries.iter().flat_map(|query| &query.planned.places);
    let plan_secs = worst(plans().map(|place| Some(place.secs)));
    let plan_bytes = worst(plans().map(|place| place.bytes.map(megabytes)));
    let deep_secs = worst(queries.iter().map(|query| ratio(&query.opened.places, |place| place.first_batch_secs)));
    let deep_bytes = worst(queries.iter().map(|query| ratio(&query.opened.places, |place| place.bytes_read as f64)));
    let in_memory = Some(megabytes(half.planned.bytes_in_memory.max(half.planned.bytes_resident)));
    let on_disk = Some(megabytes(half.bytes_on_disk));
    let bar = |what, measured, limit, unit| Bar { what, measured, limit, unit };
    vec![
        bar("planning an epoch", plan_secs, 1.0, Unit::Secs),
        bar("memory to plan an epoch", plan_bytes, 128.0, Unit::Megabytes),
        bar("first batch deep inside an epoch, seconds over those at its start", deep_secs, 1.5, Unit::Times),
        bar("first batch deep inside an epoch, bytes read over those at its start", deep_bytes, 1.1, Unit::Times),
        bar("row set of half of the rows, in memory", in_memory, 256.0, Unit::Megabytes),
        bar("row set of half of the rows, on disk", on_disk, 256.0, Unit::Megabytes),
    ]
}

/// Divides a figure deep inside an epoch by the figure at its start; returns `None` if the latter is zero.
fn ratio([start, deep]: &[OpenedAt; 2], figure: impl Fn(&OpenedAt) -> f64) -> Option<f64> {
    (figure(start) > 0.0).then(|| figure(deep) / figure(start))
}

/// Returns the largest value, or `None` if one is missing.
fn worst(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.reduce(|worst, value| Some(worst?.max(value?))).flatten()
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
