//! What is asked of files of datasets, and of the formats that read them as rows.
//!
//! ```text
//! Folder ──recognise──► FileFormat ──plan──► RowFiles: schema, files ──read──► RowReader ──next──► RowBatch …
//!   └─ open ──► FileBytes, at any offset: a local file, or an object of a bucket
//! ```
//!
//! A [`FileFormat`] looks at the names in a [`Folder`], and says which files have rows. Planning reads what the format
//! needs to know of the columns: a few rows of the first file, or an index. Then each file is read on its own, in any
//! order and on any machine, and gives the same rows each time.
//!
//! The columns of [`RowFiles::schema`] are those of tables: media has the marks of `stoker-columns`, tensors are
//! fixed-size lists. Values that do not fit are [`BadRow`]s, which name the row and the reason; the caller decides
//! whether they end the ingest.
//!
//! Files of buckets are far away: a reader that knows what it will read says so ([`FileBytes::will_read`],
//! [`Folder::fetch_ahead`]), so that many requests are in flight.
//!
//! Every reader limits the memory that it takes before it takes it, whatever a file declares.

#![warn(clippy::disallowed_methods)]

mod declared_media;
mod error;
mod file_bytes;
pub mod file_names;
mod folder;
mod format;
mod memory_folder;
mod path_inside;
mod sequential;

pub use declared_media::refuse_media;
pub use error::{Error, Result};
pub use file_bytes::{FileBytes, LocalFile};
pub use folder::{FilesAhead, Folder, FolderFile, LocalFolder};
pub use format::{BadRow, FileFormat, FormatOptions, RowBatch, RowFiles, RowReader};
pub use memory_folder::MemoryFolder;
pub use path_inside::{path_inside, real_path_inside};
pub use sequential::Sequential;

#[cfg(test)]
mod tests;
