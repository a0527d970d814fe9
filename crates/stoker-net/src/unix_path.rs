//! Paths of Unix sockets in addresses.

use std::fmt;
use std::path::Path;

use crate::{Error, Result};

/// The schemes of Unix socket addresses, as Arrow's clients and gRPC write them.
const SCHEMES: [&str; 2] = ["grpc+unix:", "unix:"];

/// The maximum length of a path in bytes: a socket address has 108 bytes for the path and its final zero byte
/// (<https://man7.org/linux/man-pages/man7/unix.7.html>).
const PATH_BYTES_MAX: usize = 107;

/// The absolute path of a Unix socket, short enough for the operating system. The text is used as it is: no part of it
/// is percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixPath(String);

impl UnixPath {
    /// Returns the part of a Unix socket's address behind the scheme; `None` for other addresses.
    pub fn strip_scheme(address: &str) -> Option<&str> {
        let rest = SCHEMES.iter().find_map(|scheme| address.strip_prefix(scheme))?;
        Some(rest.strip_prefix("//").unwrap_or(rest))
    }

    /// # Errors
    /// A path that is not absolute, has a zero byte, or is too long.
    pub fn try_new(path: &str) -> Result<Self> {
        if !path.starts_with('/') {
            return Err(Error::invalid(format!(
                "{path:?} is not the absolute path of a Unix socket; write unix:///path/to/socket"
            )));
        }
        if path.contains('\0') {
            return Err(Error::invalid(format!("{path:?} has a zero byte; the path of a Unix socket has none")));
        }
        if path.len() > PATH_BYTES_MAX {
            let bytes = path.len();
            return Err(Error::invalid(format!(
                "{path} has {bytes} bytes; the path of a Unix socket has {PATH_BYTES_MAX} at most"
            )));
        }
        Ok(Self(path.to_string()))
    }

    /// Returns the folder that contains the socket.
    pub fn folder(&self) -> &Path {
        Path::new(&self.0).parent().unwrap_or(Path::new("/"))
    }
}

impl AsRef<Path> for UnixPath {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for UnixPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0)
    }
}
