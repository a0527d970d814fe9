//! MDS: shards of the library `mosaicml-streaming`, with an index.
//!
//! ```text
//! index.json: shards, columns ──plan──► MdsColumns
//! shard.00000.mds, also .zstd, .gz ──ShardReader──► samples ──MdsColumns::values──► rows
//! ```
//!
//! A dataset is a folder with `index.json`, or several such folders, such as `train` and `val`. An index that lies
//! below the folder of another one does not count: merged indexes name the shards of folders below them.
//!
//! | encoding | column |
//! |---|---|
//! | str, str_decimal | texts |
//! | json | texts, which are JSON |
//! | int, int8 … uint64, float16 … float64; str_int, str_float | numbers |
//! | jpeg, png | encoded images |
//! | bytes | bytes, or the media that the options say |
//! | ndarray:TYPE:SIZES | tensors |
//! | ndarray, ndarray:TYPE | lists, or tensors of which each has its own shape |
//!
//! Pickles (`pkl`) and raw pixels (`pil`) are refused, as are the compressions br, bz2 and snappy. Hashes are not checked;
//! sizes and numbers of samples must be those of the index.

mod columns;
mod encoding;
mod index;
mod ndarray;
mod rows;
mod shard_reader;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;

use self::columns::MdsColumns;
use self::index::{MdsShard, indexes, shards};
use self::rows::ShardRows;
use self::shard_reader::ShardReader;
use crate::{Error, FileFormat, Folder, FormatOptions, Result, RowFiles, RowReader};

/// The format of the library `mosaicml-streaming`.
#[derive(Clone, Copy, Debug)]
pub struct Mds;

impl FileFormat for Mds {
    fn name(&self) -> &'static str {
        "mds"
    }

    /// Reads the indexes. If one is damaged, files that have the ending of shards are returned, so that planning says what
    /// is wrong.
    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
        let indexes = indexes(folder);
        if indexes.is_empty() {
            return None;
        }
        let listed: Result<Vec<Vec<MdsShard>>> = indexes.iter().map(|index| shards(folder, index)).collect();
        let files: Vec<String> = match listed {
            Ok(listed) => listed.into_iter().flatten().map(|shard| shard.file).collect(),
            Err(_) => {
                let names = folder.files().iter().map(|file| &file.name);
                names.filter(|name| name.ends_with(".mds") || name.contains(".mds.")).cloned().collect()
            }
        };
        (!files.is_empty()).then_some(files)
    }

    /// Reads the indexes, and the first sample if the types of arrays are not in the index.
    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        let mut listed: HashMap<String, MdsShard> = HashMap::new();
        for index in indexes(&*folder) {
            listed.extend(shards(&*folder, index)?.into_iter().map(|shard| (shard.file.clone(), shard)));
        }
        let find = |file: &String| {
            listed
                .remove(file)
                .ok_or_else(|| Error::malformed(file, "no index has this file as a shard, or it comes twice"))
        };
        let shards: Vec<MdsShard> = files.iter().map(find).collect::<Result<_>>()?;
        let columns = MdsColumns::plan(&*folder, &shards.iter().collect::<Vec<_>>(), options)?;
        Ok(Box::new(Shards { folder, files, shards, columns: Arc::new(columns) }))
    }
}

/// Shards that have the same columns.
#[derive(Debug)]
struct Shards {
    folder: Arc<dyn Folder>,
    files: Vec<String>,
    shards: Vec<MdsShard>,
    columns: Arc<MdsColumns>,
}

impl RowFiles for Shards {
    fn schema(&self) -> SchemaRef {
        self.columns.schema().clone()
    }

    fn files(&self) -> &[String] {
        &self.files
    }

    fn read(&self, file: usize) -> Result<Box<dyn RowReader>> {
        let shard = self.shards.get(file).ok_or_else(|| Error::malformed("", format!("there is no file {file}")))?;
        let samples = ShardReader::open(&*self.folder, shard)?;
        Ok(Box::new(ShardRows::new(&shard.file, samples, self.columns.clone())?))
    }
}

#[cfg(test)]
mod tests;
