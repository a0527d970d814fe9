//! The chunk cache of a connection or a server.

use std::path::Path;

use stoker_chunks::{CacheOptions, ChunkCache};
use stoker_lake::LakeStore;
use stoker_session::{Error, Result};

/// Opens the chunk cache of a lake. Returns `None` if no folder is given or the lake is on a local disk.
///
/// # Errors
/// A folder that cannot be used; a size of zero; a size without a folder.
pub async fn open_cache(lake: &LakeStore, dir: Option<&Path>, bytes_max: Option<u64>) -> Result<Option<ChunkCache>> {
    let Some(dir) = dir else {
        return match bytes_max {
            Some(_) => Err(Error::invalid("cache_bytes limits the folder cache_dir, which is not given")),
            None => Ok(None),
        };
    };
    if bytes_max == Some(0) {
        return Err(Error::invalid("cache_bytes is out of range: at least 1"));
    }
    if lake.is_local() {
        return Ok(None);
    }
    let options = CacheOptions { dir: dir.to_path_buf(), bytes_max };
    Ok(Some(ChunkCache::open(&options).await?))
}
