//! The cache of a connection or a server.

use std::path::Path;

use stoker_chunks::{CacheOptions, ChunkCache};
use stoker_lake::Lake;

use crate::{Connection, Error, Result};

impl Connection {
    /// Waits until what streams of this process read is in the cache, as far as it goes there. A process that ends before has to read
    /// the last of it again.
    pub async fn settle(&self) {
        if let Connection::Local(lake) = self
            && let Some(cache) = lake.budget().cache()
        {
            cache.settled().await;
        }
    }
}

/// The cache for a lake; `None` where none is wanted, and for lakes on a local disk.
///
/// # Errors
/// A folder that cannot be used; a size of nothing, or without a folder.
pub(crate) async fn open_cache(lake: &Lake, dir: Option<&Path>, bytes_max: Option<u64>) -> Result<Option<ChunkCache>> {
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
    let cache = ChunkCache::open(&options).await.map_err(stoker_stream::Error::from)?;
    Ok(Some(cache))
}
