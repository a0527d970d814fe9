//! Lines that say in what two specifications differ, for people to read.

use std::fmt::Display;

/// The differences of two things that have names, such as `the state` and `the stream`.
pub(crate) struct Differences<'a> {
    names: (&'a str, &'a str),
    lines: Vec<String>,
}

impl<'a> Differences<'a> {
    /// Begins with no differences.
    pub(crate) fn new(names: (&'a str, &'a str)) -> Self {
        Self { names, lines: Vec::new() }
    }

    /// Adds a line about a field unless both have the same text.
    pub(crate) fn check(&mut self, field: &str, mine: impl Display, theirs: impl Display) {
        let (mine, theirs) = (mine.to_string(), theirs.to_string());
        if mine != theirs {
            self.add(field, mine, theirs);
        }
    }

    /// Adds a line about a field.
    pub(crate) fn add(&mut self, field: &str, mine: impl Display, theirs: impl Display) {
        let (my_name, their_name) = self.names;
        self.lines.push(format!("{field}: {my_name} has {mine}, {their_name} has {theirs}"));
    }

    /// Returns the lines, one for each field that differs.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines
    }
}
