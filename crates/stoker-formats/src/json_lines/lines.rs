//! The lines of a file, and the rows in them.

use std::io::{BufRead, Read};

use serde::de::IgnoredAny;

use super::append::append;
use crate::Result;
use crate::text_file::TextFile;
use crate::text_rows::{ROW_TEXT_BYTES_MAX, TextColumn, TextRow, TextSource};

/// The length of a line at which reading ends. Longer lines than [`ROW_TEXT_BYTES_MAX`] are passed over up to this length:
/// a small compressed file can have a line of any length.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// Reads the lines of a file that are not blank.
#[derive(Debug)]
pub(crate) struct JsonLinesSource {
    file: TextFile,
    line: Vec<u8>,
    /// The number of the last line, counted from one.
    number: u64,
}

/// The next line of a file.
pub(super) enum NextLine {
    Line,
    TooLong,
    End,
}

impl JsonLinesSource {
    pub fn new(file: TextFile) -> Self {
        Self { file, line: Vec::new(), number: 0 }
    }

    /// The last line that was read, and its number.
    pub(super) fn line(&self) -> (&[u8], u64) {
        (&self.line, self.number)
    }

    /// Reads the next line that is not blank.
    ///
    /// # Errors
    /// `Read` and `Malformed` of the file, which includes a line that is longer than [`LINE_BYTES_MAX`].
    pub(super) fn next_line(&mut self) -> Result<NextLine> {
        loop {
            self.line.clear();
            let limit = ROW_TEXT_BYTES_MAX as u64 + 1;
            let read = (&mut self.file).take(limit).read_until(b'\n', &mut self.line);
            let read = read.map_err(|source| self.file.error(source))?;
            if read == 0 {
                return Ok(NextLine::End);
            }
            self.number = self.number.saturating_add(1);
            if self.line.last() != Some(&b'\n') && self.line.len() > ROW_TEXT_BYTES_MAX {
                self.line = Vec::new();
                self.skip_line()?;
                return Ok(NextLine::TooLong);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(NextLine::Line);
            }
        }
    }

    /// Passes over the rest of a line.
    fn skip_line(&mut self) -> Result<()> {
        let mut skipped = 0u64;
        while skipped < LINE_BYTES_MAX {
            let buffer = match self.file.fill_buf() {
                Ok(buffer) => buffer,
                Err(source) => return Err(self.file.error(source)),
            };
            if buffer.is_empty() {
                return Ok(());
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(buffer.len(), |end| end + 1);
            skipped = skipped.saturating_add(length as u64);
            self.file.consume(length);
            if end.is_some() {
                return Ok(());
            }
        }
        let reason = format!("line {} is longer than {LINE_BYTES_MAX} bytes", self.number);
        Err(crate::Error::malformed(self.file.name(), reason))
    }
}

impl TextSource for JsonLinesSource {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn position(&self) -> u64 {
        self.file.position()
    }

    fn next_row(&mut self, columns: &mut TextColumn) -> Result<TextRow> {
        let row = match self.next_line()? {
            NextLine::End => return Ok(TextRow::End),
            NextLine::TooLong => Err(too_long()),
            NextLine::Line => append(&self.line, columns),
        };
        Ok(match row {
            Ok(bytes) => TextRow::Added(bytes),
            Err(reason) => TextRow::Bad(format!("line {}: {reason}", self.number)),
        })
    }
}

/// The reason for a line that is too long.
pub(super) fn too_long() -> String {
    format!("the line is longer than {ROW_TEXT_BYTES_MAX} bytes")
}

/// Returns whether a line is a JSON object.
pub(super) fn is_object(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

/// Says why a line is no JSON.
pub(super) fn syntax(error: &serde_json::Error) -> String {
    let column = error.column();
    if error.is_eof() {
        return format!("the object is cut off after {column} bytes");
    }
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("no JSON object: {what}, at byte {column}")
}
