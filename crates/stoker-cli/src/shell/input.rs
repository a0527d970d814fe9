//! Makes statements of lines.

use anyhow::ensure;
use stoker_dialect::{Ending, statements};

use crate::shell::command::ShellCommand;

/// The most bytes of a statement, which is in memory while it is read. Servers and the engine accept less.
pub const STATEMENT_BYTES_MAX: u64 = 16 << 20;

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Run a statement.
    Run(String),
    /// Do what a command says.
    Obey(ShellCommand),
}

/// The lines of a statement that has not ended yet.
#[derive(Debug, Default)]
pub struct Input {
    text: String,
}

impl Input {
    /// Whether a statement has begun.
    pub fn has_begun(&self) -> bool {
        !self.text.is_empty()
    }

    /// Drops the statement that has begun.
    pub fn clear(&mut self) {
        self.text.clear();
    }

    /// Adds a line without its end, and returns what is to be done now.
    ///
    /// # Errors
    /// The statement is longer than [`STATEMENT_BYTES_MAX`]; it is dropped.
    pub fn add(&mut self, line: &str) -> anyhow::Result<Vec<Action>> {
        if !self.has_begun()
            && let Some(command) = ShellCommand::parse(line)
        {
            return Ok(vec![Action::Obey(command)]);
        }
        self.text.push_str(line);
        self.text.push('\n');
        if self.text.len() as u64 > STATEMENT_BYTES_MAX {
            self.clear();
        }
        ensure!(self.has_begun(), "a statement has more than {STATEMENT_BYTES_MAX} bytes");
        // Only a semicolon ends a statement; and a statement of many lines is not divided anew for each of them.
        let may_be_blank = self.text.len() == line.len() + 1;
        if !line.contains(';') && !may_be_blank {
            return Ok(Vec::new());
        }
        let divided = statements(&self.text);
        let mut actions: Vec<Action> = divided.complete.iter().map(|sql| Action::Run(sql.to_string())).collect();
        let rest = match divided.ending {
            Ending::Blank => String::new(),
            Ending::Unfinished => divided.rest.to_string(),
            Ending::Malformed => {
                actions.push(Action::Run(divided.rest.to_string()));
                String::new()
            }
        };
        self.text = rest;
        Ok(actions)
    }

    /// Returns the statement that the end of the input ends.
    pub fn finish(self) -> Option<String> {
        let ending = statements(&self.text).ending;
        (ending != Ending::Blank).then_some(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Input};
    use crate::shell::command::ShellCommand;

    fn run(sql: &str) -> Action {
        Action::Run(sql.to_string())
    }

    #[test]
    fn a_statement_ends_with_a_semicolon() {
        let mut input = Input::default();
        assert!(input.add("SELECT 1,").unwrap().is_empty());
        assert!(input.has_begun());
        assert!(input.add("\\q ';").unwrap().is_empty());
        assert_eq!(input.add("', 2; SELECT 3; SELECT").unwrap(), [run("SELECT 1,\n\\q ';\n', 2"), run(" SELECT 3")]);
        assert!(input.has_begun());
        assert_eq!(input.add("4;").unwrap(), [run(" SELECT\n4")]);
        assert!(!input.has_begun());
        assert_eq!(input.finish(), None);
    }

    #[test]
    fn lines_without_a_statement_begin_none() {
        let mut input = Input::default();
        for line in ["", "  ", "-- a comment", "/* a comment */", ";"] {
            assert!(input.add(line).unwrap().is_empty(), "{line:?}");
            assert!(!input.has_begun(), "{line:?}");
        }
        assert_eq!(input.add("\\q").unwrap(), [Action::Obey(ShellCommand::Quit)]);
    }

    #[test]
    fn the_last_statement_needs_no_semicolon() {
        let mut input = Input::default();
        assert_eq!(input.add("SELECT 1; SELECT 2").unwrap(), [run("SELECT 1")]);
        assert_eq!(input.finish(), Some(" SELECT 2\n".to_string()));
        let mut input = Input::default();
        assert!(input.add("SELECT 'open; ").unwrap().is_empty());
        assert_eq!(input.finish(), Some("SELECT 'open; \n".to_string()));
    }

    #[test]
    fn what_can_never_end_is_run_and_refused() {
        let mut input = Input::default();
        assert_eq!(input.add("SELECT U&'\\zzzz';").unwrap(), [run("SELECT U&'\\zzzz';\n")]);
        assert!(!input.has_begun());
    }

    #[test]
    fn statements_have_a_limit_and_can_be_dropped() {
        let mut input = Input::default();
        input.add("SELECT '").unwrap();
        let error = input.add(&"x".repeat(16 << 20)).expect_err("too many bytes");
        assert!(error.to_string().contains("16777216 bytes"), "{error}");
        assert_eq!(input.add("SELECT 1;").unwrap(), [run("SELECT 1")]);
        input.add("SELECT '").unwrap();
        input.clear();
        assert_eq!(input.add("SELECT 1;").unwrap(), [run("SELECT 1")]);
    }
}
