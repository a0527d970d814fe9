//! The principal of a request.

use stoker_types::PrincipalName;

use crate::server::auth::Role;
use crate::{Error, Result};

/// The authenticated sender of a request. Every request carries it as an extension after authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// The name of the token or the certificate. It may be logged.
    pub name: PrincipalName,
    pub role: Role,
}

impl Principal {
    /// Checks that the principal has the role `needed`, or a higher one. `what` names the action in errors.
    ///
    /// # Errors
    /// [`Error::Forbidden`] for a lower role.
    pub fn check(&self, needed: Role, what: &str) -> Result<()> {
        match self.role >= needed {
            true => Ok(()),
            false => Err(Error::Forbidden {
                reason: format!("{what} needs the role {needed}, and {} has the role {}", self.name, self.role),
            }),
        }
    }

    /// Returns the owner to whose runs a principal is restricted: a reader may begin and log only its own runs. `None`
    /// for other roles, which are not restricted.
    pub fn run_owner(&self) -> Option<&PrincipalName> {
        (self.role < Role::Write).then_some(&self.name)
    }
}
