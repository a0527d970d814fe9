//! Tests of tokenizers. The ids beside those of the Python package `tokenizers` are in
//! `clients/python/tests/test_tokenizers.py`.

mod files;
mod fuzz;
mod options;
mod rows;

use crate::{TextTokenizer, TokenOptions};

/// A model of whole words, with tokens at both ends of a text.
pub(crate) const WORDS: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [
        {"id": 0, "content": "[PAD]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 2, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 3, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
    ],
    "normalizer": {"type": "Lowercase"},
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
            "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}
        }
    },
    "decoder": null,
    "model": {
        "type": "WordLevel", "unk_token": "[UNK]",
        "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "cat": 5, "sat": 6, "on": 7, "the": 8, "mat": 9}
    }
}"#;

/// A model of bytes and pairs of them, with the expression of GPT-2.
pub(crate) const PAIRS: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "'s|'t| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
         "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
    ]},
    "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
        "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
        "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "abc": 5, "Ġa": 6}, "merges": [["a", "b"], ["ab", "c"], ["Ġ", "a"]]
    }
}"#;

pub(crate) fn tokenizer(json: &str, options: TokenOptions) -> TextTokenizer {
    TextTokenizer::try_new("t.json", json.to_string(), options).unwrap()
}

/// The options of rows of one length.
pub(crate) fn fixed(length: usize) -> TokenOptions {
    TokenOptions { length: Some(length), ..TokenOptions::default() }
}
