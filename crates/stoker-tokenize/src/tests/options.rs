//! Options that are refused, with their reasons.

use stoker_types::ErrorKind;

use super::{PAIRS, WORDS, fixed};
use crate::{Padding, TextTokenizer, TokenOptions};

fn refused(json: &str, options: TokenOptions) -> String {
    let error = TextTokenizer::try_new("t.json", json.to_string(), options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    error.to_string()
}

#[test]
fn options_that_do_not_fit_the_file_are_refused() {
    let check = |json: &str, options: TokenOptions, expected: &str| {
        let said = refused(json, options);
        assert!(said.starts_with("tokenizer t.json: ") && said.contains(expected), "{said}");
    };
    let any = TokenOptions::default;
    check(WORDS, fixed(1), "length is 1; it must be from 2 to 2147483647, as the tokenizer adds 2 special tokens");
    check(WORDS, fixed(0), "length is 0");
    check(PAIRS, TokenOptions { tokens_max: Some(0), ..any() }, "tokens_max is 0; it must be from 1");
    check(WORDS, fixed(usize::MAX), "length is 18446744073709551615");
    check(WORDS, TokenOptions { tokens_max: Some(9), ..fixed(5) }, "tokens_max is 9, and length is 5");
    check(PAIRS, fixed(5), "pad is missing: the file names no token that fills rows");
    check(WORDS, TokenOptions { pad: Some(Padding::Id(0)), ..any() }, "pad needs length");
    let unknown = TokenOptions { pad: Some(Padding::Token("<none>".into())), ..fixed(5) };
    check(WORDS, unknown, "pad is \"<none>\", which is no token of the vocabulary");
}

#[test]
fn the_token_that_fills_rows_is_that_of_the_file() {
    let padding = r#""padding": {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": null,
        "pad_id": 9, "pad_type_id": 0, "pad_token": "mat"}"#;
    let truncation =
        r#""truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}"#;
    let json = WORDS.replace("\"padding\": null", padding).replace("\"truncation\": null", truncation);
    let made = |options| TextTokenizer::try_new("t.json", json.clone(), options).unwrap();
    assert_eq!(made(fixed(5)).pad_id(), Some(9));
    let named = TokenOptions { pad: Some(Padding::Token("cat".into())), ..fixed(5) };
    assert_eq!(made(named).pad_id(), Some(5));
    // The file's own lengths do not count.
    assert_eq!(made(TokenOptions::default()).ids("a cat sat").unwrap(), [2, 4, 5, 6, 3]);
}

#[test]
fn a_tokenizer_that_draws_is_refused() {
    let drawing = PAIRS.replace("\"dropout\": null", "\"dropout\": 0.1");
    assert!(refused(&drawing, TokenOptions::default()).contains("its model has dropout"));
    let never = PAIRS.replace("\"dropout\": null", "\"dropout\": 0.0");
    assert!(TextTokenizer::try_new("t.json", never, TokenOptions::default()).is_ok());
}
