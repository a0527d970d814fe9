//! `stoker bench s3`: streams from an object store with a chosen latency, compared with raw GETs.

use std::path::Path;

use crate::data::DataSet;
use crate::repetitions;
use crate::report::{Role, Section};
use crate::runs::{BenchRun, WAYS};
use crate::settings::Settings;
use crate::store::Store;

/// The bytes of each GET of the ceiling, and its number of connections.
const GET_BYTES: u64 = 8 << 20;
const CONNECTIONS: u64 = 16;

/// The share of the ceiling that streams should reach.
const BAR: f64 = 0.90;

/// Measures GETs and streams, alternately.
pub fn measure(settings: &Settings, dir: &Path, data: &DataSet) -> anyhow::Result<Section> {
    let mut section = Section::new("S3", settings, data);
    let store = Store::start(dir, settings.latency_ms)?;
    let (query, ranges) = (data.query(), data.ranges(GET_BYTES)?);
    for turn in repetitions("S3", settings, data) {
        section.begin(turn);
        section.measure("raw GETs", Role::Ceiling, || {
            store.measured(|| store.get_ranges(data, &ranges, CONNECTIONS, settings.epochs))
        })?;
        for (name, shuffle) in WAYS {
            let run = BenchRun {
                query: &query,
                batch_size: settings.batch_size,
                epochs: settings.epochs,
                shuffle,
                target: store.lake_args(),
            };
            section.measure(name, Role::Path { bar: Some(BAR) }, || store.measured(|| run.measure()))?;
        }
    }
    section.note(format!(
        "{} ms before each response. Raw GETs: the same bytes, 8 MiB each, over {CONNECTIONS} connections, by a client that \
         does nothing else. Requests and bytes read are those that the store counted.",
        settings.latency_ms
    ));
    Ok(section)
}
