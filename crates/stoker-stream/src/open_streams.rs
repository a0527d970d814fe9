//! The streams that are open in this process, for `stoker ps`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use stoker_batch::Quota;
use stoker_types::calls::OpenStream;
use stoker_types::{Digest, Moment, Slice};

use crate::resident::ResidentMemory;

/// A list of the open streams that share a memory budget. Cheap to clone; clones are the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenStreams(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    next_id: u64,
    /// By the order in which the streams were opened.
    streams: BTreeMap<u64, Arc<Open>>,
}

#[derive(Debug)]
struct Open {
    stream_id: Digest,
    slice: Slice,
    client: Arc<str>,
    quota: Quota,
    resident: Option<Arc<ResidentMemory>>,
    opened: Moment,
    rows: AtomicU64,
    bytes: AtomicU64,
}

/// The entry of one stream. Dropping it removes the stream from the list.
#[derive(Debug)]
pub(crate) struct OpenEntry {
    list: OpenStreams,
    id: u64,
    open: Arc<Open>,
}

impl OpenStreams {
    /// Adds a stream that delivers a slice to a client from now on.
    pub fn add(
        &self,
        stream_id: Digest,
        slice: Slice,
        client: Arc<str>,
        (quota, resident): (Quota, Option<Arc<ResidentMemory>>),
        opened: Moment,
    ) -> OpenEntry {
        let (rows, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let open = Arc::new(Open { stream_id, slice, client, quota, resident, opened, rows, bytes });
        let mut list = self.0.lock();
        let id = list.next_id;
        list.next_id += 1;
        list.streams.insert(id, open.clone());
        OpenEntry { list: self.clone(), id, open }
    }

    /// The open streams, oldest first, as they are now.
    pub fn list(&self, now: Moment) -> Vec<OpenStream> {
        let streams: Vec<Arc<Open>> = self.0.lock().streams.values().cloned().collect();
        streams.iter().map(|open| open.describe(now)).collect()
    }
}

impl Open {
    fn describe(&self, now: Moment) -> OpenStream {
        OpenStream {
            stream_id: self.stream_id,
            client: self.client.to_string(),
            epoch: self.slice.epoch,
            rank: self.slice.topology.rank,
            world_size: self.slice.topology.world_size,
            first_step: self.slice.first_step,
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            held_bytes: self.quota.held_bytes() + self.resident.as_ref().map_or(0, |resident| resident.held_bytes()),
            secs: (now - self.opened).as_secs_f64(),
        }
    }
}

impl OpenEntry {
    /// Counts rows that the consumer took, and the bytes of their columns.
    pub fn count(&self, rows: u64, bytes: u64) {
        self.open.rows.fetch_add(rows, Ordering::Relaxed);
        self.open.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for OpenEntry {
    fn drop(&mut self) {
        // The removed stream must be dropped after the lock: its quota may be the last one, and takes the lock of the budget.
        let removed = self.list.0.lock().streams.remove(&self.id);
        drop(removed);
    }
}
