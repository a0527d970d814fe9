//! `stoker bench local`: streams in process, compared with reads of the same bytes from the page cache.

use std::path::Path;

use crate::data::DataSet;
use crate::raw::{Passes, threads};
use crate::report::{Role, Section};
use crate::runs::{BenchRun, WAYS};
use crate::settings::{Settings, lake_in};
use crate::{lake_args, repetitions};

/// The shares of the rate of page-cache reads that sequential and block-shuffled streams should reach.
const BARS: [f64; 2] = [0.85, 0.75];

/// Measures copies, page-cache reads and streams, alternately.
pub fn measure(settings: &Settings, dir: &Path, data: &DataSet) -> anyhow::Result<Section> {
    let mut section = Section::new("in process", settings, data);
    let (query, target) = (data.query(), lake_args(&lake_in(dir))?);
    let buffer_bytes = settings.batch_size.min(data.num_rows) * data.kind.row_bytes();
    let passes = |threads| Passes { threads, buffer_bytes, epochs: settings.epochs };
    let all = passes(threads());
    for turn in repetitions("in process", settings, data) {
        section.begin(turn);
        section.measure("memcpy, 1 thread", Role::Reference, || passes(1).memcpy(data))?;
        if all.threads > 1 {
            let name = format!("memcpy, {} threads", all.threads);
            section.measure(&name, Role::Reference, || all.memcpy(data))?;
        }
        section.measure("page-cache reads", Role::Ceiling, || all.page_cache(data))?;
        for ((name, shuffle), bar) in WAYS.into_iter().zip(BARS) {
            let verified = BenchRun {
                query: &query,
                batch_size: settings.batch_size,
                epochs: settings.epochs,
                shuffle,
                target: target.clone(),
            };
            section.measure(name, Role::Path { bar: Some(bar) }, || verified.measure())?;
            let unverified = [target.clone(), vec!["--no-verify".to_string()]].concat();
            let unverified = BenchRun { target: unverified, ..verified };
            section.measure(&format!("{name}, not verified"), Role::Path { bar: None }, || unverified.measure())?;
        }
    }
    section.note(format!(
        "Page-cache reads: {} threads, as many as a stream has, into rotating buffers of a batch.",
        all.threads
    ));
    Ok(section)
}
