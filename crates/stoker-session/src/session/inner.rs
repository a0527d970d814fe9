//! What the lock of a session guards, and how the progress is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stoker_types::calls::WriteKey;
use stoker_types::{Digest, ErrorKind, Receipt, RunEvent, Slice, StreamSpec, StreamStats};

use crate::session::delivery::Delivery;
use crate::session::{PassId, Progress, Receipts, SessionOptions, Turn};
use crate::{Result, SampleStream, StreamHandle};

/// What a session keeps besides its streams: plain data, with which a copy continues in another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    pub options: SessionOptions,
    pub progress: Progress,
    /// The number of global batches from the origin to the end of the epoch.
    pub num_steps: u64,
    pub receipts: Receipts,
    /// Why the steps of the next turn do not follow from the last entry of the run log; `None` if they do.
    pub event: Option<RunEvent>,
    /// The epoch before the progress, if a state says that this epoch has ended: `set_epoch` must not begin it again.
    pub ended_epoch: Option<u64>,
    /// Whether the next pass of an evaluation continues at the progress.
    pub goes_on: bool,
    /// Whether this session is one of several workers, each of which sees only a part of the rank's batches.
    pub is_worker: bool,
    /// The counters of the last pass.
    pub stats: StreamStats,
    pub turn: Turn,
    /// The turn and the first step that was not read in it, counted from the origin.
    pub unread: (Turn, u64),
    /// The pass that runs.
    pub pass: Option<PassId>,
    /// The pass that was entered last.
    pub last_pass: PassId,
    /// The passes that were closed and not left.
    pub closed: BTreeSet<PassId>,
    /// The last write to each table of logs, until the session has no reason to repeat it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pending_writes: BTreeMap<String, PendingWrite>,
}

/// A write that was begun, and that the session may repeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PendingWrite {
    /// The digest of what is written.
    content: Digest,
    /// The key of the first attempt.
    key: WriteKey,
}

impl Kept {
    /// Returns the plain data of a session that has not begun.
    pub fn new(options: SessionOptions, progress: Progress) -> Self {
        Self {
            options,
            progress,
            num_steps: 0,
            receipts: Receipts::default(),
            event: None,
            ended_epoch: None,
            goes_on: false,
            is_worker: false,
            stats: StreamStats::default(),
            turn: Turn::default(),
            unread: (Turn::default(), 0),
            pass: None,
            last_pass: PassId::default(),
            closed: BTreeSet::new(),
            pending_writes: BTreeMap::new(),
        }
    }

    /// Returns the key of the pending write to a table, if that write has this content.
    pub fn pending_key(&self, table: &str, content: Digest) -> Option<WriteKey> {
        let pending = self.pending_writes.get(table)?;
        (pending.content == content).then(|| pending.key.clone())
    }

    /// Begins a write to a table with a new key, which replaces the pending one. Returns the key to write with: that of
    /// the pending write if another thread began the same write meanwhile.
    pub fn begin_write(&mut self, table: &str, content: Digest, key: WriteKey) -> WriteKey {
        if let Some(pending) = self.pending_key(table, content) {
            return pending;
        }
        self.pending_writes.insert(table.to_string(), PendingWrite { content, key: key.clone() });
        key
    }

    /// Notes that a write to a table is done and is not repeated.
    pub fn end_write(&mut self, table: &str) {
        self.pending_writes.remove(table);
    }

    /// Whether the consumer got the last batch of the epoch.
    pub fn is_finished(&self) -> bool {
        self.progress.is_begun() && self.progress.next_step >= self.num_steps
    }

    /// Returns the number of global batches that are left in this epoch.
    pub fn remaining(&self) -> u64 {
        self.num_steps.saturating_sub(self.progress.next_step)
    }

    /// Ends the pass that runs.
    pub fn close_pass(&mut self) {
        self.closed.extend(self.pass);
        self.turn.advance();
    }

    /// Returns the start of an epoch at this batch size.
    pub fn start_of(&self, epoch: u64, step: u64) -> Progress {
        Progress::start_of(epoch, step, self.options.global_batch())
    }

    /// Returns the start of the pass after this epoch.
    pub fn following(&self) -> Progress {
        match self.options.evaluation {
            true => self.start_of(self.progress.epoch, 0),
            false => self.start_of(self.progress.epoch.saturating_add(1), self.progress.step()),
        }
    }

    /// Returns the progress at a position of this epoch, from which the steps are counted anew.
    pub fn resumed_at(&self, position: u64) -> Progress {
        let Progress { epoch, ref log, .. } = self.progress;
        Progress::resumed(epoch, position, self.progress.step(), log, self.options.global_batch())
    }
}

/// A stream that is being read.
pub(super) struct Open {
    /// The number of streams that the session had opened before this one.
    pub number: u64,
    pub turn: Turn,
    /// `None` while a fetch waits for the stream's next batch, and after its end.
    pub stream: Option<Box<SampleStream>>,
    pub delivery: Delivery,
    /// Whether the stream was opened as a prefetch and has not delivered a batch yet.
    pub is_early: bool,
    /// The counters when the stream was last seen.
    pub stats: StreamStats,
}

/// The next epoch, opened as a prefetch.
pub(super) struct Ahead {
    pub number: u64,
    pub slice: Slice,
    pub stream: Box<SampleStream>,
}

/// What the lock of a session guards.
pub(super) struct Inner {
    pub handle: Arc<StreamHandle>,
    /// The handle's specification, which batches keep.
    pub spec: Arc<StreamSpec>,
    pub kept: Kept,
    pub open: Option<Open>,
    pub ahead: Option<Ahead>,
    pub num_opened: u64,
    /// Streams to drop after the lock is released: that stops their tasks and frees their memory.
    pub dropped: Vec<SampleStream>,
}

impl Inner {
    pub fn new(handle: StreamHandle, kept: Kept) -> Self {
        let spec = Arc::new(handle.spec().clone());
        let (open, ahead, dropped) = (None, None, Vec::new());
        Self { handle: Arc::new(handle), spec, kept, open, ahead, num_opened: 0, dropped }
    }

    /// Continues with another stream.
    pub fn use_handle(&mut self, handle: StreamHandle) {
        self.spec = Arc::new(handle.spec().clone());
        self.handle = Arc::new(handle);
    }

    /// Sets the progress, other than by a batch that the consumer got.
    ///
    /// # Errors
    /// A slice that cannot be opened. The progress is set nevertheless, and the next pass returns this error again.
    pub fn begin(&mut self, progress: Progress, event: RunEvent) -> Result<()> {
        let slice = self.kept.options.slice(&progress);
        let num_rows = self.handle.num_rows();
        let kept = &mut self.kept;
        (kept.progress, kept.num_steps, kept.event, kept.ended_epoch) = (progress, 0, Some(event), None);
        kept.turn.advance();
        self.handle.check_slice(&slice)?;
        self.kept.num_steps = slice.num_steps(num_rows);
        Ok(())
    }

    /// Continues with the next epoch.
    ///
    /// # Errors
    /// A slice that cannot be opened, except after the last epoch of a mixture, where the next pass returns the error.
    pub fn settle(&mut self) -> Result<()> {
        self.close_open();
        match self.begin(self.kept.following(), RunEvent::Epoch) {
            Err(error) if error.kind() == ErrorKind::InvalidRequest => Ok(()),
            begun => begun,
        }
    }

    /// Closes the stream that is being read, and keeps its counters and its receipt.
    pub fn close_open(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.kept.stats = open.stream.as_ref().map_or(open.stats, |stream| stream.stats());
        self.kept.receipts.add(open.delivery.receipt());
        self.dropped.extend(open.stream.map(|stream| *stream));
    }

    /// Closes the prefetched stream.
    pub fn close_ahead(&mut self) {
        self.dropped.extend(self.ahead.take().map(|ahead| *ahead.stream));
    }

    /// Closes all streams. A pass that runs continues at the progress.
    pub fn close_streams(&mut self) {
        self.close_open();
        self.close_ahead();
    }

    /// Returns the receipt of all passes.
    pub fn receipt(&self) -> Receipt {
        let running = self.open.as_ref().map(|open| open.delivery.receipt());
        self.kept.receipts.document(self.spec.stream_id(), running)
    }

    /// Returns the number of the next stream that is opened.
    pub fn next_number(&mut self) -> u64 {
        self.num_opened += 1;
        self.num_opened - 1
    }
}
