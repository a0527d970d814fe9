//! The slices that the steps of a state begin with.

use stoker_types::{BatchLogEntry, ErrorKind, ResumePoint, SPEC_VERSION, Slice, StreamSpec, StreamState, Topology};

use crate::{Result, state_slice};

/// The number of steps of each entry of a log.
const STEPS: u64 = 10;

/// Returns the log of an epoch whose batch size grew by one every ten steps.
fn log(num_entries: u64) -> Vec<BatchLogEntry> {
    let position = |entry: u64| (0..entry).map(|before| STEPS * (4 + before)).sum::<u64>();
    (0..num_entries)
        .map(|entry| BatchLogEntry { step: STEPS * entry, position: position(entry), global_batch: 4 + entry })
        .collect()
}

/// Returns the state of a stream of 100,000 rows after some steps of an epoch with this log.
fn state(log: &[BatchLogEntry], step: u64) -> StreamState {
    let spec = StreamSpec { version: SPEC_VERSION, sources: Vec::new(), mixture: None, num_rows: 100_000, seed: 7 };
    StreamState::new(&spec, ResumePoint { epoch: 0, position: 50_000, step }, log, false)
}

fn slice(state: &StreamState, step: u64) -> Result<Slice> {
    state_slice(state, step, Topology { rank: 0, world_size: 1 })
}

#[test]
fn steps_of_a_shortened_log_are_right_or_refused() {
    for (num_entries, num_refused) in [(1, 0), (2, 0), (8, 0), (9, 20), (10, 30), (40, 330)] {
        let log = log(num_entries);
        let state = state(&log, STEPS * num_entries);
        let mut refused = Vec::new();
        for step in 0..STEPS * num_entries {
            let entry = log[(step / STEPS) as usize];
            match slice(&state, step) {
                Ok(slice) => {
                    let found = (slice.epoch, slice.origin, slice.first_step, slice.global_batch());
                    assert_eq!(found, (0, entry.position, step % STEPS, entry.global_batch), "step {step}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound);
                    assert!(error.to_string().contains("its log was shortened"), "{error}");
                    refused.push(step);
                }
            }
        }
        assert_eq!(refused.len(), num_refused, "{num_entries} entries: {refused:?}");
    }
}

#[test]
fn steps_that_a_state_does_not_have_are_named() {
    let check = |log: &[BatchLogEntry], step, reason: &str| {
        let error = slice(&state(log, 500), step).expect_err(reason).to_string();
        let expected = format!("the state does not contain step {step}: {reason}; the log of a run contains all steps");
        assert_eq!(error, expected);
    };
    check(&[], 3, "it has no log: it was saved at the start of an epoch");
    check(&log(40)[1..3], 3, "its log begins at step 10, in epoch 0");
    check(&log(1), 25_000, "epoch 0 ends before step 25000");
    check(&log(40), 15, "its log was shortened, and lacks the steps from 10 to 339");
    let gap = BatchLogEntry { global_batch: 0, ..log(1)[0] };
    check(&[gap], 15, "its log was shortened, and lacks the steps from 0 on");
}
