//! Names of tables in statements, with the branch or the version that `AT (…)` after them names.

use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::QualifiedName;
use crate::change::{expect_word, identifier};
use crate::dialect::at_clause_follows;
use crate::show::word;
use crate::writes::NamedVersion;

const FORMS: &str = "a version has a number, a tag or a branch: write AT (VERSION => 3), AT (TAG => 'v1') or \
                     AT (BRANCH => 'dev')";

/// Parses the name of an object whose newest version a statement changes. Returns it, and if `AT (…)` names a branch, the
/// name without that. `what` describes the name for errors.
pub(crate) fn newest(parser: &mut Parser, what: &str) -> Result<(QualifiedName, Option<String>), ParserError> {
    let parts = parts(parser, what)?;
    if !at_clause_follows(parser) {
        return Ok((QualifiedName(parts), None));
    }
    let (shown, plain) = (QualifiedName(parts.clone()), parts.last().cloned());
    match at(parser, parts)? {
        (name, NamedVersion::Newest) => Ok((name, plain)),
        _ => Err(ParserError::ParserError(format!(
            "AT (…) after {shown}: versions and tags do not change, and writes go to the newest version; leave it out, or \
             name a branch: AT (BRANCH => 'dev')"
        ))),
    }
}

/// Parses a table and a version of it.
pub(crate) fn named_version(parser: &mut Parser, what: &str) -> Result<(QualifiedName, NamedVersion), ParserError> {
    let parts = parts(parser, what)?;
    match at_clause_follows(parser) {
        true => at(parser, parts),
        false => Ok((QualifiedName(parts), NamedVersion::Newest)),
    }
}

fn parts(parser: &mut Parser, what: &str) -> Result<Vec<String>, ParserError> {
    let mut parts = vec![identifier(parser, what)?];
    while parser.consume_token(&Token::Period) {
        parts.push(identifier(parser, what)?);
    }
    Ok(parts)
}

/// Parses `AT (VERSION => number)`, `AT (TAG => 'tag')`, or `AT (BRANCH => 'branch')` with or without a version of the branch.
/// A branch becomes part of the name of its table.
fn at(parser: &mut Parser, mut parts: Vec<String>) -> Result<(QualifiedName, NamedVersion), ParserError> {
    expect_word(parser, "AT")?;
    parser.expect_token(&Token::LParen)?;
    let (mut version, mut branch) = (NamedVersion::Newest, None);
    loop {
        let what = word(parser, 0).unwrap_or_default();
        parser.advance_token();
        parser.expect_token(&Token::RArrow).map_err(|_| ParserError::ParserError(FORMS.into()))?;
        match what.as_str() {
            "BRANCH" if branch.is_none() => branch = Some(parser.parse_literal_string()?),
            "VERSION" if version == NamedVersion::Newest => {
                version = NamedVersion::Number(parser.parse_literal_uint()?);
            }
            "TAG" if version == NamedVersion::Newest => version = NamedVersion::Tag(parser.parse_literal_string()?),
            _ => return Err(ParserError::ParserError(FORMS.into())),
        }
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    parser.expect_token(&Token::RParen)?;
    if let (Some(branch), Some(table)) = (branch, parts.last_mut()) {
        *table = on_branch(table, &branch);
    }
    Ok((QualifiedName(parts), version))
}

/// The name of a branch of a table, as `TableName` has it. One that is not valid is refused when it is read.
fn on_branch(table: &str, branch: &str) -> String {
    let root = table.split('@').next().unwrap_or_default();
    if branch == "main" { root.to_string() } else { format!("{root}@{branch}") }
}
