//! A file of a bucket.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use stoker_files::FileBytes;
use stoker_types::to_usize;

use crate::fetch::Fetch;
use crate::read_ahead::{PART_BYTES, ReadAhead};
use crate::{Bucket, ListedObject};

/// A file of a bucket, as it was listed. Opening it makes no request. Reads block the thread.
pub struct BucketFile {
    bucket: Bucket,
    key: Arc<str>,
    listed: ListedObject,
    ahead: Mutex<ReadAhead<Arc<Fetch>>>,
}

impl BucketFile {
    /// Opens a file. `whole` is the request for all of it, if one was begun.
    pub(crate) fn new(bucket: Bucket, key: &str, listed: ListedObject, whole: Option<Arc<Fetch>>) -> Self {
        let ahead = Mutex::new(ReadAhead::new(listed.bytes, whole));
        Self { bucket, key: key.into(), listed, ahead }
    }

    /// Returns the bytes of a range, which may be shared with other reads.
    ///
    /// # Errors
    /// `UnexpectedEof` for a range that the file does not have; errors whose source is an [`Error`].
    pub fn read_range(&self, range: Range<u64>) -> io::Result<Bytes> {
        if range.end > self.listed.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let length = range.end.saturating_sub(range.start);
        if length <= PART_BYTES
            && let [(fetch, within)] = self.parts(range.clone()).as_slice()
        {
            let bytes = fetch.wait()?;
            return slice(&bytes, within).map(|()| bytes.slice(within.clone()));
        }
        let mut bytes = vec![0; to_usize(length)];
        self.read_at(range.start, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Returns the requests that give the bytes of a range of at most one part, and begins those that are missing.
    fn parts(&self, range: Range<u64>) -> Vec<(Arc<Fetch>, Range<usize>)> {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.read(range, &mut |part| self.begin(part))
    }

    fn begin(&self, part: Range<u64>) -> Arc<Fetch> {
        self.bucket.begin(self.key.clone(), part, self.listed.clone())
    }
}

/// Checks that a response has the bytes that were asked for.
fn slice(bytes: &[u8], within: &Range<usize>) -> io::Result<()> {
    bytes.get(within.clone()).map(|_| ()).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl FileBytes for BucketFile {
    fn size(&self) -> u64 {
        self.listed.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.listed.bytes);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (mut at, mut left) = (offset, into);
        if end - at > PART_BYTES {
            self.ahead.lock().unwrap_or_else(PoisonError::into_inner).will_go_on(at);
        }
        while at < end {
            let next = end.min(at.saturating_add(PART_BYTES));
            for (fetch, within) in self.parts(at..next) {
                let bytes = fetch.wait()?;
                slice(&bytes, &within)?;
                let (now, rest) = std::mem::take(&mut left).split_at_mut(within.len());
                now.copy_from_slice(&bytes[within]);
                left = rest;
            }
            at = next;
        }
        Ok(())
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.will_read(ranges, &mut |part| self.begin(part));
    }
}

impl fmt::Debug for BucketFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketFile").field("key", &self.key).field("listed", &self.listed).finish_non_exhaustive()
    }
}
