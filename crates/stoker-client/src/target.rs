//! Tells servers from lakes.

use stoker_net::Address;
use stoker_session::{Error, Result};

/// Which options of a lake in this process are given. They are not for servers, which have settings of their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct LakeOptionsGiven {
    /// A folder in which streams cache what they read.
    pub cache_dir: bool,
    /// Reads around the page cache.
    pub direct_io: bool,
    /// The number of days for which a version is kept after a stream read it.
    pub hold_days: bool,
}

/// Whether a target names servers rather than a lake.
///
/// # Errors
/// A malformed target; options of lakes for servers.
pub fn names_servers(target: &str, given: LakeOptionsGiven) -> Result<bool> {
    if Address::parse_all(target).map_err(stoker_wire::Error::from)?.is_none() {
        return Ok(false);
    }
    let settings = [
        (given.cache_dir, "cache_dir", "has the cache", "--cache-dir"),
        (given.direct_io, "direct_io", "reads the files", "--direct-io"),
        (given.hold_days, "hold_days", "holds the versions", "--hold-days"),
    ];
    match settings.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, option, does, setting)) => Err(Error::invalid(format!(
            "{option} is for lakes, and {target} is a server, which {does}: start it with `stoker serve {setting}`"
        ))),
        None => Ok(true),
    }
}
