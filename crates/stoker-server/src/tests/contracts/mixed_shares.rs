//! Mixtures keep their weights, and deliver each query epoch by epoch.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker::StreamHandle;
use stoker_types::{Batching, LastBatch, MixtureSegment, MixtureStop, ShuffleMode};

use crate::tests::contracts::case::Job;
use crate::tests::contracts::delivery::{deliver, global_rows};
use crate::tests::contracts::lab::{Lab, Row};
use crate::tests::contracts::mixed_case::{MixedCase, mixed_case};
use crate::tests::contracts::{Transport, check_few};

/// The most epochs of a mixture that a case reads.
const EPOCHS_MAX: u64 = 5;

/// The largest rounding error of a weight.
const ROUNDING_MAX: f64 = 1.0 / 65_536.0;

#[test]
fn mixtures_keep_weights_and_epochs_in_process() {
    check_few(Transport::InProcess, (mixed_case(), 1..=EPOCHS_MAX), mixtures_keep_weights_and_epochs);
}

#[test]
fn mixtures_keep_weights_and_epochs_over_flight() {
    check_few(Transport::OverFlight, (mixed_case(), 1..=EPOCHS_MAX), mixtures_keep_weights_and_epochs);
}

/// After any number of rows, each query has delivered its share within less than one row, and has delivered each of its
/// rows once before it repeats any. The epoch of the mixture ends according to its stop rule.
async fn mixtures_keep_weights_and_epochs(lab: &Lab, (case, num_epochs): &(MixedCase, u64)) -> TestCaseResult {
    let handle = case.plan(lab.connection(case.num_endpoints)).await?;
    let job = Job { batching: Batching { last: LastBatch::Uneven, ..case.job.batching }, ..case.job };
    let mut rows: Vec<Row> = Vec::new();
    for epoch in 0..*num_epochs {
        let ranks = deliver(&handle, &Job { epoch, ..job }).await?;
        rows.extend(global_rows(lab, &ranks)?.concat());
        prop_assert_eq!(rows.len() as u64, (epoch + 1) * handle.num_rows());
    }
    check_rounding(case, &handle)?;
    check_shares(&handle, &rows)?;
    check_whole_epochs(case, &rows)?;
    check_end(case, &rows[..handle.num_rows() as usize])
}

/// Checks that the mixture keeps the requested weights, except for rounding.
fn check_rounding(case: &MixedCase, handle: &StreamHandle) -> TestCaseResult {
    let total: f64 = case.mix.weights.iter().sum();
    let kept: Vec<Vec<f64>> = segments(handle).into_iter().map(MixtureSegment::weights).collect();
    prop_assert!(kept.len() == 1 && kept[0].len() == case.queries.len(), "{kept:?}");
    for (kept, weight) in kept[0].iter().zip(&case.mix.weights) {
        prop_assert!((kept - weight / total).abs() <= ROUNDING_MAX, "{weight} of {total} is kept as {kept}");
    }
    Ok(())
}

/// Checks that, after any number of rows since its weights were set, each query has delivered its share within less
/// than one row. `rows` begins with the first row of the stream.
pub fn check_shares(handle: &StreamHandle, rows: &[Row]) -> TestCaseResult {
    let segments = segments(handle);
    let mut drawn = vec![0u64; handle.tables().len()];
    for (index, segment) in segments.iter().enumerate() {
        prop_assert!(drawn == segment.drawn, "{drawn:?} rows came before {segment:?}");
        let start = segment.start as usize;
        let end = segments.get(index + 1).map_or(rows.len(), |next| next.start as usize);
        let period = segment.period();
        for (num_rows, row) in (1u64..).zip(&rows[start..end]) {
            drawn[row.source] += 1;
            for (source, slots) in segment.slots.iter().enumerate() {
                let found = drawn[source] - segment.drawn[source];
                // The difference from the exact share, in units of 1 / `period` of a row.
                let off = (found * period).abs_diff(num_rows * u64::from(*slots));
                prop_assert!(off < period, "query {source} has {found} of {num_rows} rows since {segment:?}");
            }
        }
    }
    Ok(())
}

/// Checks that each query delivers all its rows before it repeats any. `rows` begins with the first row of the stream.
pub fn check_whole_epochs(case: &MixedCase, rows: &[Row]) -> TestCaseResult {
    for (source, query) in case.queries.iter().enumerate() {
        let in_order = query.ids();
        let selected: BTreeSet<i64> = in_order.iter().copied().collect();
        let drawn: Vec<i64> = rows.iter().filter(|row| row.source == source).map(|row| row.id).collect();
        for (epoch, ids) in drawn.chunks(in_order.len()).enumerate() {
            let found: BTreeSet<i64> = ids.iter().copied().collect();
            let is_whole = found.len() == ids.len() && found.is_subset(&selected);
            prop_assert!(is_whole, "epoch {epoch} of query {source} repeats rows, or has foreign ones");
            if case.options.shuffle == ShuffleMode::Sequential {
                prop_assert!(ids == &in_order[..ids.len()], "epoch {epoch} of query {source} is not in its order");
            }
        }
    }
    Ok(())
}

/// Checks that the first epoch of a mixture ends where its stop rule says.
fn check_end(case: &MixedCase, rows: &[Row]) -> TestCaseResult {
    let num_rows_of = |source: usize| rows.iter().filter(|row| row.source == source).count();
    let sizes = case.queries.iter().map(|query| query.ids().len());
    // For each query, the number of delivered rows and the number of its rows.
    let counts: Vec<(usize, usize)> = sizes.enumerate().map(|(source, size)| (num_rows_of(source), size)).collect();
    let ends_a_query = rows.last().is_some_and(|row| counts[row.source].0 == counts[row.source].1);
    let is_right = match case.mix.stop {
        MixtureStop::First => ends_a_query && counts.iter().all(|(drawn, size)| drawn <= size),
        MixtureStop::All => ends_a_query && counts.iter().all(|(drawn, size)| drawn >= size),
        MixtureStop::Rows => rows.len() as u64 == case.mix.epoch_rows,
    };
    prop_assert!(is_right, "an epoch that ends with {:?} has {counts:?}", case.mix.stop);
    Ok(())
}

/// Returns the weights of a mixture since its first row, one segment for each change.
fn segments(handle: &StreamHandle) -> Vec<&MixtureSegment> {
    handle.spec().mixture.iter().flat_map(|mixture| &mixture.segments).collect()
}
