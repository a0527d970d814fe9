//! The commands of the shell itself, beside SQL.

/// What `\?` prints.
pub const HELP: &str = "\
statements end with ; and may have several lines
\\d           list the tables
\\d TABLE     show the columns of a table
\\timing      show how long each statement takes, or stop to
\\?           show this help
\\q           leave the shell; exit and quit do, too
Ctrl-C       stop the running statement, or drop the one that is being typed
Ctrl-D       leave the shell";

/// A line that is a command and no part of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellCommand {
    /// Leave the shell.
    Quit,
    /// Run a statement that stands for the command.
    Statement(String),
    /// Show the time of each statement, or stop to.
    Timing,
    /// Show [`HELP`].
    Help,
    /// A command that does not exist.
    Unknown(String),
}

impl ShellCommand {
    /// Reads a line; `None` for a line that begins a statement.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim().trim_end_matches(';').trim_end();
        if ["exit", "quit"].iter().any(|word| line.eq_ignore_ascii_case(word)) {
            return Some(Self::Quit);
        }
        let command = line.strip_prefix('\\')?;
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        Some(match (name, rest.trim()) {
            ("q", "") => Self::Quit,
            ("d", "") => Self::Statement("SHOW TABLES".to_string()),
            ("d", table) => Self::Statement(format!("DESCRIBE {table}")),
            ("timing", "") => Self::Timing,
            ("?", "") => Self::Help,
            _ => Self::Unknown(line.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ShellCommand::{self, Help, Quit, Statement, Timing, Unknown};

    #[test]
    fn lines_are_commands_or_begin_statements() {
        let statement = |text: &str| Some(Statement(text.to_string()));
        let unknown = |text: &str| Some(Unknown(text.to_string()));
        for (line, expected) in [
            ("\\q", Some(Quit)),
            (" exit ; ", Some(Quit)),
            ("QUIT", Some(Quit)),
            ("\\d", statement("SHOW TABLES")),
            ("\\d  photos;", statement("DESCRIBE photos")),
            ("\\d photos AT (TAG => 'v1')", statement("DESCRIBE photos AT (TAG => 'v1')")),
            ("\\timing", Some(Timing)),
            ("\\?", Some(Help)),
            ("\\x", unknown("\\x")),
            ("\\", unknown("\\")),
            ("\\q now", unknown("\\q now")),
            ("SELECT 1", None),
            ("exit now", None),
            ("", None),
        ] {
            assert_eq!(ShellCommand::parse(line), expected, "{line:?}");
        }
    }
}
