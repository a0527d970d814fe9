//! Token ids of texts.

use arrow_schema::DataType;
use stoker_decode::{BadValue, ListSpec, OutputSpec, Row, Takes, ValueDecoder, write_number};
use stoker_tokenize::{BadText, TextTokenizer, TokenType};

/// Makes token ids: a list for each row, or rows of one length with a mask and a number of tokens.
pub(super) struct TextDecoder(TextTokenizer);

impl TextDecoder {
    pub fn new(tokenizer: TextTokenizer) -> Self {
        Self(tokenizer)
    }

    fn element(&self) -> DataType {
        match self.0.options().token_type {
            TokenType::Int32 => DataType::Int32,
            TokenType::Int64 => DataType::Int64,
        }
    }
}

impl ValueDecoder for TextDecoder {
    fn noun(&self) -> &'static str {
        "text"
    }

    /// A tokenizer is checked when it is made.
    fn validate(&self) -> stoker_decode::Result<()> {
        Ok(())
    }

    fn outputs(&self) -> Vec<OutputSpec> {
        let Some(length) = self.0.options().length else { return Vec::new() };
        vec![
            OutputSpec::tensor(self.element(), vec![length]),
            OutputSpec { suffix: "mask", element: DataType::Boolean, shape: vec![length] },
            OutputSpec::number("length"),
        ]
    }

    fn list(&self) -> Option<ListSpec> {
        // A token has at least one byte of the text, unless the file lets characters become several.
        let bytes_per_byte = self.0.options().token_type.bytes();
        let list = ListSpec { number: self.element(), shape: Vec::new(), bytes_per_byte };
        self.0.options().length.is_none().then_some(list)
    }

    fn takes(&self) -> Takes {
        Takes::Texts
    }

    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue> {
        let [ids, mask, length] = outputs else { return Ok(()) };
        let num_tokens = self.0.write(row.text()?, ids, mask).map_err(bad)?;
        write_number(num_tokens, length);
        Ok(())
    }

    fn decode_list(&self, row: &Row<'_>) -> Result<Vec<u8>, BadValue> {
        self.0.list(row.text()?).map_err(bad)
    }
}

fn bad(text: BadText) -> BadValue {
    BadValue::new(text)
}
