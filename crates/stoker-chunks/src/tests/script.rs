//! A file whose answers to GETs follow a script, and reads of it in virtual time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::vec::IntoIter;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use stoker_batch::{BufferPool, Slots};
use stoker_checksum::checksum;
use stoker_clock::{Clock, ManualClock};
use stoker_lake::RangeBody;
use stoker_types::{ErrorKind, IoTotals, Moment};

use crate::coalesce::{Piece, Read};
use crate::remote::{Remote, Source};
use crate::{ChunkScanOptions, IoStats, RequestLimit, Result};

/// object_store's message about a store that gets too many requests.
pub(super) const REFUSAL: &str = "Server returned non-2xx status code: 503 Service Unavailable: SlowDown";

const PLACE: &str = "data file x of table t@1";

const ROW: usize = 100;

const NUM_ROWS: usize = 20;

/// The range of a read, which wants every second row of the file.
pub(super) const RANGE: Range<u64> = 1_000..4_900;

/// The next event of a body.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Delivers this many bytes, at most up to the end of the range.
    Bytes(u64),
    /// Delivers this many bytes that differ from those of the file.
    Wrong(u64),
    /// Lets time pass.
    Wait(Duration),
    /// Breaks with an error of this kind.
    Fail(ErrorKind),
    /// Delivers nothing more, forever.
    Hang,
}

/// Delivers the rest of the range.
pub(super) const REST: Step = Step::Bytes(u64::MAX);

/// The answer to a GET.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// An error of this kind.
    Refused(ErrorKind),
    /// A body, which ends after these steps.
    Body(Vec<Step>),
}

/// A file that answers the first GETs by a script, and all later ones with the requested bytes.
struct Script {
    clock: Clock,
    answers: Mutex<VecDeque<Answer>>,
    ranges: Mutex<Vec<Range<u64>>>,
    bytes_sent: Arc<AtomicU64>,
}

impl Source for Script {
    fn place(&self) -> &str {
        PLACE
    }

    fn open(&self, range: Range<u64>) -> BoxFuture<'_, stoker_lake::Result<RangeBody>> {
        self.ranges.lock().push(range.clone());
        let answer = self.answers.lock().pop_front().unwrap_or_else(|| Answer::Body(vec![REST]));
        let answered = match answer {
            Answer::Refused(kind) => Err(fault(&range, kind, REFUSAL)),
            Answer::Body(steps) => Ok(self.body(range, steps)),
        };
        Box::pin(async move { answered })
    }

    fn too_short(&self, range: Range<u64>, found: u64) -> stoker_lake::Error {
        fault(&range, ErrorKind::Unavailable, &format!("only {found} bytes came"))
    }
}

impl Script {
    fn body(&self, range: Range<u64>, steps: Vec<Step>) -> RangeBody {
        let (clock, bytes_sent) = (self.clock.clone(), self.bytes_sent.clone());
        let at = range.start;
        let sender = Sender { steps: steps.into_iter(), range, at, clock, bytes_sent };
        RangeBody::from_chunks(stream::unfold(sender, Sender::next).boxed())
    }
}

/// The remaining part of a body.
struct Sender {
    steps: IntoIter<Step>,
    range: Range<u64>,
    at: u64,
    clock: Clock,
    bytes_sent: Arc<AtomicU64>,
}

impl Sender {
    async fn next(mut self) -> Option<(stoker_lake::Result<Bytes>, Self)> {
        loop {
            let (length, flip) = match self.steps.next() {
                None => return None,
                Some(Step::Bytes(length)) => (length, 0),
                Some(Step::Wrong(length)) => (length, 0xFF),
                Some(Step::Fail(kind)) => return Some((Err(fault(&self.range, kind, "connection reset")), self)),
                Some(Step::Wait(wait)) => {
                    self.clock.sleep(wait).await;
                    continue;
                }
                Some(Step::Hang) => {
                    std::future::pending::<()>().await;
                    continue;
                }
            };
            let end = self.at.saturating_add(length).min(self.range.end);
            let chunk: Bytes = (self.at..end).map(|at| byte(at) ^ flip).collect();
            self.bytes_sent.fetch_add(end - self.at, Ordering::Relaxed);
            self.at = end;
            return Some((Ok(chunk), self));
        }
    }
}

/// The file's byte at an offset.
fn byte(at: u64) -> u8 {
    (at * 31 + at / 251) as u8
}

fn fault(range: &Range<u64>, kind: ErrorKind, reason: &str) -> stoker_lake::Error {
    let attempted = format!("reading bytes {}..{} of {PLACE}", range.start, range.end);
    match kind {
        ErrorKind::DataCorrupt => stoker_lake::Error::DataCorrupt { attempted, reason: reason.to_string() },
        kind => stoker_lake::Error::Storage { attempted, kind, source: reason.into() },
    }
}

/// Reads of a scripted file, with counters.
pub(super) struct Trial {
    pub time: ManualClock,
    stats: Arc<IoStats>,
    script: Script,
    remote: Remote,
    limit: RequestLimit,
}

impl Trial {
    /// Makes a file that gives these answers to the first GETs.
    pub fn new(options: ChunkScanOptions, answers: Vec<Answer>) -> Self {
        let (time, stats) = (ManualClock::new(), Arc::<IoStats>::default());
        let limit = RequestLimit::with_clock(Clock::from(&time));
        let remote = Remote::new(&options, &limit, stats.clone());
        let script = Script {
            clock: Clock::from(&time),
            answers: Mutex::new(answers.into()),
            ranges: Mutex::default(),
            bytes_sent: Arc::default(),
        };
        Self { time, stats, script, remote, limit }
    }

    /// Reads the range, checks all bytes a minute later, and returns when the read was done.
    pub async fn read(&self) -> Result<Duration> {
        self.read_runs(1).await
    }

    /// Reads as [`Trial::read`] does, but wants rows in runs of `run_rows`, with as many rows between them.
    pub async fn read_runs(&self, run_rows: usize) -> Result<Duration> {
        let slots = Slots::try_new(&BufferPool::new(0), NUM_ROWS, ROW).expect("memory");
        let at = |row: usize| ((row / run_rows * run_rows + row) * ROW) as u64;
        let piece = |first: usize| {
            let rows = first..(first + run_rows).min(NUM_ROWS);
            Ok(Piece::new(first as u64, at(first), slots.claim_rows(rows)?))
        };
        let pieces = (0..NUM_ROWS).step_by(run_rows).map(piece).collect::<Result<Vec<_>>>()?;
        let length = at(NUM_ROWS - 1) + ROW as u64;
        assert!(run_rows > 1 || length == RANGE.end - RANGE.start);
        let mut read = Read::new(0, RANGE.start, length, pieces);
        self.remote.read(&self.script, &mut read, run_rows > 1).await?;
        let done = self.elapsed();
        self.script.clock.sleep(Duration::from_secs(60)).await;
        let found = read.found().to_vec();
        read.finish();
        let bytes = slots.freeze()?;
        for row in 0..NUM_ROWS {
            let start = RANGE.start + at(row);
            let expected: Vec<u8> = (start..start + ROW as u64).map(byte).collect();
            assert_eq!(&bytes[row * ROW..(row + 1) * ROW], &expected, "row {row}");
            assert!(run_rows == 1 || found[row] == checksum(&expected), "row {row}");
        }
        Ok(done)
    }

    /// Reads the range into memory of its own, checks its bytes, and returns when the read was done.
    pub async fn read_range(&self) -> Result<Duration> {
        let bytes = self.remote.read_range(&self.script, RANGE, &BufferPool::new(0)).await?;
        assert!(bytes.iter().copied().eq(RANGE.map(byte)));
        Ok(self.elapsed())
    }

    /// The time since the file was made.
    pub fn elapsed(&self) -> Duration {
        self.time.now() - Moment::START
    }

    /// The range of each GET so far.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        self.script.ranges.lock().clone()
    }

    /// The number of bytes that all bodies delivered so far.
    pub fn bytes_sent(&self) -> u64 {
        self.script.bytes_sent.load(Ordering::Relaxed)
    }

    /// The current limit of GETs in flight.
    pub fn num_requests(&self) -> usize {
        self.limit.num_requests()
    }

    /// The values of the counters.
    pub fn totals(&self) -> IoTotals {
        self.stats.totals()
    }
}
