//! Statements that change a lake: how far one is, and what it did.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a statement did. Fields that a statement does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatementOutcome {
    /// The kind of statement: its first words in upper case, such as `CREATE INDEX`.
    pub statement: String,
    /// The table that it names.
    pub table: Option<String>,
    /// The table's version after the statement: a new one, or the newest one if nothing had to change.
    pub version: Option<u64>,
    /// The number of rows that it changed, or that an index covers.
    pub num_rows: Option<u64>,
    /// What was done, in a sentence without a full stop.
    pub message: String,
}

/// How far a statement is. A statement has several phases, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatementProgress {
    /// What is being done, in progressive form: `learning the partitions`.
    pub phase: String,
    /// The units of this phase that are done.
    pub done: u64,
    /// All units of this phase; `None` if the number is not known.
    pub total: Option<u64>,
    /// What the units are: `rows`, `partitions`; empty if the phase has none.
    pub unit: String,
}

/// Takes the progress of a statement. It is called often, by the task that executes the statement, and must not block.
pub type ProgressSink<'a> = dyn Fn(StatementProgress) + Send + Sync + 'a;

impl StatementProgress {
    /// The beginning of a phase whose units are not counted.
    pub fn phase(phase: impl Into<String>) -> Self {
        Self { phase: phase.into(), ..Self::default() }
    }
}

impl fmt::Display for StatementOutcome {
    /// Writes one line: `CREATE INDEX of table photos: …; version 7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.statement)?;
        if let Some(table) = &self.table {
            write!(f, " of table {table}")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        match self.version {
            Some(version) => write!(f, "; version {version}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for StatementProgress {
    /// Writes one line: `assigning vectors to partitions: 4000 of 10000 rows`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.phase)?;
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        match (self.done, self.total) {
            (0, None) => Ok(()),
            (done, None) => write!(f, ": {done}{unit}"),
            (done, Some(total)) => write!(f, ": {done} of {total}{unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_and_progress_are_lines() {
        let outcome = StatementOutcome {
            statement: "DROP INDEX".into(),
            table: Some("photos".into()),
            version: Some(7),
            num_rows: None,
            message: "index emb_idx is gone".into(),
        };
        assert_eq!(outcome.to_string(), "DROP INDEX of table photos: index emb_idx is gone; version 7");
        let bare = StatementOutcome { statement: "VACUUM".into(), ..StatementOutcome::default() };
        assert_eq!(bare.to_string(), "VACUUM");
        let progress = StatementProgress { phase: "writing".into(), done: 3, total: Some(9), unit: "rows".into() };
        assert_eq!(progress.to_string(), "writing: 3 of 9 rows");
        assert_eq!(StatementProgress { total: None, ..progress }.to_string(), "writing: 3 rows");
        assert_eq!(StatementProgress::phase("learning").to_string(), "learning");
    }

    #[test]
    fn fields_of_later_versions_are_left_out() {
        let json = r#"{"statement": "DROP INDEX", "version": 3, "later": [1]}"#;
        let outcome: StatementOutcome = serde_json::from_str(json).expect("an outcome");
        assert_eq!((outcome.statement.as_str(), outcome.version, outcome.table), ("DROP INDEX", Some(3), None));
    }
}
