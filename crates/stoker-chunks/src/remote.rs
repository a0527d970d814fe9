//! Reads from object stores: body bytes go to the slots of their rows as they arrive, whatever befalls the requests.
//!
//! ```text
//! GET ──bytes──► slots             after a fault: a wait, then a GET of the bytes that are missing
//!  └──slow──► GET ──► memory       of the two, the first to finish fills the slots
//! ```

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, Either, select};
use futures::stream::BoxStream;
use stoker_lake::RangeReader;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::clock::Clock;
use crate::coalesce::Read;
use crate::hedge::{Hedges, PATIENCE_MIN};
use crate::retry::Retries;
use crate::{ChunkScanOptions, Error, IoStats, Result, RetryPolicy};

/// The bytes of a range as they arrive.
pub(crate) type Body = BoxStream<'static, stoker_lake::Result<Bytes>>;

/// A file that answers GETs; tests bring files whose answers fail.
pub(crate) trait Source: Sync {
    /// Table and path, for messages.
    fn place(&self) -> &str;

    /// Begins a GET.
    fn open(&self, range: Range<u64>) -> BoxFuture<'_, stoker_lake::Result<Body>>;

    /// The error for a body that ended early.
    fn too_short(&self, range: Range<u64>, found: u64) -> stoker_lake::Error;
}

impl Source for RangeReader {
    fn place(&self) -> &str {
        RangeReader::place(self)
    }

    fn open(&self, range: Range<u64>) -> BoxFuture<'_, stoker_lake::Result<Body>> {
        Box::pin(self.read_stream(range))
    }

    fn too_short(&self, range: Range<u64>, found: u64) -> stoker_lake::Error {
        RangeReader::too_short(self, range, found)
    }
}

/// What the remote reads of a scan share.
#[derive(Debug)]
pub(crate) struct Remote {
    permits: Semaphore,
    policy: RetryPolicy,
    hedges: Option<Hedges>,
    stats: Arc<IoStats>,
    clock: Arc<dyn Clock>,
}

impl Remote {
    /// Limits from options, counts and time from outside.
    pub fn new(options: &ChunkScanOptions, stats: Arc<IoStats>, clock: Arc<dyn Clock>) -> Self {
        Self {
            permits: Semaphore::new(options.remote_requests_max.max(1)),
            policy: options.retry,
            hedges: options.hedge.then(Hedges::new),
            stats,
            clock,
        }
    }

    /// Reads a range into the slots of its rows, with as many GETs as it takes. Each byte is written once.
    ///
    /// # Errors
    /// Permanent errors of storage; [`Error::GaveUp`] when the retries of transient ones are used up.
    pub async fn read<S: Source>(&self, source: &S, read: &mut Read) -> Result<()> {
        let closed = |_| Error::Internal { reason: "the semaphore for remote reads is closed".into() };
        let _permit = self.permits.acquire().await.map_err(closed)?;
        let whole = read.offset..read.offset + read.length;
        let mut hedges = self.hedges.as_ref().inspect(|hedges| hedges.add_read());
        let mut retries = Retries::new(self.policy, self.clock.as_ref());
        let mut target = Target { read, done: 0, piece: 0 };
        loop {
            let before = target.done;
            let Err(error) = self.attempt(source, &mut target, &mut hedges).await else { return Ok(()) };
            if !error.kind().is_transient() {
                return Err(error);
            }
            if target.done > before {
                retries.progressed();
            }
            let Some(wait) = retries.failed() else {
                return Err(retries.gave_up(reading(source, &whole), error));
            };
            self.stats.add_retry();
            self.clock.sleep(wait).await;
        }
    }

    /// One GET of the bytes that are missing, or two when the first is slow and the read was not hedged before.
    async fn attempt<S: Source>(
        &self,
        source: &S,
        target: &mut Target<'_>,
        hedges: &mut Option<&Hedges>,
    ) -> Result<()> {
        let (start, end) = (target.read.offset, target.read.offset + target.read.length);
        let begun = start + target.done;
        let at = AtomicU64::new(begun);
        let (hedge_begun, chunks) = {
            let put = |chunk: Bytes| {
                target.put(&chunk);
                at.store(start + target.done, Ordering::Relaxed);
            };
            let mut first = pin!(self.pour(source, begun..end, put));
            let Some(share) = *hedges else { return first.await };
            let _permit = match self.until_slow(&mut first, share, end - begun).await {
                Either::Left(done) => return done,
                Either::Right(permit) => permit,
            };
            *hedges = None;
            self.stats.add_hedge();
            let hedge_begun = at.load(Ordering::Relaxed);
            let second = pin!(self.collect(source, hedge_begun..end));
            let chunks = match select(first, second).await {
                Either::Left((Err(error), second)) if error.kind().is_transient() => second.await.map_err(|_| error)?,
                Either::Left((done, _)) => return done,
                Either::Right((Ok(chunks), _)) => chunks,
                Either::Right((Err(_), first)) => return first.await,
            };
            (hedge_begun, chunks)
        };
        self.stats.add_hedge_won();
        target.put_missing(hedge_begun - start, &chunks);
        Ok(())
    }

    /// Waits for a GET until it is done, or so slow that a second one may begin, which needs a permit that is free at once.
    async fn until_slow<F>(&self, first: &mut F, hedges: &Hedges, bytes: u64) -> Either<Result<()>, SemaphorePermit<'_>>
    where
        F: Future<Output = Result<()>> + Unpin,
    {
        let mut patience = hedges.patience(bytes);
        loop {
            if let Either::Left((done, _)) = select(&mut *first, self.clock.sleep(patience)).await {
                return Either::Left(done);
            }
            if let Ok(permit) = self.permits.try_acquire()
                && hedges.try_take()
            {
                return Either::Right(permit);
            }
            patience = PATIENCE_MIN;
        }
    }

    /// The bytes of a range, in memory of their own.
    async fn collect<S: Source>(&self, source: &S, range: Range<u64>) -> Result<Vec<Bytes>> {
        let mut chunks = Vec::new();
        self.pour(source, range, |chunk| chunks.push(chunk)).await?;
        Ok(chunks)
    }

    /// Hands on the bytes of a range as they arrive: all of them, or an error.
    ///
    /// How long the answer may stay away is left to the store's own timeouts, up to the whole budget: a request that was
    /// given up while it waits for its turn there would go to the end of the queue again.
    async fn pour<S: Source>(&self, source: &S, range: Range<u64>, mut put: impl FnMut(Bytes)) -> Result<()> {
        let begun = self.clock.now();
        let waited = self.policy.budget.max(self.policy.stall_timeout);
        let mut body = match select(source.open(range.clone()), self.clock.sleep(waited)).await {
            Either::Left((body, _)) => body?,
            Either::Right(_) => return Err(Error::Stalled { attempted: reading(source, &range), waited }),
        };
        let mut at = range.start;
        let mut first_byte = None;
        let mut heard = self.clock.now();
        let mut timer = self.clock.sleep(self.policy.stall_timeout);
        while at < range.end {
            let chunk = match select(body.next(), timer).await {
                Either::Left((chunk, running)) => {
                    timer = running;
                    chunk
                }
                Either::Right(_) => {
                    timer = self.next_look(source, &range, heard)?;
                    continue;
                }
            };
            let Some(chunk) = chunk else {
                let found = at - range.start;
                return Err(source.too_short(range, found).into());
            };
            let mut chunk = chunk?;
            chunk.truncate(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            if !chunk.is_empty() {
                heard = self.clock.now();
                first_byte = first_byte.or(Some(heard));
                at += chunk.len() as u64;
                put(chunk);
            }
        }
        if let (Some(hedges), Some(first_byte)) = (&self.hedges, first_byte) {
            let (to_first, body) = (first_byte.saturating_sub(begun), heard.saturating_sub(first_byte));
            hedges.add_peer(to_first, body, range.end - range.start);
        }
        Ok(())
    }

    /// The next look at a body whose last byte came at `heard`, or the error that it stalled.
    ///
    /// One timer serves many chunks: it is not moved with each of them.
    fn next_look<S: Source>(&self, source: &S, range: &Range<u64>, heard: Duration) -> Result<BoxFuture<'static, ()>> {
        let waited = self.clock.now().saturating_sub(heard);
        match self.policy.stall_timeout.checked_sub(waited) {
            Some(left) if !left.is_zero() => Ok(self.clock.sleep(left)),
            _ => Err(Error::Stalled { attempted: reading(source, range), waited }),
        }
    }
}

/// What is attempted, for messages.
fn reading<S: Source>(source: &S, range: &Range<u64>) -> String {
    format!("reading bytes {}..{} of {}", range.start, range.end, source.place())
}

/// The slots of a read, which fill from its start to its end.
struct Target<'a> {
    read: &'a mut Read,
    /// Bytes that came.
    done: u64,
    /// The first piece that is not filled.
    piece: usize,
}

impl Target<'_> {
    /// Puts the bytes that follow where they belong.
    fn put(&mut self, chunk: &[u8]) {
        let (at, end) = (self.done, self.done + chunk.len() as u64);
        while let Some(target) = self.read.pieces.get_mut(self.piece) {
            let target_end = target.at + target.slot.len() as u64;
            let (from, to) = (at.max(target.at), end.min(target_end));
            if from < to {
                let source = &chunk[(from - at) as usize..(to - at) as usize];
                target.slot[(from - target.at) as usize..(to - target.at) as usize].copy_from_slice(source);
            }
            if target_end > end {
                break;
            }
            self.piece += 1;
        }
        self.done = end;
    }

    /// Puts the bytes that are missing from chunks that begin at `at`, where no byte is missing before.
    fn put_missing(&mut self, mut at: u64, chunks: &[Bytes]) {
        for chunk in chunks {
            let known = self.done.saturating_sub(at).min(chunk.len() as u64);
            self.put(&chunk[known as usize..]);
            at += chunk.len() as u64;
        }
    }
}
