//! `stoker bench select`: streams a scattered twentieth of a table, selected by a predicate, from an object store.

use std::path::Path;

use anyhow::ensure;

use crate::data::{ByteRange, DataSet, PICKS, pick};
use crate::repetitions;
use crate::report::{Role, Section};
use crate::runs::BenchRun;
use crate::settings::Settings;
use crate::store::Store;

/// The value of `pick` in the selected rows.
const PICKED: u64 = 7;

/// The number of connections of the ceiling, which is the number of concurrent requests of a stream.
const CONNECTIONS: u64 = 128;

/// The limits within which streams merge rows into one request to an object store: the unwanted bytes between two rows,
/// and the bytes of a request. In addition, a request has at most as many unwanted bytes as wanted ones.
const GAP_BYTES_MAX: u64 = 128 << 10;
const GET_BYTES_MAX: u64 = 8 << 20;

/// The share of the ceiling that streams should reach.
const BAR: f64 = 0.80;

/// Measures GETs of the selected rows and streams of them, alternately.
pub fn measure(settings: &Settings, dir: &Path, data: &DataSet) -> anyhow::Result<Section> {
    let mut section = Section::new(&format!("1/{PICKS} of the rows, S3"), settings, data);
    let store = Store::start(dir, settings.latency_ms)?;
    let rows = data.rows(|row| pick(row) == PICKED)?;
    ensure!(!rows.is_empty(), "none of {} rows is selected: take more rows", data.num_rows);
    let (num_rows, ranges) = (rows.len() as u64, merged(rows));
    let query = format!("{} WHERE pick = {PICKED}", data.query());
    for turn in repetitions("selection from S3", settings, data) {
        section.begin(turn);
        section.measure("raw GETs of the rows", Role::Ceiling, || {
            store.measured(|| store.get_ranges(data, &ranges, CONNECTIONS, settings.epochs))
        })?;
        let run = BenchRun {
            query: &query,
            batch_size: settings.batch_size,
            epochs: settings.epochs,
            shuffle: "block",
            target: store.lake_args(),
        };
        section.measure("block-shuffled", Role::Path { bar: Some(BAR) }, || {
            let streamed = store.measured(|| run.measure())?;
            let found = streamed.rows / settings.epochs;
            ensure!(found == num_rows, "`{query}` gave {found} rows, not {num_rows}");
            Ok(streamed)
        })?;
    }
    section.note(format!(
        "`{query}`: {num_rows} of {} rows. {} ms before each response. Raw GETs: {} ranges, rows merged as streams merge them, \
         over {CONNECTIONS} connections.",
        data.num_rows,
        settings.latency_ms,
        ranges.len(),
    ));
    Ok(section)
}

/// Merges neighbouring rows into ranges as streams do.
fn merged(rows: Vec<ByteRange>) -> Vec<ByteRange> {
    let (mut ranges, mut wanted): (Vec<ByteRange>, u64) = (Vec::new(), 0);
    for row in rows {
        let last = ranges.last_mut().filter(|last| last.file == row.file && row.offset >= last.offset + last.length);
        if let Some(last) = last {
            let gap = row.offset - (last.offset + last.length);
            let (length, used) = (last.length + gap + row.length, wanted + row.length);
            let is_wasteful = gap > 0 && length - used > used;
            if gap <= GAP_BYTES_MAX && !is_wasteful && length <= GET_BYTES_MAX {
                (last.length, wanted) = (length, used);
                continue;
            }
        }
        wanted = row.length;
        ranges.push(row);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::{ByteRange, merged};

    #[test]
    fn rows_are_merged_across_gaps_that_are_cheap() {
        const ROW: u64 = 100 << 10;
        let row = |offset| ByteRange { file: "a".into(), offset, length: ROW };
        let places = |rows: &[u64]| -> Vec<(u64, u64)> {
            let rows = rows.iter().map(|offset| row(*offset)).collect();
            merged(rows).into_iter().map(|range| (range.offset, range.length)).collect()
        };
        assert_eq!(places(&[0, ROW, 2 * ROW]), [(0, 3 * ROW)]);
        assert_eq!(places(&[0, ROW + 1]), [(0, 2 * ROW + 1)]);
        assert_eq!(places(&[0, 3 * ROW]), [(0, ROW), (3 * ROW, ROW)]);
    }
}
