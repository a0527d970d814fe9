//! Values from texts.

use serde::de::IgnoredAny;

use super::{BATCH_BYTES_MAX, FieldValue};

/// The most bytes of a wrong text that a message shows.
const BYTES_SHOWN: usize = 32;

/// Reads UTF-8.
///
/// # Errors
/// What is wrong.
pub(crate) fn text(bytes: &[u8]) -> Result<FieldValue<'_>, String> {
    checked(bytes).map(FieldValue::Text)
}

/// Reads JSON, which stays text.
///
/// # Errors
/// What is wrong.
pub(crate) fn json(bytes: &[u8]) -> Result<FieldValue<'_>, String> {
    let text = checked(bytes)?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("it is no JSON: {error}"))?;
    Ok(FieldValue::Text(text))
}

/// Reads an int64 from decimal digits, around which there may be spaces and line ends.
///
/// # Errors
/// What is wrong.
pub(crate) fn integer(bytes: &[u8]) -> Result<FieldValue<'_>, String> {
    let number = checked(bytes)?.trim().parse().map_err(|_| format!("{} is no int64", shown(bytes)))?;
    Ok(FieldValue::Integer(number))
}

/// Reads a float64 as Python prints it.
///
/// # Errors
/// What is wrong.
pub(crate) fn float(bytes: &[u8]) -> Result<FieldValue<'_>, String> {
    let number = checked(bytes)?.trim().parse().map_err(|_| format!("{} is no float64", shown(bytes)))?;
    Ok(FieldValue::Float(number))
}

fn checked(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() >= BATCH_BYTES_MAX {
        return Err(format!("a text may have less than {BATCH_BYTES_MAX} bytes, and this one has {}", bytes.len()));
    }
    let wrong = |error: std::str::Utf8Error| format!("it is not UTF-8 from byte {} on", error.valid_up_to());
    std::str::from_utf8(bytes).map_err(wrong)
}

fn shown(bytes: &[u8]) -> String {
    let first = bytes.get(..BYTES_SHOWN).unwrap_or(bytes).escape_ascii();
    let more = if bytes.len() > BYTES_SHOWN { "…" } else { "" };
    format!("\"{first}{more}\"")
}
