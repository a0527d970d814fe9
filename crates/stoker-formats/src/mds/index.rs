//! The file `index.json` of a folder with shards.

use std::collections::HashSet;
use std::io::Read as _;

use serde::Deserialize;
use stoker_files::path_inside;

use crate::decompress::{Decompressed, FileCompression};
use crate::{Error, Folder, Result};

/// The name of an index in its folder.
pub(super) const INDEX: &str = "index.json";
/// The most bytes of an index: about half a million shards.
const INDEX_BYTES_MAX: u64 = 256 << 20;

/// The columns of a shard, as its index says them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct IndexedColumns {
    #[serde(rename = "column_names")]
    pub names: Vec<String>,
    #[serde(rename = "column_encodings")]
    pub encodings: Vec<String>,
    #[serde(rename = "column_sizes")]
    pub sizes: Vec<Option<u64>>,
}

/// A shard, as its index says it.
#[derive(Clone, Debug)]
pub(super) struct MdsShard {
    /// The name of the index in the folder.
    pub index: String,
    /// The name of the file in the folder.
    pub file: String,
    /// How the file is compressed.
    pub compression: FileCompression,
    /// The bytes of the file.
    pub file_bytes: u64,
    /// The bytes of the shard that is not compressed.
    pub raw_bytes: u64,
    /// The number of its samples.
    pub num_samples: u64,
    /// Its columns.
    pub columns: IndexedColumns,
}

#[derive(Deserialize)]
struct IndexJson {
    version: u64,
    shards: Vec<ShardJson>,
}

#[derive(Deserialize)]
struct ShardJson {
    version: u64,
    format: String,
    compression: Option<String>,
    raw_data: FileJson,
    zip_data: Option<FileJson>,
    samples: u64,
    #[serde(flatten)]
    columns: IndexedColumns,
}

#[derive(Deserialize)]
struct FileJson {
    basename: String,
    bytes: u64,
}

/// Returns the names of the indexes that count: those at the root, or the topmost ones of other folders.
pub(super) fn indexes(folder: &dyn Folder) -> Vec<&str> {
    let names = folder.files().iter().map(|file| file.name.as_str());
    let mut folders: Vec<&str> = names.filter_map(folder_of_index).collect();
    folders.sort_by_key(|path| path.len());
    let mut topmost: Vec<&str> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for path in folders {
        let mut above = path.match_indices('/').map(|(slash, _)| path.get(..slash + 1).unwrap_or_default());
        if !seen.contains("") && !above.any(|above| above != path && seen.contains(above)) {
            topmost.push(path);
        }
        seen.insert(path);
    }
    topmost.sort_unstable();
    let names = topmost.into_iter().filter_map(|path| folder.file(&format!("{path}{INDEX}")));
    names.map(|file| file.name.as_str()).collect()
}

/// Returns the folder of an index, with a slash at its end unless it is the root.
fn folder_of_index(name: &str) -> Option<&str> {
    name.strip_suffix(INDEX).filter(|path| path.is_empty() || path.ends_with('/'))
}

/// Reads the shards of an index, in order.
///
/// # Errors
/// [`Error::Malformed`] for an index that is none, that is of another version or format, or that names files which are not
/// in its folder or have another size; [`Error::Read`].
pub(super) fn shards(folder: &dyn Folder, index: &str) -> Result<Vec<MdsShard>> {
    let prefix = folder_of_index(index).unwrap_or_default();
    let wrong = |reason: String| Error::malformed(index, reason);
    let bytes = folder.open(index).map_err(|source| Error::read(index, source))?;
    if bytes.size() > INDEX_BYTES_MAX {
        return Err(wrong(format!("it has {} bytes, and an index may have {INDEX_BYTES_MAX}", bytes.size())));
    }
    let mut source = Decompressed::new(index, bytes, FileCompression::Plain)?;
    let mut text = Vec::new();
    source.read_to_end(&mut text).map_err(|error| source.error(error))?;
    let json: IndexJson =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("it is no index of shards: {error}")))?;
    drop(text);
    if json.version != 2 {
        return Err(wrong(format!("version {} is not read; expected version 2", json.version)));
    }
    let mut seen = HashSet::new();
    let mut shards = Vec::with_capacity(json.shards.len());
    for (number, shard) in json.shards.into_iter().enumerate() {
        let shard =
            shard.resolve(folder, index, prefix).map_err(|reason| wrong(format!("shard {number}: {reason}")))?;
        if !seen.insert(shard.file.clone()) {
            return Err(wrong(format!("shard {number}: the file {} is in the index twice", shard.file)));
        }
        shards.push(shard);
    }
    Ok(shards)
}

impl ShardJson {
    /// Finds the file of the shard: the one that is not compressed, if the folder has it.
    fn resolve(self, folder: &dyn Folder, index: &str, prefix: &str) -> Result<MdsShard, String> {
        if (self.version, self.format.as_str()) != (2, "mds") {
            return Err(format!(
                "format {} of version {} is not read; expected mds of version 2",
                self.format, self.version
            ));
        }
        let raw_bytes = self.raw_data.bytes;
        let raw = self.raw_data.path(prefix)?;
        let zip = match (self.compression, self.zip_data) {
            (None, _) | (_, None) => None,
            (Some(name), Some(zip)) => Some((zip.path(prefix)?, compression(&name)?, zip.bytes)),
        };
        let (file, compression, file_bytes) = match zip {
            Some(zip) if folder.file(&raw).is_none() => zip,
            _ => (raw, FileCompression::Plain, raw_bytes),
        };
        match folder.file(&file) {
            None => return Err(format!("the file {file} is missing")),
            Some(found) if found.bytes != file_bytes => {
                return Err(format!("the file {file} has {} bytes, and the index says {file_bytes}", found.bytes));
            }
            Some(_) => {}
        }
        let (index, columns) = (index.to_string(), self.columns);
        Ok(MdsShard { index, file, compression, file_bytes, raw_bytes, num_samples: self.samples, columns })
    }
}

impl FileJson {
    /// Returns the name of the file in the folder of the dataset.
    fn path(&self, prefix: &str) -> Result<String, String> {
        let name = &self.basename;
        match path_inside(name) {
            Ok(path) if !path.is_empty() => Ok(format!("{prefix}{path}")),
            _ => Err(format!("the file {name:?} is not below the folder of the index")),
        }
    }
}

/// Parses a compression such as `zstd:7`.
fn compression(name: &str) -> Result<FileCompression, String> {
    match name.split(':').next().unwrap_or_default() {
        "zstd" => Ok(FileCompression::Zstd),
        "gz" => Ok(FileCompression::Gzip),
        _ => Err(format!("the compression {name} is not read; zstd and gz are")),
    }
}
