//! The figures that the demo's programs report.

use std::fmt;
use std::process::Command;

use anyhow::{Result, bail};

use crate::command;

/// The prefix of a line that reports a figure: `figure NAME: VALUE`.
const MARK: &str = "figure ";

/// Named figures, in the order in which they were reported.
#[derive(Default)]
pub struct Figures(Vec<(String, String)>);

impl Figures {
    /// Adds a figure.
    pub fn add(&mut self, name: &str, value: impl fmt::Display) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    /// Adds the figures among the lines that a program printed.
    pub fn take(&mut self, lines: &[String]) {
        for line in lines {
            if let Some((name, value)) = line.strip_prefix(MARK).and_then(|rest| rest.split_once(": ")) {
                self.add(name, value);
            }
        }
    }

    /// Prints a command, runs it, and adds the figures that it reports. If it fails, the error ends with `advice`.
    pub fn listen(&mut self, command: &mut Command, advice: &str) -> Result<()> {
        let (succeeded, lines) = command::run_and_listen(command)?;
        self.take(&lines);
        if succeeded { Ok(()) } else { bail!("`{}` failed: {advice}", command::shown(command)) }
    }
}

/// Formats the figures as a Markdown table.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        writeln!(f, "| {:<width$} | value |", "figure")?;
        writeln!(f, "| {:-<width$} | ----- |", "")?;
        for (name, value) in &self.0 {
            writeln!(f, "| {name:<width$} | {value} |")?;
        }
        Ok(())
    }
}
