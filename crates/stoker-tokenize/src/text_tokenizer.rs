//! A tokenizer with its options.

use std::fmt;
use std::sync::Arc;

use stoker_types::{Digest, catch_panic};
use tokenizers::models::ModelWrapper;
use tokenizers::{PostProcessor, Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy};

use crate::file::check_size;
use crate::{BadText, Error, Padding, Result, Side, TokenOptions, TokenType};

/// Tokens that stand for padding in vocabularies whose file says nothing about padding.
const PAD_TOKENS: [&str; 3] = ["[PAD]", "<pad>", "<|pad|>"];

/// The tokenizer of a `tokenizer.json`, with the options of the rows that it makes. Copies share it.
///
/// Each text gives the same ids everywhere, so a tokenizer that draws random numbers (`dropout`) is refused.
#[derive(Clone)]
pub struct TextTokenizer(Arc<Inner>);

struct Inner {
    name: String,
    json: String,
    digest: Digest,
    options: TokenOptions,
    tokenizer: Tokenizer,
    /// The id that fills rows; 0 for rows that are not filled.
    pad_id: u32,
    vocabulary_size: usize,
}

impl TextTokenizer {
    /// Makes a tokenizer from the text of its file. `name` is what messages call the file.
    ///
    /// Costs about a second for a vocabulary of 100,000 tokens.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::NotATokenizer`], [`Error::InvalidOption`].
    pub fn try_new(name: &str, json: String, options: TokenOptions) -> Result<Self> {
        check_size(name, json.len() as u64)?;
        let refused = |reason| Error::NotATokenizer { file: name.to_string(), reason };
        let parsed = || Tokenizer::from_bytes(json.as_bytes()).map_err(|error| error.to_string());
        let mut tokenizer = catch_panic(parsed, |panic| panic).map_err(refused)?;
        if let ModelWrapper::BPE(model) = tokenizer.get_model()
            && model.dropout.is_some_and(|dropout| dropout > 0.0)
        {
            let reason = "its model has dropout, which gives other ids each time: set it to null in the file";
            return Err(refused(reason.into()));
        }
        let invalid = |option, reason| Error::InvalidOption { file: name.to_string(), option, reason };
        let pad_id = check(&tokenizer, &options).map_err(|(option, reason)| invalid(option, reason))?;
        let truncation = options.limit().filter(|_| options.truncate).map(|(_, tokens)| TruncationParams {
            direction: match options.truncate_side {
                Side::Left => TruncationDirection::Left,
                Side::Right => TruncationDirection::Right,
            },
            max_length: tokens,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
        });
        tokenizer.with_padding(None);
        tokenizer.with_truncation(truncation).map_err(|error| invalid("length", error.to_string()))?;
        let (digest, vocabulary_size) = (Digest::of(json.as_bytes()), tokenizer.get_vocab_size(true));
        Ok(Self(Arc::new(Inner { name: name.to_string(), json, digest, options, tokenizer, pad_id, vocabulary_size })))
    }

    /// What messages call the file.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The text of the file.
    pub fn json(&self) -> &str {
        &self.0.json
    }

    /// The digest of the text of the file.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// The options.
    pub fn options(&self) -> &TokenOptions {
        &self.0.options
    }

    /// The number of tokens, added ones included.
    pub fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size
    }

    /// The id that fills rows, if they have a length.
    pub fn pad_id(&self) -> Option<u32> {
        self.0.options.length.map(|_| self.0.pad_id)
    }

    /// Returns the token ids of a text: cut, and not filled.
    ///
    /// # Errors
    /// A text that is too long, in bytes or in tokens.
    pub fn ids(&self, text: &str) -> Result<Vec<u32>, BadText> {
        let Inner { options, tokenizer, .. } = self.0.as_ref();
        if text.len() as u64 > options.text_bytes_max {
            let (found, max) = (text.len(), options.text_bytes_max);
            return Err(BadText::new(format!("it has {found} bytes, more than the limit of {max} (text_bytes_max)")));
        }
        let encoded = || {
            let encoding = tokenizer.encode_fast(text, options.add_special_tokens);
            encoding.map_err(|error| BadText::new(error.to_string()))
        };
        let ids = catch_panic(encoded, BadText::new)?.get_ids().to_vec();
        match options.limit() {
            Some((option, max)) if ids.len() > max => {
                Err(BadText::new(format!("it has {} tokens, more than the {max} of {option}", ids.len())))
            }
            _ => Ok(ids),
        }
    }

    /// Returns the token ids of a text, in native byte order.
    ///
    /// # Errors
    /// A text that is too long; an id that does not fit the type.
    pub fn list(&self, text: &str) -> Result<Vec<u8>, BadText> {
        let ids = self.ids(text)?;
        let mut list = vec![0; ids.len().saturating_mul(self.0.options.token_type.bytes())];
        self.write_ids(&ids, &mut list)?;
        Ok(list)
    }

    /// Writes the token ids of a text, filled to `length`, in native byte order; and which of them are tokens of the text
    /// and special tokens, one byte each: 1, or 0 for filling. Returns their number.
    ///
    /// # Errors
    /// As for [`TextTokenizer::list`].
    pub fn write(&self, text: &str, ids: &mut [u8], mask: &mut [u8]) -> Result<usize, BadText> {
        let found = self.ids(text)?;
        let Inner { options, pad_id, .. } = self.0.as_ref();
        let num_filled = mask.len().saturating_sub(found.len());
        let before = match options.pad_side {
            Side::Left => num_filled,
            Side::Right => 0,
        };
        let mut row = vec![*pad_id; mask.len()];
        mask.fill(0);
        let places = row.iter_mut().zip(mask).skip(before);
        for ((place, flag), id) in places.zip(&found) {
            (*place, *flag) = (*id, 1);
        }
        self.write_ids(&row, ids)?;
        Ok(found.len())
    }

    fn write_ids(&self, ids: &[u32], bytes: &mut [u8]) -> Result<(), BadText> {
        let token_type = self.0.options.token_type;
        for (id, place) in ids.iter().zip(bytes.chunks_exact_mut(token_type.bytes())) {
            match token_type {
                TokenType::Int32 => {
                    let too_large = |_| BadText::new(format!("its token {id} does not fit int32"));
                    place.copy_from_slice(&i32::try_from(*id).map_err(too_large)?.to_ne_bytes());
                }
                TokenType::Int64 => place.copy_from_slice(&i64::from(*id).to_ne_bytes()),
            }
        }
        Ok(())
    }
}

impl fmt::Debug for TextTokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TextTokenizer({}, {}, {:?})", self.name(), self.digest().short(), self.options())
    }
}

/// Checks the options. Returns the id that fills rows.
fn check(tokenizer: &Tokenizer, options: &TokenOptions) -> Result<u32, (&'static str, String)> {
    if let (Some(length), Some(max)) = (options.length, options.tokens_max) {
        return Err(("tokens_max", format!("is {max}, and length is {length}: give one of them")));
    }
    let num_special = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
    if let Some((option, tokens)) = options.limit()
        && (tokens == 0 || tokens < num_special || tokens > i32::MAX as usize)
    {
        let least = num_special.max(1);
        let reason = format!(
            "is {tokens}; it must be from {least} to {}, as the tokenizer adds {num_special} special tokens",
            i32::MAX
        );
        return Err((option, reason));
    }
    match (&options.pad, options.length) {
        (Some(_), None) => Err(("pad", "needs length, to which rows are filled".into())),
        (None, None) => Ok(0),
        (Some(Padding::Id(id)), Some(_)) => Ok(*id),
        (Some(Padding::Token(token)), Some(_)) => {
            let unknown = || ("pad", format!("is {token:?}, which is no token of the vocabulary"));
            tokenizer.token_to_id(token).ok_or_else(unknown)
        }
        (None, Some(_)) => {
            let stated = tokenizer.get_padding().map(|padding| padding.pad_id);
            let usual = || PAD_TOKENS.iter().find_map(|token| tokenizer.token_to_id(token));
            let missing =
                || ("pad", "is missing: the file names no token that fills rows, so give its id or text".into());
            stated.or_else(usual).ok_or_else(missing)
        }
    }
}
