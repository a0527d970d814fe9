//! Bytes as hexadecimal text.

use std::fmt::{self, Write};

/// Shows bytes as hexadecimal text. It does not allocate memory.
pub(crate) struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for digit in self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
            f.write_char(char::from_digit(digit.into(), 16).unwrap_or('?'))?;
        }
        Ok(())
    }
}

/// Reads hexadecimal text; `None` for other text.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: char| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Option<Vec<u8>> = text.trim().chars().map(digit).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
