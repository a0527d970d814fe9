//! What the streams of a process share.

use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

use stoker_batch::{MemoryBudget, Quota};
use stoker_chunks::{ChunkCache, Group, LocalReads, Membership, RequestLimit, SharedReads};
use stoker_clock::Clock;
use stoker_types::calls::OpenStream;
use stoker_types::{Digest, Slice};

use crate::open_streams::{OpenEntry, OpenStreams};
use crate::resident::{ResidentMemory, ResidentStreams};

/// The name of the client of streams in this process.
const LOCAL_CLIENT: &str = "local";

/// The memory, the requests to object stores, the shared blocks, the cache, the list of open streams and the clock that
/// the streams of a process share. Cheap to clone; clones are the same resources.
#[derive(Clone, Debug)]
pub struct Resources {
    memory: MemoryBudget,
    reads: SharedReads,
    requests: RequestLimit,
    cache: Option<ChunkCache>,
    local_reads: LocalReads,
    open: OpenStreams,
    resident: ResidentStreams,
    client: Arc<str>,
}

impl Default for Resources {
    /// Makes resources with the memory budget of [`MemoryBudget::default`].
    fn default() -> Self {
        Self::with_budget(None)
    }
}

impl Resources {
    /// Makes resources with a memory budget of `memory_bytes`, whatever the caps of the streams are.
    pub fn new(memory_bytes: u64) -> Self {
        Self::with_budget(Some(memory_bytes))
    }

    /// Like [`Resources::new`], or [`Resources::default`] for `None`.
    pub fn with_budget(memory_bytes: Option<u64>) -> Self {
        Self::with_clock(memory_bytes, Clock::default())
    }

    /// Like [`Resources::with_budget`], with another clock than the machine's. It decides about retries of reads,
    /// hedges, the pace of requests and how long memory is kept, and measures the streams. Shared blocks and the cache
    /// go by the machine's clock.
    pub fn with_clock(memory_bytes: Option<u64>, clock: Clock) -> Self {
        let reads = SharedReads::default();
        Self {
            memory: MemoryBudget::with_shared(memory_bytes, Arc::new(reads.clone()), clock.clone()),
            reads,
            requests: RequestLimit::with_clock(clock),
            cache: None,
            local_reads: LocalReads::default(),
            open: OpenStreams::default(),
            resident: ResidentStreams::default(),
            client: LOCAL_CLIENT.into(),
        }
    }

    /// Returns the same resources for streams that keep chunks of object stores in a cache. In addition to the budget,
    /// these streams hold up to 160 MiB of chunks that are being read from or written to the cache.
    #[must_use]
    pub fn with_cache(self, cache: Option<ChunkCache>) -> Self {
        Self { cache, ..self }
    }

    /// Returns the same resources for streams that read local files in this way. In addition to the budget, direct
    /// reads hold 1 MiB for each reading thread.
    #[must_use]
    pub fn with_local_reads(self, local_reads: LocalReads) -> Self {
        Self { local_reads, ..self }
    }

    /// Returns the same resources for the streams of one client. While several clients wait for requests to object
    /// stores, each client gets an equal number of requests, however many streams it has.
    #[must_use]
    pub fn for_client(&self, client: impl Hash, name: impl Display) -> Self {
        Self { requests: self.requests.for_client(client), client: name.to_string().into(), ..self.clone() }
    }

    /// Returns the memory budget of the batches.
    pub fn memory(&self) -> &MemoryBudget {
        &self.memory
    }

    /// Returns the limit on the requests to object stores that all streams have in flight.
    pub fn requests(&self) -> &RequestLimit {
        &self.requests
    }

    /// Returns the clock of the streams.
    pub fn clock(&self) -> &Clock {
        self.requests.clock()
    }

    /// Returns the cache in which streams keep chunks of object stores, if there is one.
    pub fn cache(&self) -> Option<&ChunkCache> {
        self.cache.as_ref()
    }

    /// Returns how streams read local files.
    pub fn local_reads(&self) -> LocalReads {
        self.local_reads
    }

    /// The number of streams that have resident rows.
    pub(crate) fn resident(&self) -> &ResidentStreams {
        &self.resident
    }

    /// The streams that are open, oldest first.
    pub fn open_streams(&self) -> Vec<OpenStream> {
        self.open.list(self.clock().now())
    }

    /// Adds a stream of the client to the open streams.
    pub(crate) fn opened(
        &self,
        stream_id: Digest,
        slice: Slice,
        quota: Quota,
        resident: Option<Arc<ResidentMemory>>,
    ) -> OpenEntry {
        self.open.add(stream_id, slice, self.client.clone(), (quota, resident), self.clock().now())
    }

    /// Adds a stream to a group of ranks that share blocks. The stream must do this before it joins the budget. While
    /// several streams share blocks, two thirds of the budget are set aside for these blocks.
    pub fn share(&self, group: Group, rank: u32, num_ranks: u64) -> Membership {
        self.reads.join(group, rank, num_ranks)
    }

    /// Returns the bytes of shared blocks, which are in addition to the bytes that streams hold.
    pub fn shared_bytes(&self) -> u64 {
        self.reads.bytes()
    }
}
