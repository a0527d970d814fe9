//! Divides a text into statements.

use sqlparser::tokenizer::{Token, TokenizerError};

use crate::spans::spans;

/// A text, divided at the semicolons that end statements.
#[derive(Debug, PartialEq, Eq)]
pub struct Statements<'a> {
    /// The statements that end with a semicolon, without it. A statement of white space and comments alone is left out.
    pub complete: Vec<&'a str>,
    /// The text after the last of these semicolons.
    pub rest: &'a str,
    /// What the rest is.
    pub ending: Ending,
}

/// What a text is that no semicolon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// White space and comments.
    Blank,
    /// The beginning of a statement. It may end inside a string, a quoted name or a comment.
    Unfinished,
    /// A text that is no beginning of a statement, whatever follows.
    Malformed,
}

/// Divides a text into statements. A semicolon in a string, a quoted name, a dollar-quoted string or a comment ends none.
///
/// ```
/// use stoker_dialect::{Ending, statements};
/// let divided = statements("SELECT ';'; SELECT 2");
/// assert_eq!((divided.complete, divided.rest), (vec!["SELECT ';'"], " SELECT 2"));
/// assert_eq!(divided.ending, Ending::Unfinished);
/// ```
pub fn statements(text: &str) -> Statements<'_> {
    let found = spans(text);
    let (mut complete, mut start, mut is_blank) = (Vec::new(), 0, true);
    for (token, range) in found.tokens {
        match token {
            Token::SemiColon => {
                if !is_blank {
                    complete.push(&text[start..range.start]);
                }
                (start, is_blank) = (range.end, true);
            }
            Token::Whitespace(_) => {}
            _ => is_blank = false,
        }
    }
    let ending = match found.error {
        Some(error) if !is_open(&error) => Ending::Malformed,
        None if is_blank => Ending::Blank,
        _ => Ending::Unfinished,
    };
    Statements { complete, rest: &text[start..], ending }
}

/// Whether the tokenizer missed the end of a string, a quoted name or a comment, which more text may bring. The tokenizer
/// says so only in the text of its error.
fn is_open(error: &TokenizerError) -> bool {
    error.message.contains("Unterminated") || error.message.contains("EOF")
}

#[cfg(test)]
mod tests {
    use super::{Ending, statements};

    fn check(text: &str, complete: &[&str], rest: &str, ending: Ending) {
        let divided = statements(text);
        assert_eq!(divided.complete, complete, "{text:?}");
        assert_eq!((divided.rest, divided.ending), (rest, ending), "{text:?}");
    }

    #[test]
    fn semicolons_end_statements() {
        check("", &[], "", Ending::Blank);
        check("SELECT 1", &[], "SELECT 1", Ending::Unfinished);
        check("SELECT 1;", &["SELECT 1"], "", Ending::Blank);
        check("SELECT 1;\nSELECT 2;\n", &["SELECT 1", "\nSELECT 2"], "\n", Ending::Blank);
        check(";; ; -- none\n;/* none */; SELECT 'é' ; ö", &[" SELECT 'é' "], " ö", Ending::Unfinished);
        check("-- a\nSELECT 1 -- b\n; -- c", &["-- a\nSELECT 1 -- b\n"], " -- c", Ending::Blank);
    }

    #[test]
    fn other_semicolons_end_none() {
        for statement in [
            "SELECT 'a;b', 'it''s;'",
            "SELECT E'it\\'s;'",
            "SELECT \"a;\"\"b;\" FROM t",
            "SELECT 1 -- ;\n",
            "SELECT /* ; /* ; */ ; */ 1",
            "SELECT $$;'$$, $a$ $$;$$ $a$",
            "SELECT $1, ?, a$b",
        ] {
            check(&format!("{statement};x"), &[statement], "x", Ending::Unfinished);
        }
    }

    #[test]
    fn what_is_open_goes_on() {
        for open in [
            "SELECT 'a;",
            "SELECT E'a;",
            "SELECT \"a;",
            "SELECT /* a;",
            "SELECT /* /* a */ ;",
            "SELECT $$ ;",
            "SELECT $a$ ; $b$",
            "/* ;",
            "SELECT U&'a;",
        ] {
            check(&format!("SELECT 1;{open}"), &["SELECT 1"], open, Ending::Unfinished);
        }
    }

    #[test]
    fn what_can_never_be_a_statement_is_found() {
        check("SELECT 1;SELECT U&'\\zzzz'; SELECT 2", &["SELECT 1"], "SELECT U&'\\zzzz'; SELECT 2", Ending::Malformed);
    }
}
