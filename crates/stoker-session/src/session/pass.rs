//! Passes: the loops over a session, of which the newest one runs.

use serde::{Deserialize, Serialize};
use stoker_batch::BAD_ROWS_TABLE;
use stoker_types::RunEvent;

use crate::session::{Receipts, Session};
use crate::{Error, Result};

/// A loop over a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PassId(pub u64);

/// The part of a pass in which positions follow each other. No two turns of a session are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Turn(pub u64);

impl Turn {
    /// Ends the turn; the next one begins.
    pub(super) fn advance(&mut self) {
        self.0 += 1;
    }
}

/// Names a batch of a session. The consumer gives the key back when it got the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    /// The turn in which the batch was read.
    pub turn: Turn,
    /// The number of the global batch, counted from the origin of the progress.
    pub step: u64,
    /// The position after the batch.
    pub position: u64,
    /// Whether the batch is the last one of its epoch.
    pub is_last: bool,
}

/// What became of a batch that the consumer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The batch is counted, and the pass goes on.
    GoesOn,
    /// The batch is not counted: the progress was changed after the batch was read. The pass goes on from there.
    ChangedProgress,
    /// The batch is not counted: the pass was closed, or a newer one took over.
    Closed,
}

/// How a pass was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The pass asked for a batch after the last one of the epoch.
    AtEnd,
    /// The pass was left earlier. If the consumer got the last batch, the epoch has ended nevertheless.
    Early,
}

impl Session {
    /// Begins a pass, and ends the pass that runs. An evaluation goes back to the start of its epoch. Otherwise, the
    /// pass continues at the progress, or with the next epoch if the consumer got the last batch.
    ///
    /// # Errors
    /// An epoch that cannot be opened.
    pub fn enter(&self) -> Result<PassId> {
        self.with(|inner| {
            inner.close_open();
            if inner.kept.options.evaluation && !inner.kept.goes_on {
                inner.kept.receipts = Receipts::default();
                inner.begin(inner.kept.start_of(inner.kept.progress.epoch, 0), RunEvent::Epoch)?;
            } else if inner.kept.is_finished() && inner.kept.ended_epoch != Some(inner.kept.progress.epoch) {
                inner.settle()?;
            }
            let kept = &mut inner.kept;
            kept.goes_on = false;
            kept.last_pass.0 += 1;
            kept.pass = Some(kept.last_pass);
            kept.turn.advance();
            Ok(kept.last_pass)
        })
    }

    /// Returns the current turn of a pass, or `None` if the pass was closed.
    ///
    /// # Errors
    /// `InvalidRequest` if a newer pass took over.
    pub fn turn(&self, pass: PassId) -> Result<Option<Turn>> {
        self.with(|inner| {
            if inner.kept.closed.contains(&pass) {
                return Ok(None);
            }
            if inner.kept.pass != Some(pass) {
                return Err(Error::invalid(
                    "a newer iterator over this loader took over, and this one ended: a loader has one place, so that \
                     loops over it cannot take turns; make a second loader for a second loop",
                ));
            }
            Ok(Some(inner.kept.turn))
        })
    }

    /// Returns the current turn, whatever pass runs.
    pub fn current_turn(&self) -> Turn {
        self.with(|inner| inner.kept.turn)
    }

    /// Counts a batch that the consumer got. The progress moves at once; nothing is waited for. Before the last batch of
    /// an epoch is counted, [`Session::finish`] must have been called. A batch of an earlier turn is not counted.
    pub fn count(&self, key: BatchKey) -> Advance {
        self.with(|inner| {
            let kept = &mut inner.kept;
            if kept.turn != key.turn {
                let is_open = kept.pass.is_some_and(|pass| !kept.closed.contains(&pass));
                return if is_open { Advance::ChangedProgress } else { Advance::Closed };
            }
            kept.progress.advance(key.step, key.position);
            if key.is_last {
                kept.end_write(BAD_ROWS_TABLE);
            }
            if let Some(open) = &mut inner.open {
                open.delivery.got(inner.kept.progress.next_step);
            }
            Advance::GoesOn
        })
    }

    /// Counts a batch that the consumer got: [`Session::finish`], then [`Session::count`].
    ///
    /// # Errors
    /// As for [`Session::finish`]; the batch is then not counted.
    pub async fn advance(&self, key: BatchKey) -> Result<Advance> {
        self.finish(key).await?;
        Ok(self.count(key))
    }

    /// Ends a pass, unless a newer one has begun. The prefetched next epoch is kept if this one has ended.
    ///
    /// # Errors
    /// A next epoch that cannot be opened.
    pub fn leave(&self, pass: PassId, left: Left) -> Result<()> {
        self.with(|inner| {
            let is_closed = inner.kept.closed.remove(&pass);
            if inner.kept.pass != Some(pass) {
                return Ok(());
            }
            inner.kept.pass = None;
            inner.kept.turn.advance();
            inner.close_open();
            let is_at_end = left == Left::AtEnd && !is_closed;
            if is_at_end || inner.kept.is_finished() {
                return inner.settle();
            }
            inner.close_ahead();
            Ok(())
        })
    }

    /// Ends the pass that runs, and closes all streams. The progress is kept.
    pub fn close(&self) {
        self.with(|inner| {
            inner.kept.close_pass();
            inner.close_streams();
        });
    }
}
