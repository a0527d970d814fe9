//! Splits delimited text into records and fields.
//!
//! The rules are those of RFC 4180, section 2, with three common extensions: lines may end with a line feed or a carriage
//! return alone, blank lines are left out, and a quote inside a field that does not begin with one is a plain character.

use std::io::BufRead;

use crate::text_file::TextFile;
use crate::text_rows::ROW_TEXT_BYTES_MAX;
use crate::{Error, Result};

/// The length of a record at which reading ends. Longer records than [`ROW_TEXT_BYTES_MAX`] are passed over up to it.
const RECORD_BYTES_MAX: u64 = 1 << 30;

/// The records of a file.
#[derive(Debug)]
pub(super) struct DelimitedRecords {
    file: TextFile,
    delimiter: u8,
    /// The number of the line of the next byte, counted from one.
    line: u64,
}

/// The fields of a record.
#[derive(Debug, Default)]
pub(super) struct DelimitedRecord {
    text: Vec<u8>,
    /// Where each field ends, and whether it begins with a quote.
    fields: Vec<(usize, bool)>,
}

/// How a record ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordEnd {
    /// The line on which the record begins.
    pub line: u64,
    /// The number of fields, some of which may not have been kept.
    pub num_fields: u64,
    /// The number of bytes.
    bytes: u64,
    /// The line of a quote without an end.
    open_quote: Option<u64>,
}

impl RecordEnd {
    /// Says why the record is none of `num_fields` fields.
    pub fn problem(&self, num_fields: usize) -> Option<String> {
        match () {
            () if self.open_quote.is_some() => Some(format!(
                "the quote in line {} has no end, so that the rest of the file is one value",
                self.open_quote.unwrap_or_default()
            )),
            () if self.bytes > ROW_TEXT_BYTES_MAX as u64 => {
                Some(format!("the record has {} bytes; the limit is {ROW_TEXT_BYTES_MAX}", self.bytes))
            }
            () if self.num_fields != num_fields as u64 => {
                Some(format!("{} fields; the header has {num_fields}", self.num_fields))
            }
            () => None,
        }
    }
}

/// Where a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote in a quoted field: the end of the field, or the first half of a quote in it.
    QuoteInQuoted,
}

/// A record that is being read.
struct RecordReading<'a> {
    record: &'a mut DelimitedRecord,
    fields_max: usize,
    delimiter: u8,
    state: RecordState,
    is_quoted: bool,
    num_fields: u64,
    bytes: u64,
}

impl DelimitedRecords {
    pub fn new(file: TextFile, delimiter: u8) -> Self {
        Self { file, delimiter, line: 1 }
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        self.file.name()
    }

    /// The number of bytes of the file that were read.
    pub fn position(&self) -> u64 {
        self.file.position()
    }

    /// Reads the next record, of which at most `fields_max` fields are kept, or `None` at the end of the file.
    ///
    /// # Errors
    /// `Read` and `Malformed` of the file, which includes a record that is longer than [`RECORD_BYTES_MAX`].
    pub fn next(&mut self, record: &mut DelimitedRecord, fields_max: usize) -> Result<Option<RecordEnd>> {
        record.text.clear();
        record.fields.clear();
        if !self.skip_blank()? {
            return Ok(None);
        }
        let (line, mut quote_line) = (self.line, self.line);
        let delimiter = self.delimiter;
        let (state, is_quoted) = (RecordState::FieldStart, false);
        let mut reading = RecordReading { record, fields_max, delimiter, state, is_quoted, num_fields: 0, bytes: 0 };
        let mut has_end = false;
        while !has_end {
            let buffer = match self.file.fill_buf() {
                Ok(buffer) => buffer,
                Err(source) => return Err(self.file.error(source)),
            };
            if buffer.is_empty() {
                break;
            }
            let mut used = 0;
            for byte in buffer {
                used += 1;
                let was_quoted = reading.is_quoted;
                has_end = reading.take(*byte);
                if *byte == b'\n' {
                    self.line = self.line.saturating_add(1);
                }
                if reading.is_quoted && !was_quoted {
                    quote_line = self.line;
                }
                if has_end {
                    break;
                }
            }
            self.file.consume(used);
            if reading.bytes > RECORD_BYTES_MAX {
                let reason = format!("line {line}: the record is longer than {RECORD_BYTES_MAX} bytes");
                return Err(Error::malformed(self.file.name(), reason));
            }
        }
        let open_quote = (!has_end && reading.state == RecordState::Quoted).then_some(quote_line);
        if !has_end {
            reading.end_field();
        }
        let RecordReading { num_fields, bytes, .. } = reading;
        Ok(Some(RecordEnd { line, num_fields, bytes, open_quote }))
    }

    /// Passes over the ends of lines. Returns whether the file has further bytes.
    fn skip_blank(&mut self) -> Result<bool> {
        loop {
            let buffer = match self.file.fill_buf() {
                Ok(buffer) => buffer,
                Err(source) => return Err(self.file.error(source)),
            };
            let blank = buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
            let (length, lines) = blank
                .fold((0, 0u64), |(length, lines), byte| (length + 1, lines.saturating_add(u64::from(*byte == b'\n'))));
            if length == 0 {
                return Ok(!buffer.is_empty());
            }
            self.line = self.line.saturating_add(lines);
            self.file.consume(length);
        }
    }
}

impl RecordReading<'_> {
    /// Takes the next byte, and returns whether the record ends with it.
    fn take(&mut self, byte: u8) -> bool {
        self.bytes = self.bytes.saturating_add(1);
        if self.state == RecordState::Quoted {
            match byte {
                b'"' => self.state = RecordState::QuoteInQuoted,
                _ => self.push(byte),
            }
            return false;
        }
        match byte {
            _ if byte == self.delimiter => self.end_field(),
            b'\r' | b'\n' => {
                self.end_field();
                return true;
            }
            b'"' if self.state == RecordState::FieldStart => (self.state, self.is_quoted) = (RecordState::Quoted, true),
            b'"' if self.state == RecordState::QuoteInQuoted => {
                self.state = RecordState::Quoted;
                self.push(byte);
            }
            _ => {
                self.state = RecordState::Plain;
                self.push(byte);
            }
        }
        false
    }

    fn push(&mut self, byte: u8) {
        if self.record.text.len() < ROW_TEXT_BYTES_MAX {
            self.record.text.push(byte);
        }
    }

    fn end_field(&mut self) {
        self.num_fields = self.num_fields.saturating_add(1);
        if self.record.fields.len() < self.fields_max {
            self.record.fields.push((self.record.text.len(), self.is_quoted));
        }
        (self.state, self.is_quoted) = (RecordState::FieldStart, false);
    }
}

impl DelimitedRecord {
    /// The bytes of a field, without quotes.
    pub fn field(&self, index: usize) -> &[u8] {
        let end_of = |index: usize| self.fields.get(index).map(|(end, _)| *end);
        let start = index.checked_sub(1).map_or(Some(0), end_of);
        match (start, end_of(index)) {
            (Some(start), Some(end)) => self.text.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Whether a field begins with a quote.
    pub fn is_quoted(&self, index: usize) -> bool {
        self.fields.get(index).is_some_and(|(_, is_quoted)| *is_quoted)
    }

    /// The number of fields that were kept.
    pub fn num_fields(&self) -> usize {
        self.fields.len()
    }

    /// The number of bytes of all fields.
    pub fn len(&self) -> usize {
        self.text.len()
    }
}
