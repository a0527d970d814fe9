//! Parses a connection's target into the addresses of servers.

use std::fmt;

use crate::{Error, Result, UnixPath};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host with an optional port, `host:port`.
    Tcp {
        /// Host and port.
        authority: String,
        /// Whether the connection is encrypted.
        tls: bool,
    },
    /// A socket of this host.
    Unix(UnixPath),
}

#[derive(Clone, Copy)]
enum Scheme {
    Tcp { tls: bool },
    Unix,
}

impl Address {
    /// Parses a target into its addresses, which are separated by commas. Returns `None` when the target does not name
    /// servers. A scheme also applies to the addresses after it, up to the next scheme.
    ///
    /// # Errors
    /// A target that has a scheme and no address, a host with a user or a password, a path that no socket can have.
    pub fn parse_all(target: &str) -> Result<Option<Vec<Address>>> {
        let mut scheme = None;
        let mut addresses = Vec::new();
        for part in target.split(',').map(str::trim) {
            let (named, place) = split_scheme(part);
            scheme = named.or(scheme);
            let Some(scheme) = scheme else { return Ok(None) };
            let place = match scheme {
                Scheme::Tcp { .. } => place.trim_end_matches(|c: char| c == '/' || c.is_whitespace()),
                Scheme::Unix => place,
            };
            if place.is_empty() {
                continue;
            }
            if matches!(scheme, Scheme::Tcp { .. }) && place.contains('@') {
                return Err(Error::invalid(
                    "a server's address has a user or a password before its host; leave them out, and give a token",
                ));
            }
            addresses.push(match scheme {
                Scheme::Tcp { tls } => Address::Tcp { authority: place.to_string(), tls },
                Scheme::Unix => Address::Unix(UnixPath::try_new(place)?),
            });
        }
        match addresses.is_empty() {
            true => Err(Error::invalid("the target names no server; use grpc://host:port or unix:///path")),
            false => Ok(Some(addresses)),
        }
    }

    /// Returns whether connections to the address are encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Address::Tcp { tls: true, .. })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { authority, .. } => f.write_str(authority),
            Address::Unix(path) => path.fmt(f),
        }
    }
}

fn split_scheme(part: &str) -> (Option<Scheme>, &str) {
    let tcp = |tls| Some(Scheme::Tcp { tls });
    match part.split_once("://") {
        Some(("grpc", authority)) => (tcp(false), authority),
        Some(("grpc+tls", authority)) => (tcp(true), authority),
        _ => UnixPath::strip_scheme(part).map_or((None, part), |path| (Some(Scheme::Unix), path)),
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
