//! Files of buckets: what is requested, when, and what becomes of faults.

mod files;
mod read_ahead;
mod uris;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::requests::Requests;
use crate::{Bucket, Error, ListedObject, Result};

/// A store in memory that notes what is asked of it, and fails where it is told to.
#[derive(Debug, Default)]
struct Store {
    objects: Mutex<BTreeMap<String, (Bytes, String)>>,
    /// The ranges that were asked for.
    asked: Mutex<Vec<(String, Range<u64>)>>,
    /// Errors of the next requests for bytes, the last one first.
    faults: Mutex<Vec<Error>>,
    /// Errors of the next listings, each after so many objects.
    cut_listings: Mutex<Vec<usize>>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    /// The number of requests for bytes that wait for each other, so that all are in flight at the same time.
    together: Option<tokio::sync::Barrier>,
}

impl Store {
    fn put(&self, key: &str, bytes: impl Into<Bytes>, version: &str) {
        self.objects.lock().unwrap().insert(key.into(), (bytes.into(), version.into()));
    }

    fn asked(&self) -> Vec<(String, Range<u64>)> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn listed(&self, key: &str) -> Option<ListedObject> {
        let objects = self.objects.lock().unwrap();
        let (bytes, version) = objects.get(key)?;
        Some(ListedObject { bytes: bytes.len() as u64, version: version.as_str().into(), modified_nanos: 0 })
    }

    fn open(self: &Arc<Self>) -> Bucket {
        Bucket::new("s3://bucket".into(), false, self.clone())
    }
}

#[async_trait::async_trait]
impl Requests for Store {
    async fn get(&self, key: &str, range: Range<u64>) -> Result<(Bytes, ListedObject)> {
        self.asked.lock().unwrap().push((key.into(), range.clone()));
        self.most_in_flight.fetch_max(self.in_flight.fetch_add(1, SeqCst) + 1, SeqCst);
        if let Some(together) = &self.together {
            together.wait().await;
        }
        self.in_flight.fetch_sub(1, SeqCst);
        if let Some(fault) = self.faults.lock().unwrap().pop() {
            return Err(fault);
        }
        let (bytes, _) = self.objects.lock().unwrap().get(key).cloned().ok_or_else(Error::gone)?;
        let listed = self.listed(key).ok_or_else(Error::gone)?;
        match bytes.get(range.start as usize..range.end as usize) {
            Some(found) => Ok((Bytes::copy_from_slice(found), listed)),
            None => Err(Error::Unavailable { reason: "416".into() }),
        }
    }

    async fn head(&self, key: &str) -> Result<Option<ListedObject>> {
        Ok(self.listed(key))
    }

    async fn list(&self, folder: &str, found: &mut Vec<(String, ListedObject)>) -> Result<()> {
        let after = found.last().map(|(key, _)| key.clone());
        let below = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let objects: Vec<String> = self.objects.lock().unwrap().keys().cloned().collect();
        let wanted =
            objects.into_iter().filter(|key| key.starts_with(&below) && after.as_ref().is_none_or(|after| key > after));
        let cut = self.cut_listings.lock().unwrap().pop();
        for (number, key) in wanted.enumerate() {
            if cut == Some(number) {
                return Err(Error::Unavailable { reason: "cut off".into() });
            }
            let listed = self.listed(&key).ok_or(Error::Missing)?;
            found.push((key, listed));
        }
        Ok(())
    }
}

/// Bytes that differ from place to place.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 7 + index / 1000) as u8).collect()
}

/// Does what blocks the thread where that is allowed.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}
