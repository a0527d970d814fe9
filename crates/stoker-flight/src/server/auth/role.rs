//! Roles of principals.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::{Error, Result};

/// A role of principals. Each role includes what the ones before it allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May query, stream and inspect tables; may begin runs of its own, whose logs the server writes.
    Read,
    /// May also change tables, tags and the logs of all runs.
    Write,
    /// May do everything, including requests about the server itself.
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
