//! Object stores: how requests to them are made, protected, retried and checked, and what their errors mean.
//!
//! ```text
//! StorageOptions ──► a store ──► BreakerStore ──► CheckedStores::wrap ──► reads of files
//!                                └─ Breaker: outages, the runtime for requests, new credentials
//!                    DirectStore ──► RangeBody (bytes of a range, from the socket into the reader's memory)
//! ```
//!
//! This crate knows `object_store` and HTTP. It knows the paths and the trailers of a table's files, but neither Lance
//! nor the rows of tables: `stoker-lake` opens the stores, and puts those of this crate in front of them.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod again;
mod atomic_create;
mod breaker;
mod breaker_store;
mod cached_read;
mod direct;
mod error;
mod range_body;
mod renewable;
pub mod seal;
pub mod sectors;
mod segment_cache;
mod staged_files;
mod storage_options;
mod uncached_file;
mod uri;

pub use again::again;
pub use atomic_create::AtomicCreate;
pub use breaker::{Breaker, Out, StoreRequests};
pub use breaker_store::{BreakerLister, BreakerStore, is_outage};
pub use cached_read::preadv_cached;
pub use direct::{DirectConnector, DirectStore};
pub use error::{Error, Finding, Interpret, Result, first_line, is_of_outage, is_of_overload};
pub use range_body::RangeBody;
pub use renewable::Open;
pub use segment_cache::{SegmentCache, SegmentKey};
pub use staged_files::{StagedFiles, remove_staged};
pub use stoker_net::http1::SocketBody;
pub use storage_options::StorageOptions;
pub use uncached_file::UncachedFile;
pub use uri::{is_remote, normalised_uri, without_secrets};
