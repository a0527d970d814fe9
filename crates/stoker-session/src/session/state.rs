//! States: what a checkpoint keeps of a session, and resumption.

use stoker_types::{ResumePoint, RunEvent, StreamState};

use crate::session::inner::Inner;
use crate::session::{Progress, Receipts, Session};
use crate::{Error, Result};

impl Session {
    /// Returns the state after the last batch that the consumer got. After the last batch of an epoch, it is the start of
    /// the next epoch.
    ///
    /// # Errors
    /// `InvalidRequest` for a worker, which sees only a part of the batches.
    pub fn state(&self) -> Result<StreamState> {
        self.with(|inner| {
            if inner.kept.is_worker {
                return Err(Error::invalid(
                    "a worker process of a DataLoader has no state of the stream: each worker sees a part of the \
                     batches, and some that wait to be taken; use num_workers=0 (the loader reads ahead by itself) and \
                     save the loader's state_dict() in the training process",
                ));
            }
            let kept = &inner.kept;
            let reached = if kept.is_finished() { kept.following() } else { kept.progress.clone() };
            Ok(inner.state_at(&reached))
        })
    }

    /// As [`Session::state`], but after the last batch of an epoch it is the end of that epoch. Both states resume with
    /// the next epoch.
    pub fn state_in_epoch(&self) -> StreamState {
        self.with(|inner| inner.state_at(&inner.kept.progress))
    }

    /// Continues after a state's position. A state of an ended epoch continues with the next one. The stream takes over
    /// the weights of the state, the text of a query that is equal but written differently, and, with
    /// [`SessionOptions::any_order_version`](crate::session::SessionOptions::any_order_version), the order. Receipts begin
    /// anew.
    ///
    /// # Errors
    /// `StateMismatch`, which names the differences, for a state of another stream; an epoch that cannot be opened;
    /// storage errors; servers that cannot be reached.
    pub async fn load_state(&self, state: &StreamState) -> Result<()> {
        let (handle, any_version) = self.with(|inner| (inner.handle.clone(), inner.kept.options.any_order_version));
        let resumed = handle.resumed(&self.connection, state, any_version).await?;
        self.with(|inner| {
            inner.close_streams();
            resumed.into_iter().for_each(|handle| inner.use_handle(handle));
            inner.kept.receipts = Receipts::default();
            inner.resume(state)?;
            inner.kept.goes_on = true;
            Ok(())
        })
    }
}

impl Inner {
    /// Builds the state at some progress. Its log is that of the epoch in which the consumer got the last batch: after
    /// the last batch, the log tells that this epoch is over.
    fn state_at(&self, reached: &Progress) -> StreamState {
        let place = ResumePoint { epoch: reached.epoch, position: reached.position, step: reached.step() };
        self.handle.state(place, &self.kept.progress.log)
    }

    fn resume(&mut self, state: &StreamState) -> Result<()> {
        let StreamState { epoch, position, step, ref log, .. } = *state;
        if position == 0 && log.last().is_some_and(|last| last.step < step) {
            // The state was saved after the last batch of the epoch before, and has the log of that epoch.
            self.begin(self.kept.start_of(epoch, step), RunEvent::Resume)?;
            self.kept.ended_epoch = epoch.checked_sub(1);
            return Ok(());
        }
        let global_batch = self.kept.options.global_batch();
        self.begin(Progress::resumed(epoch, position, step, log, global_batch), RunEvent::Resume)?;
        if self.kept.is_finished() {
            self.begin(self.kept.following(), RunEvent::Resume)?;
            self.kept.ended_epoch = Some(epoch);
        }
        Ok(())
    }
}
