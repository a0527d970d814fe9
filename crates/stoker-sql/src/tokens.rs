//! The tokens of a query, with what sqlparser's generic dialect lacks.
//!
//! `?` becomes `$1`, `$2`, … from left to right. `<->` and `<#>` become operators: the tokenizer takes them for `<` before `->` and
//! `#>`, which no expression can begin with.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::LakeDialect;
use crate::{Error, Result};

/// The distance operators that are two tokens of sqlparser.
const SPLIT_OPERATORS: [(Token, &str); 2] = [(Token::Arrow, "<->"), (Token::HashArrow, "<#>")];

/// The tokens of a query.
///
/// # Errors
/// `InvalidRequest` for text that has no tokens, and for placeholders of both kinds.
pub(crate) fn tokens(sql: &str) -> Result<Vec<TokenWithSpan>> {
    let found = Tokenizer::new(&LakeDialect, sql).tokenize_with_location();
    let found = found.map_err(|source| Error::refused("cannot parse the query", source.to_string()))?;
    let mut tokens: Vec<TokenWithSpan> = Vec::with_capacity(found.len());
    let mut placeholders = Placeholders::default();
    for mut next in found {
        if let Token::Placeholder(name) = &mut next.token {
            placeholders.number(name)?;
        }
        match (tokens.last_mut(), operator(&next.token)) {
            (Some(last), Some(name)) if last.token == Token::Lt => {
                last.token = Token::CustomBinaryOperator(name.to_string());
            }
            _ => tokens.push(next),
        }
    }
    Ok(tokens)
}

/// The operator that a token makes with a `<` right before it.
fn operator(token: &Token) -> Option<&'static str> {
    SPLIT_OPERATORS.iter().find(|(second, _)| second == token).map(|(_, name)| *name)
}

/// Which placeholders a query has had so far.
#[derive(Default)]
struct Placeholders {
    num_questions: usize,
    numbered: Option<String>,
}

impl Placeholders {
    /// Gives a `?` its number.
    fn number(&mut self, name: &mut String) -> Result<()> {
        match name.strip_prefix('?') {
            None => self.numbered = Some(name.clone()),
            Some("") => {
                self.num_questions += 1;
                *name = format!("${}", self.num_questions);
            }
            Some(digits) => {
                return Err(Error::refused(format!("placeholder ?{digits}"), format!("write ${digits}, or ? alone")));
            }
        }
        match &self.numbered {
            Some(numbered) if self.num_questions > 0 => Err(Error::refused(
                format!("placeholders ? and {numbered} in one query"),
                "number all parameters ($1, $2, …) or none (?, ?, …)",
            )),
            _ => Ok(()),
        }
    }
}
