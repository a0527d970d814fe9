//! Changed tokenizer files give an error or a tokenizer, and texts an error or ids; neither panics, hangs or takes more
//! memory than it may.

use stoker_fuzz::Target;

use super::{PAIRS, WORDS};
use crate::{TextTokenizer, TokenOptions};

/// The most bytes that a tokenizer of a few tokens holds, with the automata of its regular expressions.
const MEMORY_BYTES_MAX: usize = 256 << 20;

/// Texts with letters, spaces, other scripts, and bytes that are no letters.
const TEXTS: [&str; 5] =
    ["", "The cat sat on a mat.", "abc  ab\n\tc'abc 12", "e\u{301}é日本語🙂\u{0}", "[CLS] a [SEP]"];

/// A model of scores.
const SCORES: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "post_processor": null, "decoder": null,
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
              "vocab": [["<unk>", 0.0], ["▁", -2.0], ["▁a", -3.0], ["a", -3.5], ["b", -4.0], ["ab", -4.5], ["abc", -5.0]]}
}"#;

/// A model of pieces of words.
const PIECES: &str = r#"{
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 1], "cls": ["[CLS]", 2]},
    "decoder": {"type": "WordPiece", "prefix": "@@", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "@@", "max_input_chars_per_word": 100,
              "vocab": {"[UNK]": 0, "[SEP]": 1, "[CLS]": 2, "a": 3, "@@b": 4, "ab": 5, "the": 6, "cat": 7}}
}"#;

#[test]
fn files() {
    let seeds = [WORDS, PAIRS, SCORES, PIECES].map(|seed| seed.as_bytes().to_vec());
    let tokens = [
        "\"ByteLevel\"",
        "\"Metaspace\"",
        "\"Precompiled\"",
        "\"Replace\"",
        "\"Prepend\"",
        "\"NFKD\"",
        "\"Strip\"",
        "\"Digits\"",
        "\"Punctuation\"",
        "\"UnicodeScripts\"",
        "\"RobertaProcessing\"",
        "\"Sequence\"",
        "\"Regex\"",
        "null",
        "true",
        "4294967295",
        "-1",
        "1e300",
        "{2,}",
        "(?!",
        "\\\\p{L}+",
        "\"merges\"",
        "\"vocab\"",
    ];
    let target = Target::new("tokenizer file").seeds(seeds).tokens(tokens).memory_bytes_max(MEMORY_BYTES_MAX);
    target.run(|file| {
        let Ok(json) = String::from_utf8(file.to_vec()) else { return false };
        let options = [
            TokenOptions::default(),
            TokenOptions { length: Some(7), pad: Some(crate::Padding::Id(0)), ..TokenOptions::default() },
        ];
        let mut is_tokenizer = false;
        for options in options {
            let Ok(tokenizer) = TextTokenizer::try_new("t.json", json.clone(), options) else { continue };
            is_tokenizer = true;
            for text in TEXTS {
                let ids = tokenizer.ids(text);
                assert_eq!(ids, tokenizer.ids(text), "ids of {text:?}");
                let (mut row, mut mask) = ([0; 28], [0; 7]);
                if let Ok(num) = tokenizer.write(text, &mut row, &mut mask) {
                    assert!(tokenizer.options().length.is_none() || num <= 7);
                }
            }
        }
        is_tokenizer
    });
}
