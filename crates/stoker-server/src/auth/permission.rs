//! The role that each method of Flight requires. `flight/do_action.rs` has those of the actions.

use stoker_session::{Error, Result};
use stoker_types::{Principal, Role};

/// Returns the role that a method of Flight requires, by the path of its requests. Unknown methods require the highest
/// role.
pub(crate) fn role_of_method(path: &str) -> Role {
    match path.rsplit('/').next().unwrap_or_default() {
        "Handshake" | "ListFlights" | "GetFlightInfo" | "PollFlightInfo" | "GetSchema" | "DoGet" | "ListActions" => {
            Role::Read
        }
        // Each action requires a role of its own, which `do_action` checks. `DoPut` takes parameters of queries, too, and
        // checks the role of statements that change the lake itself.
        "DoAction" | "DoPut" => Role::Read,
        "DoExchange" => Role::Write,
        _ => Role::Admin,
    }
}

/// Checks that a principal may do what takes a role.
///
/// # Errors
/// [`Error::Forbidden`].
pub(crate) fn check_role(principal: &Principal, needed: Role, what: &str) -> Result<()> {
    match principal.role >= needed {
        true => Ok(()),
        false => Err(Error::Forbidden {
            reason: format!("{what} needs the role {needed}, and {} has the role {}", principal.name, principal.role),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::role_of_method;
    use stoker_types::Role;

    #[test]
    fn what_is_not_known_takes_the_highest_role() {
        for (method, role) in [
            ("GetFlightInfo", Role::Read),
            ("DoGet", Role::Read),
            ("DoAction", Role::Read),
            ("DoPut", Role::Read),
            ("DoExchange", Role::Write),
            ("Later", Role::Admin),
            ("", Role::Admin),
        ] {
            assert_eq!(role_of_method(&format!("/arrow.flight.protocol.FlightService/{method}")), role, "{method}");
        }
    }
}
