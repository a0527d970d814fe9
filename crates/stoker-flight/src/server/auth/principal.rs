//! Who asks.

use stoker_types::PrincipalName;

use crate::server::auth::Role;
use crate::{Error, Result};

/// Who asks, as the server authenticated them. An extension of every request behind the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The name of the token or certificate; safe to log, and one of a bounded number.
    pub name: PrincipalName,
    pub role: Role,
}

impl Principal {
    /// Checks that the principal may do what takes a role.
    ///
    /// # Errors
    /// [`Error::Forbidden`].
    pub fn check(&self, needed: Role, what: &str) -> Result<()> {
        match self.role >= needed {
            true => Ok(()),
            false => Err(Error::Forbidden {
                reason: format!("{what} needs the role {needed}, and {} has the role {}", self.name, self.role),
            }),
        }
    }

    /// Whose runs a principal may begin and log, if not everybody's.
    pub fn run_owner(&self) -> Option<&PrincipalName> {
        (self.role < Role::Write).then_some(&self.name)
    }
}
