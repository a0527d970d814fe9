//! What a stream did so far, and where the time of its steps went.

use std::ops::AddAssign;
use std::time::Duration;

use stoker_chunks::IoTotals;

/// What a stream did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Rows delivered, padding included.
    pub rows: u64,
    /// Bytes of the delivered columns.
    pub bytes: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Range reads of dense columns; none for what comes from the cache.
    pub requests: u64,
    /// Bytes that those reads brought.
    pub bytes_read: u64,
    /// Reads repeated after transient faults.
    pub retries: u64,
    /// Second GETs for reads that were slow beyond their peers.
    pub hedges: u64,
    /// GETs that all streams of the process may have under way now; follows what object stores can do. Zero for a stream from a
    /// server.
    pub request_limit: u64,
    /// Bytes that were compared with their checksums.
    pub verified_bytes: u64,
    /// Bytes of chunks that came from the cache in place of an object store.
    pub cache_hit_bytes: u64,
    /// Bytes of chunks that were not in the cache.
    pub cache_miss_bytes: u64,
    /// Chunks of the cache that were damaged: they were removed, and read from the store.
    pub cache_damaged: u64,
    /// Nanoseconds that the consumer waited in `next`.
    pub wait_nanos: u64,
    /// Nanoseconds from opening to the first batch.
    pub first_batch_nanos: Option<u64>,
    /// Where the time of all steps went.
    pub stalls: Stalls,
    /// Where the time of the last step went.
    pub last_step: Stalls,
}

impl StreamStats {
    /// Adds what reading took.
    pub fn add_io(&mut self, io: &IoTotals) {
        self.requests += io.requests;
        self.bytes_read += io.bytes_read;
        self.retries += io.retries;
        self.hedges += io.hedges;
        self.verified_bytes += io.verified_bytes;
        self.cache_hit_bytes += io.cache_hit_bytes;
        self.cache_miss_bytes += io.cache_miss_bytes;
        self.cache_damaged += io.cache_damaged;
    }
}

/// Where the time of steps went: to the pipeline, as far as the consumer waited for it, and to the consumer.
///
/// A step lasts from the moment in which the consumer got a batch to the moment in which it gets the next one; the first step
/// begins when it asks for a batch. Until it asks, the time is the consumer's. The rest, for which it waits, is divided in
/// proportion to what the making of the batch took:
///
/// - storage: at least one read was under way, of dense columns, of pages of the row set, or of a table in an object store
///   through Lance's decoder, which reads and decodes in one call. Rows of dense columns are compared with their checksums as
///   they come, which counts as reading them;
/// - decode: the rest of the unit that completed the batch: columns that Lance's decoder reads from a local disk, comparing
///   those with their checksums, substitutes for bad rows, assembling; images that are decoded; for a remote stream
///   also putting messages together;
/// - network, for a remote stream: waiting for messages, less what the server waited for the batch itself, which it tells with
///   the batch and which counts as its storage and decode.
///
/// What goes on while the consumer is busy delays nobody and is not counted. The parts tell what an improvement would help;
/// they are no profile: of units that are read at once, each counts the time that it shares with the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Reading stored bytes.
    pub storage: Duration,
    /// Decoding, verifying and assembling.
    pub decode: Duration,
    /// Messages from servers on their way.
    pub network: Duration,
    /// The consumer itself, between taking a batch and asking for the next.
    pub consumer: Duration,
}

impl Stalls {
    /// The names of the kinds, with their times.
    pub fn named(&self) -> [(&'static str, Duration); 4] {
        [("storage", self.storage), ("decode", self.decode), ("network", self.network), ("consumer", self.consumer)]
    }

    /// All together.
    pub fn total(&self) -> Duration {
        self.storage + self.decode + self.network + self.consumer
    }

    /// The part of a time in the total, from 0 to 1; 0 where the total is.
    pub fn share(&self, time: Duration) -> f64 {
        let total = self.total();
        if total.is_zero() { 0.0 } else { time.as_secs_f64() / total.as_secs_f64() }
    }

    /// The same proportions with another total; storage, where nothing was measured.
    pub(crate) fn scaled_to(&self, total: Duration) -> Self {
        let part = |time: Duration| total.mul_f64(self.share(time)).min(total);
        let (decode, network, consumer) = (part(self.decode), part(self.network), part(self.consumer));
        let storage = total.saturating_sub(decode + network + consumer);
        Self { storage, decode, network, consumer }
    }
}

impl AddAssign for Stalls {
    fn add_assign(&mut self, other: Self) {
        self.storage += other.storage;
        self.decode += other.decode;
        self.network += other.network;
        self.consumer += other.consumer;
    }
}
