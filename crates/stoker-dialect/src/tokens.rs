//! Reads the tokens of a query, and adds what sqlparser's generic dialect lacks.
//!
//! `?` becomes `$1`, `$2`, … from left to right. `<->` and `<#>` become operators: sqlparser's tokenizer reads them as
//! `<` before `->` and `#>`, with which no expression can begin.

use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::LakeDialect;
use crate::{Error, Result};

/// The second tokens of the distance operators that sqlparser reads as two tokens.
const SPLIT_OPERATORS: [(Token, &str); 2] = [(Token::Arrow, "<->"), (Token::HashArrow, "<#>")];

/// Returns the tokens of a query.
///
/// # Errors
/// `InvalidRequest` for text that cannot be tokenized, and for a query with placeholders of both kinds.
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

/// Returns the operator that a token makes with a `<` right before it.
fn operator(token: &Token) -> Option<&'static str> {
    SPLIT_OPERATORS.iter().find(|(second, _)| second == token).map(|(_, name)| *name)
}

/// The placeholders of a query that were read so far.
#[derive(Default)]
struct Placeholders {
    num_questions: usize,
    numbered: Option<String>,
}

impl Placeholders {
    /// Gives a `?` its number, and refuses placeholders of both kinds in one query.
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
