//! Changes of the progress other than by batches. Each of them ends the turn; a pass that runs continues there.

use stoker_types::{RunEvent, Skipped};

use crate::session::Session;
use crate::{Error, Result};

impl Session {
    /// Starts an epoch from its beginning. For the current epoch, even a resumed one, it does nothing. If a loaded state
    /// ended this epoch, nothing of it is left: the next pass is empty, and the pass after it delivers the next epoch.
    ///
    /// # Errors
    /// An epoch that cannot be opened.
    pub fn set_epoch(&self, epoch: u64) -> Result<()> {
        self.with(|inner| {
            if inner.kept.is_finished() && epoch != inner.kept.progress.epoch {
                inner.settle()?;
            }
            if epoch == inner.kept.progress.epoch {
                return Ok(());
            }
            let has_ended = inner.kept.ended_epoch == Some(epoch);
            inner.close_streams();
            inner.begin(inner.kept.start_of(epoch, inner.kept.progress.step()), RunEvent::Epoch)?;
            if has_ended {
                let (kept, end) = (&mut inner.kept, inner.spec.num_rows);
                (kept.progress.origin, kept.progress.position, kept.num_steps) = (end, end, 0);
                kept.ended_epoch = Some(epoch);
            }
            Ok(())
        })
    }

    /// Returns to the start of the epoch that the next pass delivers, and to the number of its first step.
    ///
    /// # Errors
    /// An epoch that cannot be opened.
    pub fn restart(&self) -> Result<()> {
        self.with(|inner| {
            if inner.kept.is_finished() && inner.kept.pass.is_none() {
                inner.settle()?;
            }
            inner.close_streams();
            let (epoch, step) = (inner.kept.progress.epoch, inner.kept.progress.first_step_of_epoch());
            inner.begin(inner.kept.start_of(epoch, step), RunEvent::Epoch)
        })
    }

    /// Skips the next global batches of this epoch; all ranks must skip the same number at the same step. Returns the
    /// number of skipped global batches, which is smaller if the epoch ends. The number of the next step does not change.
    ///
    /// # Errors
    /// A slice that cannot be opened.
    pub fn skip(&self, steps: u64) -> Result<u64> {
        self.with(|inner| {
            let steps = steps.min(inner.kept.remaining());
            if steps == 0 {
                return Ok(0);
            }
            let (epoch, start) = (inner.kept.progress.epoch, inner.kept.progress.position);
            let rows = steps.saturating_mul(inner.kept.options.global_batch());
            let end = start.saturating_add(rows).min(inner.spec.num_rows);
            inner.close_streams();
            inner.kept.receipts.skip(Skipped { epoch, start, end });
            inner.begin(inner.kept.resumed_at(end), RunEvent::Skip)?;
            inner.kept.goes_on = true;
            if inner.kept.is_finished() {
                // The next pass is the rest of this epoch, which is empty.
                inner.kept.ended_epoch = Some(epoch);
            }
            Ok(steps)
        })
    }

    /// Changes the shares of a mixture's queries from the next step on; all ranks must do so at the same step.
    ///
    /// # Errors
    /// A stream that is not a mixture; weights that do not fit its queries; storage errors; servers that cannot be
    /// reached.
    pub async fn set_weights(&self, weights: &[f64]) -> Result<()> {
        let (handle, progress) = self.with(|inner| (inner.handle.clone(), inner.kept.progress.clone()));
        let handle = handle.reweigh(progress.epoch, progress.position, weights).await?;
        self.with(|inner| {
            if inner.kept.progress != progress {
                return Err(Error::invalid(
                    "another thread moved the position while the weights were being changed: change them again",
                ));
            }
            inner.close_streams();
            inner.use_handle(handle);
            inner.begin(inner.kept.resumed_at(progress.position), RunEvent::Weights)?;
            inner.kept.goes_on = true;
            Ok(())
        })
    }
}
