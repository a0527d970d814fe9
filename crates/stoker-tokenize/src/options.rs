//! How long the rows of a column of texts are.

use serde::{Deserialize, Serialize};

/// The most bytes of a text, unless the options say otherwise. Tokenizing takes about 100 bytes for each token.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;

/// What token ids a text becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenOptions {
    /// The number of tokens of each row; shorter rows are padded. `None` for rows of any length.
    pub length: Option<usize>,
    /// The most tokens of a row without `length`; `None` for any number.
    pub tokens_max: Option<usize>,
    /// Whether longer rows are cut, special tokens excepted. Otherwise they have no token ids.
    pub truncate: bool,
    /// The side at which rows are cut.
    pub truncate_side: Side,
    /// What fills rows that are shorter than `length`; `None` for the token that the file names.
    pub pad: Option<Padding>,
    /// The side at which rows are filled.
    pub pad_side: Side,
    /// Whether the special tokens are added that the file adds to a text, such as `[CLS]` and `[SEP]`.
    pub add_special_tokens: bool,
    /// The type of the ids.
    pub token_type: TokenType,
    /// The most bytes of a text; longer texts have no token ids.
    pub text_bytes_max: u64,
}

impl Default for TokenOptions {
    /// Rows of any length, with special tokens.
    fn default() -> Self {
        Self {
            length: None,
            tokens_max: None,
            truncate: true,
            truncate_side: Side::Right,
            pad: None,
            pad_side: Side::Right,
            add_special_tokens: true,
            token_type: TokenType::Int32,
            text_bytes_max: TEXT_BYTES_MAX,
        }
    }
}

impl TokenOptions {
    /// Returns the most tokens of a row, and the name of the option that says so.
    pub(crate) fn limit(&self) -> Option<(&'static str, usize)> {
        let length = self.length.map(|length| ("length", length));
        length.or_else(|| self.tokens_max.map(|max| ("tokens_max", max)))
    }
}

/// The token that fills rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// Its id.
    Id(u32),
    /// Its text, which the vocabulary has.
    Token(String),
}

/// A side of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The beginning.
    Left,
    /// The end.
    Right,
}

/// The type of token ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenType {
    /// Integers of 32 bits.
    Int32,
    /// Integers of 64 bits.
    Int64,
}

impl TokenType {
    /// Returns the bytes of an id.
    pub fn bytes(self) -> usize {
        match self {
            TokenType::Int32 => size_of::<i32>(),
            TokenType::Int64 => size_of::<i64>(),
        }
    }
}
