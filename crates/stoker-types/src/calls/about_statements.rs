//! The call that executes a statement which changes the lake.
//!
//! It is no row of the table of calls, because its answer is a sequence of messages: any number of
//! [`StatementProgress`], and then the [`StatementOutcome`]. Each message is the body of one result of the Flight action.

use serde::{Deserialize, Serialize};

use crate::calls::{Call, CallError, CallInfo};
use crate::{ParamValue, Role, StatementOutcome, StatementProgress};

/// Executes one statement that changes the lake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecuteStatement {
    /// The statement.
    pub sql: String,
    /// Its positional parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamValue>,
}

impl Call for ExecuteStatement {
    type Answer = StatementOutcome;
    const NAME: &'static str = EXECUTE.name;
    const ROLE: Role = EXECUTE.role;
    const IS_REPEATABLE: bool = EXECUTE.is_repeatable;
    const DOING: &'static str = "executing a statement";
    const ABOUT: &'static str = EXECUTE.about;

    fn check(&self) -> Result<(), String> {
        if self.sql.is_empty() { Err("needs sql".into()) } else { Ok(()) }
    }
}

/// What `ListActions` tells about [`ExecuteStatement`].
pub const EXECUTE: CallInfo = CallInfo {
    name: "execute",
    role: Role::Write,
    is_repeatable: false,
    about: "{sql, params?}: executes a statement that changes the lake, where the server allows that; each result is \
            {progress: {phase, done, total, unit}}, and the last one {outcome: {statement, table, version, num_rows, \
            message}}",
};

/// A message of the answer to [`ExecuteStatement`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatementMessage {
    /// How far the statement is. The same progress again means that the statement is still being executed.
    Progress(StatementProgress),
    /// What the statement did. It is the last message.
    Outcome(StatementOutcome),
}

impl StatementMessage {
    /// Returns the body of the action's result.
    ///
    /// # Errors
    /// [`CallError::Answer`] for a message that has no JSON.
    pub fn encode(&self) -> Result<Vec<u8>, CallError> {
        let fail = |source: serde_json::Error| failed("encoded", source.to_string());
        serde_json::to_vec(self).map_err(fail)
    }

    /// Reads a message from the body of an action's result.
    ///
    /// # Errors
    /// [`CallError::Answer`] for bytes that are no such message.
    pub fn decode(body: &[u8]) -> Result<Self, CallError> {
        serde_json::from_slice(body).map_err(|source| failed("decoded", source.to_string()))
    }
}

fn failed(attempted: &'static str, reason: String) -> CallError {
    CallError::Answer { name: ExecuteStatement::NAME, attempted, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_same_after_they_were_written_and_read() {
        let progress = StatementProgress { phase: "writing".into(), done: 3, total: None, unit: "rows".into() };
        let outcome = StatementOutcome { statement: "DROP INDEX".into(), ..StatementOutcome::default() };
        for message in [StatementMessage::Progress(progress), StatementMessage::Outcome(outcome)] {
            let body = message.encode().expect("JSON");
            assert_eq!(StatementMessage::decode(&body).expect("a message"), message);
        }
        let error = StatementMessage::decode(b"{}").expect_err("no message");
        assert!(error.to_string().starts_with("the answer to action execute cannot be decoded"), "{error}");
    }
}
