//! Cuts parts out of the text of a statement, as they were written.
//!
//! The parser says where a part begins and ends, and the text of the part is given to the engine. The text that
//! sqlparser makes of a syntax tree is not used, because it does not parse again for all of the dialect, such as
//! `t AT (…)`.

use std::ops::Range;

use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::dialect::LakeDialect;
use crate::{PARSER_DEPTH_MAX, Result, tokens};

/// The text of a statement, with its tokens.
pub(crate) struct SourceText<'a> {
    text: &'a str,
    tokens: Vec<TokenWithSpan>,
    /// The byte at which each token begins, ascending.
    starts: Vec<usize>,
}

impl<'a> SourceText<'a> {
    /// # Errors
    /// `Refused` for text that cannot be tokenized, and for placeholders of both kinds.
    pub fn try_new(text: &'a str) -> Result<Self> {
        let tokens = tokens::tokens(text)?;
        let starts = starts(text, &tokens);
        Ok(Self { text, tokens, starts })
    }

    /// Returns a parser of the tokens. Its index counts these tokens.
    pub fn parser(&self) -> Parser<'static> {
        let parser = Parser::new(&LakeDialect).with_recursion_limit(PARSER_DEPTH_MAX);
        parser.with_tokens_with_locations(self.tokens.clone())
    }

    /// Whether the text has a placeholder.
    pub fn has_placeholder(&self) -> bool {
        self.tokens.iter().any(|token| matches!(token.token, Token::Placeholder(_)))
    }

    /// Returns the text of some tokens, without white space and comments around it. Each `?` has become `$1`, `$2`, …
    /// by its place in the whole text.
    pub fn part(&self, tokens: Range<usize>) -> String {
        let is_blank =
            |index: usize| self.tokens.get(index).is_some_and(|token| matches!(token.token, Token::Whitespace(_)));
        let mut range = tokens.start..tokens.end.min(self.tokens.len());
        while range.start < range.end && is_blank(range.start) {
            range.start += 1;
        }
        while range.start < range.end && is_blank(range.end - 1) {
            range.end -= 1;
        }
        let mut part = String::new();
        let mut from = self.start(range.start);
        for index in range.clone() {
            if let Some(TokenWithSpan { token: Token::Placeholder(name), .. }) = self.tokens.get(index) {
                part.push_str(self.between(from..self.start(index)));
                part.push_str(name);
                from = self.start(index + 1);
            }
        }
        part.push_str(self.between(from..self.start(range.end)));
        part
    }

    /// Returns the bytes from the token that begins at `first` to the end of the token that begins at `last`.
    pub fn bytes(&self, first: Location, last: Location) -> Option<Range<usize>> {
        let index_of = |location: Location| self.tokens.binary_search_by_key(&location, |token| token.span.start).ok();
        Some(self.start(index_of(first)?)..self.start(index_of(last)? + 1))
    }

    /// The byte at which a token begins; the end of the text after the last one.
    fn start(&self, index: usize) -> usize {
        self.starts.get(index).copied().unwrap_or(self.text.len())
    }

    fn between(&self, bytes: Range<usize>) -> &'a str {
        self.text.get(bytes).unwrap_or_default()
    }
}

/// Finds the byte at which each token begins. Locations count lines and characters.
fn starts(text: &str, tokens: &[TokenWithSpan]) -> Vec<usize> {
    let mut chars = text.char_indices().peekable();
    let mut at = Location { line: 1, column: 1 };
    let mut starts = Vec::with_capacity(tokens.len());
    for token in tokens {
        while at < token.span.start {
            match chars.next() {
                Some((_, '\n')) => at = Location { line: at.line + 1, column: 1 },
                Some(_) => at.column += 1,
                None => break,
            }
        }
        starts.push(chars.peek().map_or(text.len(), |(byte, _)| *byte));
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::SourceText;

    #[test]
    fn parts_are_the_text_as_it_was_written() {
        let text = "UPDATE t\n  SET a = 'it''s' || ? -- ä\n , v = w <-> ? * 2 /* end */ ";
        let source = SourceText::try_new(text).expect("tokens");
        let all = source.part(0..usize::MAX);
        assert_eq!(all, "UPDATE t\n  SET a = 'it''s' || $1 -- ä\n , v = w <-> $2 * 2");
        let mut parser = source.parser();
        let mut parts = Vec::new();
        for skipped in [5, 2] {
            (0..skipped).for_each(|_| parser.advance_token());
            let start = parser.index();
            parser.parse_expr().expect("an expression");
            parts.push(source.part(start..parser.index()));
            parser.next_token();
        }
        assert_eq!(parts, ["'it''s' || $1", "w <-> $2 * 2"]);
    }
}
