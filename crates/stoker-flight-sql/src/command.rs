//! Recognises commands of Flight SQL.

use arrow_flight::sql::{Any, Command};
use bytes::Bytes;
use prost::Message;

use crate::{Error, Result};

/// How the type of each command begins.
const PREFIX: &str = "type.googleapis.com/arrow.flight.protocol.sql.";

/// Returns the command of Flight SQL in the bytes of a descriptor or an action; `None` for other bytes.
///
/// # Errors
/// A command whose content cannot be read, and a command that this server does not know.
pub fn command_of(bytes: &Bytes) -> Result<Option<Command>> {
    let any = match Any::decode(bytes.clone()) {
        Ok(any) if any.type_url.starts_with(PREFIX) => any,
        _ => return Ok(None),
    };
    let name = any.type_url[PREFIX.len()..].to_string();
    match Command::try_from(any) {
        Ok(Command::Unknown(_)) => Err(Error::invalid(format!("this server does not know the command {name}"))),
        Ok(command) => Ok(Some(command)),
        Err(source) => Err(Error::invalid(format!("cannot read the command {name} of Flight SQL: {source}"))),
    }
}

/// Returns the name of a command, for messages.
pub fn command_name(command: &Command) -> &str {
    command.type_url().rsplit('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::{CommandGetTables, ProstMessageExt};

    use super::*;

    #[test]
    fn other_bytes_are_no_commands() {
        // A command of Stoker begins with its version, a number.
        for bytes in [&b""[..], b"SELECT 1", &[0xff; 40], &[0x08, 0x01, 0x1a, 0x02, 0x0a, 0x00]] {
            assert_eq!(command_of(&Bytes::from_static(bytes)).expect("not one of Flight SQL"), None);
        }
    }

    #[test]
    fn commands_are_read_or_named() {
        let command = CommandGetTables { include_schema: true, ..CommandGetTables::default() };
        let bytes = command.as_any().encode_to_vec();
        assert_eq!(command_of(&bytes.into()).expect("a command"), Some(Command::CommandGetTables(command)));
        let unknown = Any { type_url: format!("{PREFIX}CommandGetNothing"), value: Bytes::new() };
        let error = command_of(&unknown.encode_to_vec().into()).expect_err("an unknown command");
        assert_eq!(error.to_string(), "this server does not know the command CommandGetNothing");
        let torn = Any { type_url: format!("{PREFIX}CommandGetTables"), value: Bytes::from_static(&[0x0a, 9]) };
        let error = command_of(&torn.encode_to_vec().into()).expect_err("half a command").to_string();
        assert!(error.starts_with("cannot read the command CommandGetTables of Flight SQL: "), "{error}");
    }
}
