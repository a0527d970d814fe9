//! The session: what it is made of, and what it tells.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use stoker_types::{BatchSize, Batching, Digest, Receipt, RunEvent, StreamSpec, StreamStats, Topology};

use crate::session::inner::{Inner, Kept};
use crate::session::receipts::{Substituted, substituted};
use crate::session::{Progress, SessionOptions, Turn};
use crate::{Connection, DecodeOptions, Error, Result, StreamHandle};

/// The batches of one rank of a stream, epoch after epoch, with a progress that can be saved.
///
/// The progress counts the batches that the consumer got ([`Session::count`]), not those that were read. Dropping the
/// session stops its reads.
pub struct Session {
    pub(super) connection: Connection,
    inner: Mutex<Inner>,
}

/// Where a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The epoch, from zero.
    pub epoch: u64,
    /// The next position.
    pub position: u64,
    /// The number of the next step, counted from the start of the training.
    pub step: u64,
    /// The number of global batches of this epoch, those before a resumption included.
    pub num_steps: u64,
    /// The number of global batches that are left in this epoch.
    pub remaining: u64,
    /// The rank and the number of ranks.
    pub topology: Topology,
    /// The current turn.
    pub turn: Turn,
}

impl Session {
    /// Makes a session at the start of an epoch. Nothing is read before the first [`Session::fetch`].
    ///
    /// # Errors
    /// A slice that cannot be opened, as for [`StreamHandle::check_slice`]; columns that cannot be decoded.
    pub fn new(connection: Connection, handle: StreamHandle, options: SessionOptions, epoch: u64) -> Result<Self> {
        let start = Progress::start_of(epoch, 0, options.global_batch());
        let mut inner = Inner::new(handle, Kept::new(options, start.clone()));
        inner.begin(start, RunEvent::Epoch)?;
        inner.schema()?;
        Ok(Self::of(connection, inner))
    }

    pub(super) fn of(connection: Connection, inner: Inner) -> Self {
        Self { connection, inner: Mutex::new(inner) }
    }

    /// Runs `work` under the lock. Streams that `work` closed are dropped after the lock is released.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        let (done, dropped) = {
            let mut inner = self.inner.lock();
            let done = work(&mut inner);
            (done, std::mem::take(&mut inner.dropped))
        };
        drop(dropped);
        done
    }

    /// Runs `work` under the lock, or returns `None` if another thread holds the lock.
    pub(super) fn try_with<T>(&self, work: impl FnOnce(&Inner) -> T) -> Option<T> {
        self.inner.try_lock().map(|inner| work(&inner))
    }

    /// Returns the specification of the stream. It is another one after a change of weights, and after a state of an
    /// equal query was loaded.
    pub fn spec(&self) -> Arc<StreamSpec> {
        self.with(|inner| inner.spec.clone())
    }

    /// Returns the stream id.
    pub fn stream_id(&self) -> Digest {
        self.spec().stream_id()
    }

    /// Returns the schema of the batches: columns that are decoded are tensors.
    ///
    /// # Errors
    /// Columns that cannot be decoded.
    pub fn schema(&self) -> Result<SchemaRef> {
        self.with(|inner| inner.schema())
    }

    /// Returns where the session is.
    pub fn status(&self) -> Status {
        self.with(|inner| inner.kept.status())
    }

    /// Returns the options. [`Session::narrow`] changes them.
    pub fn options(&self) -> SessionOptions {
        self.with(|inner| inner.kept.options.clone())
    }

    /// Returns the current share of each query of a mixture, or `None` for a stream of one query.
    pub fn weights(&self) -> Option<Vec<f64>> {
        self.with(|inner| inner.kept.weights(&inner.spec))
    }

    /// Returns the counters of the running pass or, if none is running, of the last pass.
    pub fn stats(&self) -> StreamStats {
        self.with(|inner| {
            if let Some(open) = &mut inner.open {
                open.stats = open.stream.as_ref().map_or(open.stats, |stream| stream.stats());
            }
            inner.open.as_ref().map_or(inner.kept.stats, |open| open.stats)
        })
    }

    /// Returns the receipt of the batches that the consumer got in all passes, and of what was skipped or dropped. An
    /// evaluation has the receipt of its last pass only.
    pub fn receipt(&self) -> Receipt {
        self.with(|inner| inner.receipt())
    }

    /// Returns the bad rows of the receipt, in order of delivery.
    pub fn substituted(&self) -> Vec<Substituted> {
        substituted(self.receipt())
    }

    /// Returns the number of the stream that is being read, and of the prefetched one. Streams are numbered in the order
    /// in which the session opens them, from zero; a prefetched stream keeps its number when it is read.
    pub fn open_streams(&self) -> (Option<u64>, Option<u64>) {
        self.with(|inner| (inner.open.as_ref().map(|open| open.number), inner.ahead.as_ref().map(|ahead| ahead.number)))
    }

    /// Sets whether the next epoch is prefetched. A prefetched stream that is open stays open.
    pub fn set_opens_ahead(&self, opens_ahead: bool) {
        self.with(|inner| inner.kept.options.opens_ahead = opens_ahead);
    }

    /// Narrows the session to one of several workers of its rank, which divide each of the rank's batches: the worker
    /// becomes a rank of a larger world with the same global batches. A worker prefetches no further epoch and has no
    /// state.
    ///
    /// # Errors
    /// `worker` is not below `num_workers`; several workers for a stream of buckets.
    pub fn narrow(&self, worker: u32, num_workers: u32) -> Result<()> {
        self.with(|inner| {
            if num_workers > 1 && inner.spec.has_buckets() {
                let reason = "a batch of a bucket is not divided among worker processes: use num_workers=0";
                return Err(Error::invalid(reason));
            }
            let (own, kept) = (inner.kept.options.topology, &mut inner.kept);
            let rank = own.rank.saturating_add(worker.saturating_mul(own.world_size));
            let topology = Topology::try_new(rank, own.world_size.saturating_mul(num_workers))?;
            let size = BatchSize::Global(kept.options.global_batch());
            kept.options.batching = Batching { size, ..kept.options.batching };
            (kept.options.topology, kept.options.opens_ahead, kept.is_worker) = (topology, false, true);
            Ok(())
        })
    }
}

impl Inner {
    fn schema(&self) -> Result<SchemaRef> {
        let encoded = self.handle.schema();
        match DecodeOptions::for_stream(self.kept.options.decode.as_ref(), &encoded)? {
            None => Ok(encoded),
            Some(decode) => decode.schema(&encoded),
        }
    }
}

impl Kept {
    pub fn status(&self) -> Status {
        Status {
            epoch: self.progress.epoch,
            position: self.progress.position,
            step: self.progress.step(),
            num_steps: self.progress.steps_before_origin().saturating_add(self.num_steps),
            remaining: self.remaining(),
            topology: self.options.topology,
            turn: self.turn,
        }
    }

    pub fn weights(&self, spec: &StreamSpec) -> Option<Vec<f64>> {
        let draw = u128::from(self.progress.epoch) * u128::from(spec.num_rows) + u128::from(self.progress.position);
        let segments = &spec.mixture.as_ref()?.segments;
        segments.iter().rfind(|segment| u128::from(segment.start) <= draw).map(|segment| segment.weights())
    }
}
