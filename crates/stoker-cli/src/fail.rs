//! Prints why a command failed.

use std::process::ExitCode;

use stoker_types::plain_message;

/// The maximum number of characters of a message.
const MESSAGE_CHARS_MAX: usize = 600;

/// A cause may begin with the text that the causes before it end with. An overlap of fewer bytes is taken for chance.
const OVERLAP_BYTES_MIN: usize = 16;

/// Prints an error as [`report`] does, and returns the exit status of a command that failed.
pub fn fail(error: &anyhow::Error) -> ExitCode {
    report(error);
    ExitCode::FAILURE
}

/// Prints an error with its causes in one line on standard error.
pub fn report(error: &anyhow::Error) {
    eprintln!("error: {}", message(error));
}

/// Joins the messages of an error and its causes, without repetitions, in at most [`MESSAGE_CHARS_MAX`] characters.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(|cause| readable(&cause.to_string())) {
        if cause.contains(&text) {
            text = cause;
        } else if !text.contains(&cause) {
            match overlap(&text, &cause) {
                0 => text = format!("{text}: {cause}"),
                bytes => text.push_str(&cause[bytes..]),
            }
        }
    }
    shortened(&text)
}

/// Returns the first line of a message in plain words. It removes the locations in source code that Lance appends, and
/// the query parts of URLs, in which some stores carry signatures.
fn readable(message: &str) -> String {
    let message = plain_message(message);
    let line = message.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let words: Vec<String> = without_locations(line).split(' ').map(without_query).collect();
    shortened(words.join(" ").trim())
}

/// Returns the text without every `, path.rs:line:column`.
fn without_locations(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((start, end)) = location(rest) {
        kept.push_str(&rest[..start]);
        rest = &rest[end..];
    }
    kept + rest
}

/// Returns the start and the end of the first `, path.rs:line:column`.
fn location(text: &str) -> Option<(usize, usize)> {
    text.match_indices(".rs:").find_map(|(dot, extension)| {
        let start = text[..dot].rfind(", ")?;
        let line_and_column = &text[dot + extension.len()..];
        let column = without_number(line_and_column)?.strip_prefix(':').and_then(without_number)?;
        let is_path = !text[start + 2..dot].contains(' ');
        is_path.then(|| (start, text.len() - column.len()))
    })
}

/// Returns the text after its leading digits, or `None` if it begins with no digit.
fn without_number(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

/// Returns a URL without its query part; the punctuation after the URL stays.
fn without_query(word: &str) -> String {
    let query = word.find("://").and_then(|scheme| Some(scheme + word[scheme..].find('?')?));
    let Some(query) = query else { return word.to_string() };
    let behind = word[query..].trim_end_matches(['.', ',', ';', ':', ')', ']', '"', '\'']).len();
    format!("{}{}", &word[..query], &word[query + behind..])
}

/// Returns the number of bytes at the end of `text` with which `cause` begins.
fn overlap(text: &str, cause: &str) -> usize {
    let ends = cause.char_indices().map(|(end, _)| end).rev();
    ends.take_while(|end| *end >= OVERLAP_BYTES_MIN).find(|end| text.ends_with(&cause[..*end])).unwrap_or(0)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        None => text.to_string(),
        Some(_) => text.chars().take(MESSAGE_CHARS_MAX - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::{MESSAGE_CHARS_MAX, message};

    /// Returns an error whose causes have these messages, the outermost first.
    fn chain(texts: &[&str]) -> anyhow::Error {
        let mut causes = texts.iter().rev().map(ToString::to_string);
        let root = anyhow!(causes.next().expect("a text"));
        causes.fold(root, anyhow::Error::context)
    }

    fn check(texts: &[&str], expected: &str) {
        assert_eq!(message(&chain(texts)), expected, "{texts:?}");
    }

    #[test]
    fn causes_that_add_nothing_are_left_out() {
        check(&["cannot read x"], "cannot read x");
        check(&["cannot read x", "no such file"], "cannot read x: no such file");
        check(&["cannot read x: no such file", "no such file"], "cannot read x: no such file");
        check(&["cannot read x", "cannot read x", "no such file"], "cannot read x: no such file");
        check(&["transport error", "a transport error: refused"], "a transport error: refused");
        check(&["a", "", "  ", "b"], "a: b");
    }

    #[test]
    fn a_cause_goes_on_where_the_text_before_it_was_cut_off() {
        check(
            &["listing t: the store answered with an err", "the store answered with an error in §7: try later"],
            "listing t: the store answered with an error in §7: try later",
        );
        check(&["it ends in a", "a cause"], "it ends in a: a cause");
    }

    #[test]
    fn locations_in_source_code_are_left_out() {
        let place = "/home/somebody/.cargo/registry/src/index.crates.io-0123456789abcdef/lance-14.0.2/src/index/vector/utils.rs";
        check(
            &["indexing column id: not a vector, but Int64", &format!("not a vector, but Int64, {place}:287:18")],
            "indexing column id: not a vector, but Int64",
        );
        check(&[&format!("one, {place}:1:2: two, src/a.rs:34:56")], "one: two");
        check(&[&format!("one, {place}:12")], &format!("one, {place}:12"));
        check(&["one, see the file a.rs:1:2"], "one, see the file a.rs:1:2");
        check(&["a.rs:1:2"], "a.rs:1:2");
    }

    #[test]
    fn queries_of_urls_are_left_out() {
        check(&["GET http://h:1/b?delimiter=%2F&prefix=l%2F in 4 ms"], "GET http://h:1/b in 4 ms");
        check(&["see (https://h/b?signature=s,e&t=1), or not"], "see (https://h/b), or not");
        check(&["is it? yes: https://h/b"], "is it? yes: https://h/b");
        check(
            &["listing: error performing GET http://h/b", "error performing GET http://h/b?sig=1: reset"],
            "listing: error performing GET http://h/b: reset",
        );
    }

    #[test]
    fn messages_have_one_line_and_a_limit() {
        check(&["first\nsecond", "\n\nthird\nfourth"], "first: third");
        let long = message(&chain(&["ü".repeat(2 * MESSAGE_CHARS_MAX).as_str(), "more"]));
        assert_eq!((long.chars().count(), long.ends_with("ü…")), (MESSAGE_CHARS_MAX, true));
    }

    #[test]
    fn what_the_store_of_lance_says_is_said_once() {
        let said = "Generic S3 error: Error performing GET http://127.0.0.1:1/b";
        let raw =
            format!("LanceError(IO): {said}?list-type=2&prefix=l%2F in 4.6ms - HTTP error: error sending request");
        let lake = format!("listing the tables of s3://b/l: {said} in 4.6ms - HTTP error: error sending request");
        let location = "/home/somebody/.cargo/registry/src/x/lance-io-14.0.2/src/object_store.rs:1547:22";
        check(
            &[&lake, &format!("{raw}, {location}"), "error sending request", "client error (Connect)", "tcp: refused"],
            &format!("{lake}: client error (Connect): tcp: refused"),
        );
    }
}
