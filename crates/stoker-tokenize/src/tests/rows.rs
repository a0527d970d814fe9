//! Token ids of rows: cut, filled, as lists.

use super::{PAIRS, WORDS, fixed, tokenizer};
use crate::{Padding, Side, TextTokenizer, TokenOptions, TokenType};

/// The ids and the mask of a row of one length.
fn row(tokenizer: &TextTokenizer, text: &str) -> (Vec<i32>, Vec<u8>) {
    let length = tokenizer.options().length.unwrap();
    let (mut ids, mut mask) = (vec![0xEE; length * 4], vec![0xEE; length]);
    let num = tokenizer.write(text, &mut ids, &mut mask).unwrap();
    assert_eq!(num, mask.iter().filter(|flag| **flag == 1).count());
    (ids.chunks(4).map(|id| i32::from_ne_bytes(id.try_into().unwrap())).collect(), mask)
}

#[test]
fn texts_become_ids() {
    let words = tokenizer(WORDS, TokenOptions::default());
    assert_eq!(words.ids("The CAT sat").unwrap(), [2, 8, 5, 6, 3]);
    assert_eq!(words.ids("").unwrap(), [2, 3]);
    assert_eq!(words.ids("a dog\u{0}").unwrap(), [2, 4, 1, 1, 3]);
    let plain = tokenizer(WORDS, TokenOptions { add_special_tokens: false, ..TokenOptions::default() });
    assert_eq!(plain.ids("the mat").unwrap(), [8, 9]);
    let pairs = tokenizer(PAIRS, TokenOptions::default());
    assert_eq!(pairs.ids("abc ab").unwrap(), [5, 3, 4]);
    assert_eq!((words.vocabulary_size(), words.pad_id()), (10, None));
}

#[test]
fn rows_of_one_length_are_filled_and_cut_at_either_side() {
    let words = tokenizer(WORDS, fixed(5));
    assert_eq!(row(&words, "a cat"), (vec![2, 4, 5, 3, 0], vec![1, 1, 1, 1, 0]));
    assert_eq!(row(&words, "the cat sat on the mat"), (vec![2, 8, 5, 6, 3], vec![1; 5]));
    let left = TokenOptions { pad_side: Side::Left, truncate_side: Side::Left, ..fixed(5) };
    let left = tokenizer(WORDS, left);
    assert_eq!(row(&left, "a cat"), (vec![0, 2, 4, 5, 3], vec![0, 1, 1, 1, 1]));
    assert_eq!(row(&left, "the cat sat on the mat"), (vec![2, 7, 8, 9, 3], vec![1; 5]));
    let other = tokenizer(PAIRS, TokenOptions { pad: Some(Padding::Id(77)), ..fixed(3) });
    assert_eq!(row(&other, "ab"), (vec![4, 77, 77], vec![1, 0, 0]));
    assert_eq!(other.pad_id(), Some(77));
}

#[test]
fn rows_of_any_length_are_lists() {
    let words = tokenizer(WORDS, TokenOptions { tokens_max: Some(4), ..TokenOptions::default() });
    assert_eq!(words.ids("the cat sat on the mat").unwrap(), [2, 8, 5, 3]);
    let wide = TokenOptions { token_type: TokenType::Int64, ..TokenOptions::default() };
    let bytes = tokenizer(WORDS, wide).list("a cat").unwrap();
    let ids: Vec<i64> = bytes.chunks(8).map(|id| i64::from_ne_bytes(id.try_into().unwrap())).collect();
    assert_eq!(ids, [2, 4, 5, 3]);
    let bytes = tokenizer(WORDS, TokenOptions::default()).list("a cat").unwrap();
    assert_eq!(bytes.len(), 16);
}

#[test]
fn texts_that_are_too_long_give_a_reason() {
    let reason = |options, text: &str| tokenizer(WORDS, options).ids(text).unwrap_err().reason;
    let whole = TokenOptions { truncate: false, ..fixed(5) };
    assert_eq!(reason(whole, "the cat sat on"), "it has 6 tokens, more than the 5 of length");
    let few = TokenOptions { truncate: false, tokens_max: Some(3), ..TokenOptions::default() };
    assert_eq!(reason(few, "a cat"), "it has 4 tokens, more than the 3 of tokens_max");
    let short = TokenOptions { text_bytes_max: 4, ..TokenOptions::default() };
    assert!(reason(short, "a cat").contains("it has 5 bytes, more than the limit of 4"));
    let large = WORDS.replace("\"mat\": 9", "\"mat\": 4294967295");
    let tokenizer = tokenizer(&large, TokenOptions::default());
    assert_eq!(tokenizer.ids("mat").unwrap(), [2, u32::MAX, 3]);
    assert_eq!(tokenizer.list("mat").unwrap_err().reason, "its token 4294967295 does not fit int32");
}

#[test]
fn a_saved_tokenizer_needs_no_file() {
    let words = tokenizer(WORDS, fixed(5));
    let saved = serde_json::to_string(&words).unwrap();
    let loaded: TextTokenizer = serde_json::from_str(&saved).unwrap();
    assert_eq!((loaded.digest(), loaded.options(), loaded.name()), (words.digest(), words.options(), "t.json"));
    assert_eq!(row(&loaded, "a cat"), row(&words, "a cat"));
    assert!(format!("{words:?}").len() < 400, "{words:?}");
    let other = saved.replace("\\\"Whitespace\\\"", "\\\"Nothing\\\"");
    assert!(serde_json::from_str::<TextTokenizer>(&other).is_err());
}
