//! The values of fields, and the types that hold them.

use arrow_array::types::Date32Type;
use arrow_cast::parse::{Parser, string_to_timestamp_nanos};

use crate::text_rows::{TextColumn, TextType, TextValues};

/// The whole numbers up to this one are exact as `float64`.
const EXACT_FLOAT_MAX: u64 = 1 << 53;

/// The number of characters of a value that a message shows.
const CHARS_SHOWN: usize = 80;

/// Which types hold the values of a column that were seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueKinds {
    has_values: bool,
    boolean: bool,
    integer: bool,
    float: bool,
    date: bool,
    timestamp: bool,
    utc_timestamp: bool,
}

impl ValueKinds {
    pub fn new() -> Self {
        let (boolean, integer, float, date, timestamp, utc_timestamp) = (true, true, true, true, true, true);
        Self { has_values: false, boolean, integer, float, date, timestamp, utc_timestamp }
    }

    /// Adds a value. Fields without characters are nulls.
    pub fn add(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.has_values = true;
        self.boolean = self.boolean && boolean(text).is_some();
        self.integer = self.integer && integer(text).is_some();
        self.float = self.float && float(text).is_some();
        self.date = self.date && date(text).is_some();
        self.timestamp = self.timestamp && timestamp(text, false).is_some();
        self.utc_timestamp = self.utc_timestamp && timestamp(text, true).is_some();
    }

    /// The type of a column with the values that were added.
    pub fn text_type(&self) -> TextType {
        match self {
            Self { has_values: false, .. } => TextType::Text,
            Self { boolean: true, .. } => TextType::Boolean,
            Self { integer: true, .. } => TextType::Integer,
            Self { float: true, .. } => TextType::Float,
            Self { date: true, .. } => TextType::Date,
            Self { timestamp: true, .. } => TextType::Timestamp { is_utc: false },
            Self { utc_timestamp: true, .. } => TextType::Timestamp { is_utc: true },
            _ => TextType::Text,
        }
    }
}

/// Adds the value of a field to a column.
///
/// # Errors
/// The reason, if the value is not of the column's type.
pub(super) fn push(column: &mut TextColumn, text: &str, is_quoted: bool) -> Result<(), String> {
    if text.is_empty() && !(is_quoted && column.text_type == TextType::Text) {
        column.push_null();
        return Ok(());
    }
    let whole = match column.text_type {
        TextType::Text => return column.push_text(text),
        TextType::Integer => integer(text),
        TextType::Date => date(text),
        TextType::Timestamp { is_utc } => timestamp(text, is_utc),
        _ => None,
    };
    let is_pushed = match &mut column.values {
        TextValues::Boolean(values) => boolean(text).map(|value| values.push(value)),
        TextValues::Float(values) => float(text).map(|value| values.push(value)),
        TextValues::Integer(values) => whole.map(|value| values.push(value)),
        _ => None,
    };
    if is_pushed.is_none() {
        let shown: String = text.chars().take(CHARS_SHOWN).collect();
        return Err(column.expected(&format!("\"{}\"", shown.escape_debug())));
    }
    column.valid.push(true);
    Ok(())
}

fn boolean(text: &str) -> Option<bool> {
    match () {
        () if text.eq_ignore_ascii_case("true") => Some(true),
        () if text.eq_ignore_ascii_case("false") => Some(false),
        () => None,
    }
}

/// A whole number as it is usually written: without a plus and leading zeros, which numbers of articles and codes have.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.is_empty();
    let has_zero = digits.starts_with('0') && (digits.len() > 1 || digits.len() < text.len());
    if is_plain && !has_zero { text.parse().ok() } else { None }
}

/// A number, if it is no whole number that `float64` would change.
fn float(text: &str) -> Option<f64> {
    if matches!(text, "nan" | "NaN" | "inf" | "-inf") {
        return text.parse().ok();
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number =
        digits.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    let has_zero = digits.starts_with('0') && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    if !is_number || has_zero || digits.starts_with('+') {
        return None;
    }
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_whole && digits.parse::<u64>().ok().is_none_or(|value| value > EXACT_FLOAT_MAX) {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// Whether text begins with a date such as 2024-02-29.
fn begins_with_date(text: &str) -> bool {
    let is_date = |(at, byte): (usize, u8)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() };
    text.len() >= 10 && text.bytes().take(10).enumerate().all(is_date)
}

fn date(text: &str) -> Option<i64> {
    (text.len() == 10 && begins_with_date(text)).then(|| Date32Type::parse(text)).flatten().map(i64::from)
}

/// Microseconds since 1970, of a date and a time with or without an offset from UTC.
fn timestamp(text: &str, has_offset: bool) -> Option<i64> {
    let time = text.get(10..)?;
    let is_offset = time.contains(['Z', 'z', '+', '-']);
    if !begins_with_date(text) || !time.starts_with(['T', ' ']) || time.len() < 6 || is_offset != has_offset {
        return None;
    }
    let nanos = string_to_timestamp_nanos(text).ok()?;
    (nanos % 1000 == 0).then_some(nanos / 1000)
}
