//! What a stream did so far, and where the time of its steps went.

use std::ops::AddAssign;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The statistics of a stream since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamStats {
    /// The number of delivered rows, padding included.
    pub rows: u64,
    /// Bytes of the delivered columns.
    pub bytes: u64,
    /// The number of delivered batches.
    pub batches: u64,
    /// The number of range reads of dense columns. Reads from the cache are not counted.
    pub requests: u64,
    /// Bytes that these range reads returned.
    pub bytes_read: u64,
    /// The number of reads that were repeated after transient faults.
    pub retries: u64,
    /// The number of second GETs for reads that took much longer than others.
    pub hedges: u64,
    /// The number of GETs that all streams of the process may have in flight at the moment. The limit follows the
    /// throughput of the object store. It is zero for a stream from a server.
    pub request_limit: u64,
    /// Bytes that were compared with their checksums.
    pub verified_bytes: u64,
    /// Bytes of chunks that were read from the cache instead of an object store.
    pub cache_hit_bytes: u64,
    /// Bytes of chunks that were not in the cache.
    pub cache_miss_bytes: u64,
    /// The number of damaged chunks in the cache. They were removed and read from the store.
    pub cache_damaged: u64,
    /// The time that the consumer waited in `next`, in nanoseconds.
    pub wait_nanos: u64,
    /// The time from opening the stream to its first batch, in nanoseconds.
    pub first_batch_nanos: Option<u64>,
    /// Where the time of all steps together went.
    pub stalls: Stalls,
    /// Where the time of the last step went.
    pub last_step: Stalls,
}

impl StreamStats {
    /// Adds the totals of the stream's reads.
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

/// Where the time of steps went: to the pipeline, while the consumer waited for it, and to the consumer.
///
/// A step lasts from the moment at which the consumer got a batch to the moment at which it gets the next one. The
/// first step begins when the consumer asks for a batch. Until the consumer asks for the next batch, the time is
/// counted as the consumer's. The rest of the step, in which the consumer waits, is divided in proportion to the times
/// that it took to make the batch:
///
/// - storage: at least one read was in flight, of dense columns, of pages of the row set, or of a table in an object
///   store through Lance's decoder, which reads and decodes in one call. The rows of dense columns are compared with
///   their checksums as they arrive, which counts as storage;
/// - decode: the rest of the time of the unit that completed the batch. It includes columns that Lance's decoder reads
///   from a local disk and the comparison with their checksums, substitutes for bad rows, assembling the batch, and
///   decoding images. For a remote stream, it also includes joining messages;
/// - network, for a remote stream: waiting for messages, less the time that the server itself waited for the batch. The
///   server sends that time with the batch, and it counts as storage and decode.
///
/// Work that is done while the consumer is busy delays nobody and is not counted. The times therefore tell what an
/// improvement would gain. They are not a profile: where several units are read at once, each of them counts the time
/// that it shares with the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// The time spent reading stored bytes.
    pub storage: Duration,
    /// The time spent decoding, verifying and assembling.
    pub decode: Duration,
    /// The time spent waiting for messages from servers.
    pub network: Duration,
    /// The time of the consumer itself, from getting a batch to asking for the next one.
    pub consumer: Duration,
}

impl Stalls {
    /// Returns the names of the times, with their values.
    pub fn named(&self) -> [(&'static str, Duration); 4] {
        [("storage", self.storage), ("decode", self.decode), ("network", self.network), ("consumer", self.consumer)]
    }

    /// Returns the sum of all times, or the longest time that a [`Duration`] holds.
    pub fn total(&self) -> Duration {
        let [storage, decode, network, consumer] = self.named().map(|(_, time)| time);
        storage.saturating_add(decode).saturating_add(network).saturating_add(consumer)
    }

    /// Returns the ratio of `time` to the total, from 0 to 1. It is 0 if the total is 0.
    pub fn share(&self, time: Duration) -> f64 {
        let total = self.total();
        if total.is_zero() { 0.0 } else { time.as_secs_f64() / total.as_secs_f64() }
    }

    /// Returns times with the same proportions and another total. If nothing was measured, all of the total is storage.
    pub fn scaled_to(&self, total: Duration) -> Self {
        let part =
            |time| Duration::try_from_secs_f64(total.as_secs_f64() * self.share(time)).unwrap_or(total).min(total);
        let (decode, network, consumer) = (part(self.decode), part(self.network), part(self.consumer));
        let storage = total.saturating_sub(decode).saturating_sub(network).saturating_sub(consumer);
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

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Range reads: system calls on local files, GETs on object stores without those that retries and hedges add.
    pub requests: u64,
    /// Bytes read, those between wanted rows included, and those around them that direct reads of local files bring along.
    pub bytes_read: u64,
    /// Bytes of wanted rows.
    pub bytes_used: u64,
    /// Reads that were repeated after a transient fault.
    pub retries: u64,
    /// Second GETs for reads that were slow beyond their peers.
    pub hedges: u64,
    /// Hedges that finished first.
    pub hedges_won: u64,
    /// Bytes that were compared with the checksums of their rows.
    pub verified_bytes: u64,
    /// Rows that did not have their checksums in two reads.
    pub bad_rows: u64,
    /// Bytes of chunks that came from the cache in place of their stores.
    pub cache_hit_bytes: u64,
    /// Bytes of chunks that were looked for in the cache and were not there.
    pub cache_miss_bytes: u64,
    /// Chunks of the cache that were damaged: they were removed, and read from their stores.
    pub cache_damaged: u64,
}

impl AddAssign for IoTotals {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes_read += other.bytes_read;
        self.bytes_used += other.bytes_used;
        self.retries += other.retries;
        self.hedges += other.hedges;
        self.hedges_won += other.hedges_won;
        self.verified_bytes += other.verified_bytes;
        self.bad_rows += other.bad_rows;
        self.cache_hit_bytes += other.cache_hit_bytes;
        self.cache_miss_bytes += other.cache_miss_bytes;
        self.cache_damaged += other.cache_damaged;
    }
}
