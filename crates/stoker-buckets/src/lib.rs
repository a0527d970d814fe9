//! Files of buckets and of web servers, read by ranges.
//!
//! ```text
//! SourceUri ──► Bucket ── list, find ──► ListedObject: size, ETag
//!                 ├─ file ──► BucketFile (FileBytes) ──ReadAhead──► Fetch, Fetch, … in flight, in parts of up to 4 MiB
//!                 └─ fetch_ahead ──► small files, whole, many in flight, before they are opened
//! ```
//!
//! A [`BucketFile`] is read as a local file is: at any offset, by a thread that waits. What makes that fast is done before the
//! thread asks: files of up to 4 MiB are fetched whole, and those of a folder that will be opened soon are fetched ahead; larger
//! files are read ahead of whoever reads them in order, in as many places as it reads. All of it is bounded: a file holds at
//! most 32 MiB and a few parts, and a bucket fetches at most 64 MiB of small files ahead, with at most 64 requests in flight.
//!
//! Each response has the ETag and the size of the object. If they are not those that were listed, the object changed, which is
//! an error of its own: what was read before belongs to another object.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod bucket;
mod bucket_file;
mod error;
mod fetch;
mod fetch_ahead;
mod listed_object;
mod read_ahead;
mod requests;
mod source_uri;
mod store_requests;
mod website;

pub use bucket::{Bucket, Found};
pub use bucket_file::BucketFile;
pub use error::{Error, Result};
pub use fetch_ahead::FetchAhead;
pub use listed_object::ListedObject;
pub use source_uri::SourceUri;
pub use stoker_store::without_secrets;

#[cfg(test)]
mod tests;
