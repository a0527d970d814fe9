//! The slices that the steps of a run, or of a state, begin with.

use stoker_types::{BatchSize, Batching, LastBatch, RunEntry, RunId, Slice, StreamState, Topology};

use crate::{Error, Result};

/// The name of the table that contains the logs of all runs of a lake.
pub const RUN_LOG_TABLE: &str = "stoker_run_log";

/// The name of the table of bad rows that the runs of a lake met.
pub const BAD_ROWS_TABLE: &str = "stoker_bad_rows";

/// Returns the entry of a run's log that determines the positions of a step.
///
/// # Errors
/// [`Error::UnknownStep`] for a run without a log, and for a step before the first one of the log.
pub fn step_entry<'a>(run_id: &RunId, entries: &'a [RunEntry], step: u64) -> Result<&'a RunEntry> {
    let unknown = |reason: String| Error::UnknownStep { run_id: run_id.to_string(), step, reason };
    let Some(first) = entries.first() else {
        return Err(unknown(
            "the lake has no log of this run; a stream with a run id and run_log=True writes one".into(),
        ));
    };
    let entry = entries.iter().rev().find(|entry| entry.step <= step);
    entry.ok_or_else(|| unknown(format!("its log begins at step {}", first.step)))
}

/// Returns the slice of a rank that begins with `step`, in a stream of `num_rows` rows per epoch.
///
/// # Errors
/// [`Error::UnknownStep`] for a step after the end of the entry's epoch; `InvalidValue` for an invalid rank.
pub fn entry_slice(entry: &RunEntry, step: u64, topology: Topology, num_rows: u64) -> Result<Slice> {
    let batching = Batching { size: BatchSize::Global(entry.global_batch), last: entry.last_batch };
    let first_step = step.saturating_sub(entry.step);
    let slice = Slice { topology, batching, epoch: entry.epoch, origin: entry.position, first_step };
    slice.validate()?;
    let steps = slice.num_steps(num_rows);
    if first_step < steps {
        return Ok(slice);
    }
    let reason = format!("its last epoch, {}, ends before step {}", entry.epoch, entry.step.saturating_add(steps));
    Err(Error::UnknownStep { run_id: entry.run_id.to_string(), step, reason })
}

/// Returns the slice of a rank that begins with `step`, which must be a step of the epoch of the state's log.
///
/// # Errors
/// [`Error::UnknownStateStep`] for a step before the state's log, after the end of its epoch, or whose entry was dropped
/// from the log; `InvalidValue` for an invalid rank.
pub fn state_slice(state: &StreamState, step: u64, topology: Topology) -> Result<Slice> {
    let unknown = |reason: String| Error::UnknownStateStep { step, reason };
    let epoch = state.logged_epoch();
    let Some(index) = state.log.iter().rposition(|entry| entry.step <= step) else {
        let reason = match state.log.first() {
            Some(first) => format!("its log begins at step {}, in epoch {epoch}", first.step),
            None => "it has no log: it was saved at the start of an epoch".into(),
        };
        return Err(unknown(reason));
    };
    let entry = &state.log[index];
    if entry.is_gap() {
        let end = state.log.get(index + 1).map_or_else(|| "on".to_string(), |next| format!("to {}", next.step - 1));
        return Err(unknown(format!("its log was shortened, and lacks the steps from {} {end}", entry.step)));
    }
    let batching = Batching { size: BatchSize::Global(entry.global_batch), last: LastBatch::Uneven };
    let (origin, first_step) = (entry.position, step - entry.step);
    let slice = Slice { topology, batching, epoch, origin, first_step };
    slice.validate()?;
    let steps = slice.num_steps(state.num_rows);
    match first_step < steps {
        true => Ok(slice),
        false => Err(unknown(format!("epoch {epoch} ends before step {}", entry.step.saturating_add(steps)))),
    }
}
