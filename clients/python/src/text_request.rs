//! Tokenizers, from Python.

use std::path::PathBuf;

use pyo3::prelude::*;
use stoker_tokenize::{Padding, Side, TEXT_BYTES_MAX, TokenOptions, TokenType};

use crate::decode_request::chosen;
use crate::exceptions::Raise;

/// What error messages call the options.
const TOKENIZER: &str = "tokenizer";

/// The token that fills rows: its id or its text.
#[derive(FromPyObject)]
pub(crate) enum PadRequest {
    Id(u32),
    Token(String),
}

/// The keys of the `TokenRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TokenRequest {
    length: Option<usize>,
    tokens_max: Option<usize>,
    truncate: bool,
    truncate_side: String,
    pad: Option<PadRequest>,
    pad_side: String,
    add_special_tokens: bool,
    dtype: String,
    bytes_max: Option<u64>,
}

impl TokenRequest {
    fn into_options(self, py: Python<'_>) -> PyResult<TokenOptions> {
        let sides = [("left", Side::Left), ("right", Side::Right)];
        let types = [("int32", TokenType::Int32), ("int64", TokenType::Int64)];
        Ok(TokenOptions {
            length: self.length,
            tokens_max: self.tokens_max,
            truncate: self.truncate,
            truncate_side: chosen(py, TOKENIZER, "truncate_side", &self.truncate_side, &sides)?,
            pad: self.pad.map(|pad| match pad {
                PadRequest::Id(id) => Padding::Id(id),
                PadRequest::Token(token) => Padding::Token(token),
            }),
            pad_side: chosen(py, TOKENIZER, "pad_side", &self.pad_side, &sides)?,
            add_special_tokens: self.add_special_tokens,
            token_type: chosen(py, TOKENIZER, "dtype", &self.dtype, &types)?,
            text_bytes_max: self.bytes_max.unwrap_or(TEXT_BYTES_MAX),
        })
    }
}

/// A tokenizer with its options. Streams share it.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct TextTokenizer(pub(crate) stoker_tokenize::TextTokenizer);

#[pymethods]
impl TextTokenizer {
    /// Makes a tokenizer from the text of its file; `name` is what messages call the file.
    #[new]
    fn new(py: Python<'_>, name: &str, json: String, request: TokenRequest) -> PyResult<Self> {
        let options = request.into_options(py)?;
        let made = py.detach(|| stoker_tokenize::TextTokenizer::try_new(name, json, options));
        Ok(Self(made.raise(py)?))
    }

    /// The text of the file.
    #[getter]
    fn json(&self) -> &str {
        self.0.json()
    }

    /// The digest of the text of the file: 64 hexadecimal digits.
    #[getter]
    fn digest(&self) -> String {
        self.0.digest().to_string()
    }

    /// The number of tokens, added ones included.
    #[getter]
    fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size()
    }

    /// The id that fills rows, if they have a length.
    #[getter]
    fn pad_id(&self) -> Option<u32> {
        self.0.pad_id()
    }

    /// What ranks compare: the file and the options.
    #[getter]
    fn identity(&self) -> String {
        format!("{} {:?}", self.0.digest().short(), self.0.options())
    }
}

/// Reads a tokenizer file, or that of a folder.
#[pyfunction]
pub(crate) fn read_tokenizer(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| stoker_tokenize::read_file(&path)).raise(py)
}
