//! Recognises commands of Flight SQL.

use arrow_flight::sql::{Any, Command, SqlInfo};
use bytes::Bytes;
use prost::Message;

use crate::{Error, Result, TABLE, VIEW};

/// The longest pattern by which schemas and tables are selected.
const PATTERN_BYTES_MAX: usize = 1 << 10;

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
    match Command::try_from(any).map(sane) {
        Ok(Err(error)) => Err(error),
        Ok(Ok(Command::Unknown(_))) => Err(Error::invalid(format!("this server does not know the command {name}"))),
        Ok(Ok(command)) => Ok(Some(command)),
        Err(source) => Err(Error::invalid(format!("cannot read the command {name} of Flight SQL: {source}"))),
    }
}

/// Removes what a command asks for twice, because arrow-flight takes memory for each item.
fn sane(command: Command) -> Result<Command> {
    let patterns = match &command {
        Command::CommandGetTables(tables) => {
            [tables.db_schema_filter_pattern.as_ref(), tables.table_name_filter_pattern.as_ref()]
        }
        Command::CommandGetDbSchemas(schemas) => [schemas.db_schema_filter_pattern.as_ref(), None],
        _ => [None, None],
    };
    if let Some(pattern) = patterns.into_iter().flatten().find(|pattern| pattern.len() > PATTERN_BYTES_MAX) {
        let length = pattern.len();
        return Err(Error::invalid(format!("a pattern has {length} bytes, the limit is {PATTERN_BYTES_MAX}")));
    }
    Ok(match command {
        Command::CommandGetSqlInfo(mut infos) => {
            infos.info.sort_unstable();
            infos.info.dedup();
            infos.info.retain(|code| i32::try_from(*code).is_ok_and(|code| SqlInfo::try_from(code).is_ok()));
            Command::CommandGetSqlInfo(infos)
        }
        Command::CommandGetTables(mut tables) => {
            let types = &mut tables.table_types;
            types.sort_unstable();
            types.dedup();
            let is_known = |kind: &String| kind == TABLE || kind == VIEW;
            // Types that nothing has select nothing, however many there are.
            if types.iter().any(is_known) {
                types.retain(is_known)
            } else {
                types.truncate(1)
            }
            Command::CommandGetTables(tables)
        }
        command => command,
    })
}

/// Returns the name of a command, for messages.
pub fn command_name(command: &Command) -> &str {
    command.type_url().rsplit('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::{CommandGetSqlInfo, CommandGetTables, ProstMessageExt};

    use super::*;

    #[test]
    fn other_bytes_are_no_commands() {
        // A command of Stoker begins with its version, a number.
        for bytes in [&b""[..], b"SELECT 1", &[0xff; 40], &[0x08, 0x01, 0x1a, 0x02, 0x0a, 0x00]] {
            assert_eq!(command_of(&Bytes::from_static(bytes)).expect("not one of Flight SQL"), None);
        }
    }

    #[test]
    fn what_is_asked_for_many_times_is_answered_once() {
        let read = |bytes: Vec<u8>| command_of(&bytes.into());
        let infos = CommandGetSqlInfo { info: [4, 0, 77_777, 4, u32::MAX].repeat(1_000) };
        let Ok(Some(Command::CommandGetSqlInfo(infos))) = read(infos.as_any().encode_to_vec()) else {
            panic!("not the command");
        };
        assert_eq!(infos.info, [0, 4]);
        let cases = [
            (vec!["VIEW", "TABLE", ""], vec!["TABLE", "VIEW"]),
            (vec!["VIEW"], vec!["VIEW"]),
            (vec!["INDEX", "SYSTEM TABLE"], vec!["INDEX"]),
        ];
        for (types, kept) in cases {
            let table_types = types.repeat(1_000).into_iter().map(str::to_string).collect();
            let tables = CommandGetTables { table_types, ..CommandGetTables::default() };
            let Ok(Some(Command::CommandGetTables(tables))) = read(tables.as_any().encode_to_vec()) else {
                panic!("not the command");
            };
            assert_eq!(tables.table_types, kept);
        }
        let pattern = Some("_".repeat(2_000));
        let tables = CommandGetTables { table_name_filter_pattern: pattern, ..CommandGetTables::default() };
        let error = read(tables.as_any().encode_to_vec()).expect_err("a long pattern");
        assert_eq!(error.to_string(), "a pattern has 2000 bytes, the limit is 1024");
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
