//! Writes fragments: each heavy column in a data file of its own, in pages just under 8 MiB.

mod column_file;
mod conform;
mod draft;
mod page_buffer;
mod schema;
mod table_writer;

pub(crate) use column_file::FragmentFiles;
use conform::with_losses;
pub(crate) use conform::{conform, retype};
pub use draft::{ColumnDraft, FragmentDraft};
pub(crate) use draft::{larger_losses, with_larger_losses};
pub(crate) use page_buffer::compact;
pub use schema::is_reserved_name;
pub(crate) use schema::{check_names, check_schema, with_media_uncompressed};
pub use table_writer::{TableWriter, WriteOptions};

#[cfg(test)]
mod tests;
