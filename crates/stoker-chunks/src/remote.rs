//! Reads from object stores: body bytes go directly to the slots of their rows, and faults are retried.
//!
//! ```text
//! GET ──bytes──► slots             after a fault: a wait, then a GET for the bytes that are missing
//!  └──slow──► GET ──► memory       of the two, the first to finish fills the slots
//! ```

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_buffer::Buffer;
use futures::future::{BoxFuture, Either, select};
use stoker_batch::{BufferPool, Slots};
use stoker_clock::Clock;
use stoker_lake::{RangeBody, RangeReader};
use stoker_types::{Moment, to_usize};

use crate::block_range::num_bytes;
use crate::coalesce::{Piece, Read};
use crate::hedge::{Hedges, PATIENCE_MIN};
use crate::remote_target::{Rest, Room, Target, Watched};
use crate::request_limit::{Get, Requests, Turn};
use crate::retry::Retries;
use crate::{ChunkScanOptions, Error, IoStats, RequestLimit, Result, RetryPolicy};

/// The time within which bytes that have arrived are reported.
const REPORTED: Duration = Duration::from_millis(100);

/// A file that answers GETs. Tests provide files whose responses fail.
pub(crate) trait Source: Sync {
    /// Returns the table and the path, for error messages.
    fn place(&self) -> &str;

    /// Starts a GET.
    fn open(&self, range: Range<u64>) -> BoxFuture<'_, stoker_lake::Result<RangeBody>>;

    /// Returns the error for a body that ended early.
    fn too_short(&self, range: Range<u64>, found: u64) -> stoker_lake::Error;
}

impl Source for RangeReader {
    fn place(&self) -> &str {
        RangeReader::place(self)
    }

    fn open(&self, range: Range<u64>) -> BoxFuture<'_, stoker_lake::Result<RangeBody>> {
        Box::pin(self.read_body(range))
    }

    fn too_short(&self, range: Range<u64>, found: u64) -> stoker_lake::Error {
        RangeReader::too_short(self, range, found)
    }
}

/// The state that all remote reads of a scan share.
#[derive(Debug)]
pub(crate) struct Remote {
    requests: Requests,
    policy: RetryPolicy,
    hedges: Option<Hedges>,
    stats: Arc<IoStats>,
    clock: Clock,
}

impl Remote {
    /// Joins a request limit, which other scans may share, and takes its clock.
    pub fn new(options: &ChunkScanOptions, limit: &RequestLimit, stats: Arc<IoStats>) -> Self {
        Self {
            requests: limit.join(options.remote_requests_max),
            policy: options.retry,
            hedges: options.hedge.then(Hedges::new),
            stats,
            clock: limit.clock().clone(),
        }
    }

    /// [`Requests::latency`] of the requests.
    pub fn latency(&self) -> Option<Duration> {
        self.requests.latency()
    }

    /// Reads a range into the slots of its rows, with as many GETs as are needed. Each byte is written once. With
    /// `hashes`, the checksum of each row is computed as soon as its last byte has arrived, while the row is in the
    /// processor's cache.
    ///
    /// # Errors
    /// Permanent errors of storage; [`Error::GaveUp`] when the retry budget for transient ones is used up.
    pub async fn read<S: Source>(&self, source: &S, read: &mut Read, hashes: bool) -> Result<()> {
        let _turn = self.requests.turn(read.length).await;
        let whole = read.offset..read.offset + read.length;
        let mut hedges = self.hedges.as_ref().inspect(|hedges| hedges.add_read());
        let mut retries = Retries::new(self.policy, &self.clock);
        read.checks.restart();
        let mut target = Target::new(read, hashes);
        loop {
            let before = target.done;
            let Err(error) = self.attempt(source, &mut target, &mut hedges).await else { return Ok(()) };
            if !error.kind().is_transient() {
                return Err(error);
            }
            if target.done > before {
                retries.progressed();
            }
            let Some(wait) = retries.failed(&error) else {
                return Err(retries.gave_up(reading(source, &whole), error));
            };
            self.stats.add_retry();
            self.clock.sleep(wait).await;
        }
    }

    /// Reads a range that is not empty into memory of a pool, as [`Remote::read`] does.
    ///
    /// # Errors
    /// As for [`Remote::read`].
    pub async fn read_range<S: Source>(&self, source: &S, range: Range<u64>, pool: &BufferPool) -> Result<Buffer> {
        let length = range.end.saturating_sub(range.start);
        let memory = Slots::try_new(pool, 1, num_bytes(length)?)?;
        let mut read = Read::new(0, range.start, length, vec![Piece::new(0, 0, memory.claim(0)?)]);
        self.read(source, &mut read, false).await?;
        read.finish();
        Ok(memory.freeze()?)
    }

    /// Makes one GET for the missing bytes, or two if the first is slow and the read was not hedged before.
    async fn attempt<S: Source>(
        &self,
        source: &S,
        target: &mut Target<'_>,
        hedges: &mut Option<&Hedges>,
    ) -> Result<()> {
        let (start, end) = (target.read.offset, target.read.offset + target.read.length);
        let begun = start + target.done;
        let at = AtomicU64::new(begun);
        let (hedge_begun, collected) = {
            let watched = Watched { target: &mut *target, start, at: &at };
            let mut first = pin!(self.pour(source, begun..end, watched));
            let Some(share) = *hedges else { return first.await };
            let _turn = match self.until_slow(&mut first, share, end - begun).await {
                Either::Left(done) => return done,
                Either::Right(turn) => turn,
            };
            *hedges = None;
            self.stats.add_hedge();
            let hedge_begun = at.load(Ordering::Relaxed);
            let second = pin!(self.collect(source, hedge_begun..end));
            let collected = match select(first, second).await {
                Either::Left((Err(error), second)) if error.kind().is_transient() => second.await.map_err(|_| error)?,
                Either::Left((done, _)) => return done,
                Either::Right((Ok(collected), _)) => collected,
                Either::Right((Err(_), first)) => return first.await,
            };
            (hedge_begun, collected)
        };
        self.stats.add_hedge_won();
        target.put_missing(hedge_begun - start, &collected);
        Ok(())
    }

    /// Waits until a GET completes, or until it is slow and a permit for a second GET is available.
    async fn until_slow<F>(&self, first: &mut F, hedges: &Hedges, bytes: u64) -> Either<Result<()>, Turn<'_>>
    where
        F: Future<Output = Result<()>> + Unpin,
    {
        let mut patience = hedges.patience(bytes);
        loop {
            if let Either::Left((done, _)) = select(&mut *first, pin!(self.clock.sleep(patience))).await {
                return Either::Left(done);
            }
            if let Some(turn) = self.requests.try_turn()
                && hedges.try_take()
            {
                return Either::Right(turn);
            }
            patience = PATIENCE_MIN;
        }
    }

    /// Reads the bytes of a range into new memory.
    async fn collect<S: Source>(&self, source: &S, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(range.end - range.start)];
        self.pour(source, range, Rest { bytes: &mut bytes }).await?;
        Ok(bytes)
    }

    /// Reads a range into `room`, completely or with an error. Reports the outcome to the request limit.
    async fn pour<S: Source>(&self, source: &S, range: Range<u64>, room: impl Room) -> Result<()> {
        let poured = self.pour_body(source, range, room).await;
        match &poured {
            Ok(get) => self.learn(*get),
            Err(error) if error.is_overload() => self.requests.overloaded(),
            Err(_) => {}
        }
        poured.map(|_| ())
    }

    fn learn(&self, get: Get) {
        self.requests.came(get);
        if let Some(hedges) = &self.hedges {
            let (to_first, body) = (get.first_byte - get.begun, get.last_byte - get.first_byte);
            hedges.add_peer(to_first, body, get.bytes);
        }
    }

    /// Makes a GET and reads its body into `room`. How long the response may take is left to the store's own timeouts,
    /// up to the whole retry budget: a request that is cancelled while the store queues it would begin again at the end
    /// of that queue.
    async fn pour_body<S: Source>(&self, source: &S, range: Range<u64>, mut room: impl Room) -> Result<Get> {
        let begun = self.clock.now();
        let waited = self.policy.budget.max(self.policy.stall_timeout);
        let mut body = match select(source.open(range.clone()), pin!(self.clock.sleep(waited))).await {
            Either::Left((body, _)) => body?,
            Either::Right(_) => return Err(Error::Stalled { attempted: reading(source, &range), waited }),
        };
        if body.was_refused() {
            self.requests.overloaded();
        }
        let mut at = range.start;
        let mut first_byte = None;
        let mut heard = self.clock.now();
        let mut timer = Box::pin(self.clock.sleep(self.policy.stall_timeout));
        while at < range.end {
            let came = {
                let mut slices = room.slices();
                match select(pin!(body.read(&mut slices)), &mut timer).await {
                    Either::Left((count, _)) => Some(count?),
                    Either::Right(_) => None,
                }
            };
            let Some(count) = came else {
                // Bytes of a slow body may have arrived that are too few to be reported.
                let is_told_now = body.wait_for_any();
                let pause = if is_told_now { REPORTED } else { self.next_look(source, &range, heard)? };
                timer = Box::pin(self.clock.sleep(pause));
                continue;
            };
            if count == 0 {
                let found = at - range.start;
                return Err(source.too_short(range, found).into());
            }
            heard = self.clock.now();
            first_byte = first_byte.or(Some(heard));
            at += count as u64;
            room.filled(count);
        }
        let first_byte = first_byte.unwrap_or(heard);
        Ok(Get { begun, first_byte, last_byte: heard, bytes: range.end - range.start })
    }

    /// Returns the time to the next check of a body whose last byte arrived at `heard`, or the error that the body
    /// stalled.
    ///
    /// One timer serves many chunks, so that it need not be reset for each of them.
    fn next_look<S: Source>(&self, source: &S, range: &Range<u64>, heard: Moment) -> Result<Duration> {
        let waited = self.clock.since(heard);
        match self.policy.stall_timeout.checked_sub(waited) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(Error::Stalled { attempted: reading(source, range), waited }),
        }
    }
}

/// Describes a read, for error messages.
fn reading<S: Source>(source: &S, range: &Range<u64>) -> String {
    format!("reading bytes {}..{} of {}", range.start, range.end, source.place())
}
