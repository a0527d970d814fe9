//! The tokens of a text, with the bytes from which each was read.

use std::ops::Range;
use std::str::Chars;

use sqlparser::tokenizer::{Location, Token, Tokenizer, TokenizerError};

use crate::dialect::LakeDialect;

/// The tokens of a text, one after the other and without gaps. White space and comments are tokens too.
pub(crate) struct Spans {
    /// Each token, with its range of bytes.
    pub(crate) tokens: Vec<(Token, Range<usize>)>,
    /// Why the text after the last token has no token.
    pub(crate) error: Option<TokenizerError>,
}

/// Returns the tokens of a text; where it cannot be tokenized, those before that place.
pub(crate) fn spans(text: &str) -> Spans {
    let mut found = Vec::new();
    let error = Tokenizer::new(&LakeDialect, text).tokenize_with_location_into_buf(&mut found).err();
    let mut reached = Reached { letters: text.chars(), byte: 0, location: Location::new(1, 1) };
    let with_range = found.into_iter().map(|next| {
        let start = reached.advance(next.span.start);
        (next.token, start..reached.advance(next.span.end))
    });
    Spans { tokens: with_range.collect(), error }
}

/// How far a text was read.
struct Reached<'a> {
    letters: Chars<'a>,
    byte: usize,
    location: Location,
}

impl Reached<'_> {
    /// Moves to a location and returns its byte. The tokenizer counts lines by their line feeds, and columns in letters.
    fn advance(&mut self, to: Location) -> usize {
        while self.location < to {
            let Some(letter) = self.letters.next() else { break };
            self.byte += letter.len_utf8();
            self.location = match letter {
                '\n' => Location::new(self.location.line + 1, 1),
                _ => Location::new(self.location.line, self.location.column + 1),
            };
        }
        self.byte
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::tokenizer::Token;

    use super::spans;

    /// Checks that the tokens cover the text up to the error, and returns those that are neither white space nor comments.
    fn covered(text: &str) -> Vec<&str> {
        let found = spans(text);
        let mut end = 0;
        for (token, range) in &found.tokens {
            assert_eq!(range.start, end, "{text:?}: {token:?}");
            end = range.end;
        }
        assert_eq!(found.error.is_none(), end == text.len(), "{text:?}");
        let is_code = |(token, _): &&(Token, _)| !matches!(token, Token::Whitespace(_));
        found.tokens.iter().filter(is_code).map(|(_, range)| &text[range.clone()]).collect()
    }

    #[test]
    fn tokens_have_the_bytes_from_which_they_were_read() {
        assert_eq!(covered(""), [""; 0]);
        assert_eq!(covered("SELECT 'é;\n''ü' -- ö;\r\n, \"ä;\"; x"), ["SELECT", "'é;\n''ü'", ",", "\"ä;\"", ";", "x"]);
        assert_eq!(covered("/* a /* ; */ \n*/ $1 $ö$;\n$ö$ ?"), ["$1", "$ö$;\n$ö$", "?"]);
        assert_eq!(covered("E'\\';' b 'open"), ["E'\\';'", "b"]);
    }
}
