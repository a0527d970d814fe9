//! Writing fragments: heavy columns in data files of their own, in pages just under 8 MiB.

mod column_file;
mod draft;
mod schema;
mod table_writer;

pub use draft::FragmentDraft;
pub(crate) use schema::check_schema;
pub use table_writer::{TableWriter, WriteOptions};
