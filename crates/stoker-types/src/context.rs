//! What goes with every call: the caller's identity, a deadline and a name for logs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Error, Moment, PrincipalName, Result};

/// What a principal may do. Each role includes the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Run queries, open streams and read metadata; begin runs, whose logs the server then writes.
    Read,
    /// Change tables, tags and the logs of all runs.
    Write,
    /// Everything, including the server's own state.
    Admin,
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = [Role::Read, Role::Write, Role::Admin].into_iter().find(|role| role.to_string() == name);
        found.ok_or_else(|| Error::InvalidValue { what: "a role", reason: "it must be read, write or admin".into() })
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

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name of the caller's token or certificate: safe to log, and one of a bounded number.
    pub name: PrincipalName,
    /// What the caller may do.
    pub role: Role,
}

impl Principal {
    /// The user of this process, who opened the lake with credentials of its own and may do everything.
    pub fn local() -> Self {
        let name = PrincipalName::from_static("local");
        Self { name, role: Role::Admin }
    }

    /// The name whose runs alone this principal may begin and log; `None` for roles that may log every run.
    pub fn run_owner(&self) -> Option<&PrincipalName> {
        (self.role < Role::Write).then_some(&self.name)
    }
}

/// Who calls, until when the caller waits, and the name under which logs show the call. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    /// The caller.
    pub principal: Principal,
    /// The time after which the caller does not wait for the answer any more, on the clock of whoever answers; `None`
    /// for no limit.
    pub deadline: Option<Moment>,
    /// The name of the call in logs; a server takes it from the request's `x-request-id`.
    pub trace: Option<Arc<str>>,
}

impl Context {
    /// The context of a call within the process that opened the lake: every right, no deadline, no name.
    pub fn local() -> Self {
        Self { principal: Principal::local(), deadline: None, trace: None }
    }
}
