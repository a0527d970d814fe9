//! What a principal may do.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::{Error, Result};

/// What a principal may do; each role may do all that the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Query, stream and look; runs of its own, whose logs the server writes.
    Read,
    /// Change tables, tags and the logs of all runs.
    Write,
    /// Everything, the server's own state too.
    Admin,
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = [Role::Read, Role::Write, Role::Admin].into_iter().find(|role| role.to_string() == name);
        found.ok_or_else(|| Error::invalid("a role is read, write or admin"))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Admin => "admin",
        })
    }
}
