//! The SQL dialect of Stoker: the text of queries, before a planner sees it.
//!
//! It is a crate of its own so that clients can compare queries without a query engine.

mod dialect;
mod error;
mod same_query;
mod tokens;

use sqlparser::parser::Parser;

pub use dialect::{AT_OPERATOR, LakeDialect};
pub use error::{Error, Result};
pub use same_query::is_same_query;

/// The most bytes of a query, where the engine is not configured otherwise.
pub const SQL_BYTES_MAX: usize = 65_536;

/// The most levels of nesting while sqlparser parses a query.
pub const PARSER_DEPTH_MAX: usize = 300;

/// Returns a parser of a query.
///
/// # Errors
/// [`Error::Refused`] for text that cannot be tokenized, and for a query with placeholders of both kinds.
pub fn parser(sql: &str) -> Result<Parser<'static>> {
    let parser = Parser::new(&LakeDialect).with_recursion_limit(PARSER_DEPTH_MAX);
    Ok(parser.with_tokens_with_locations(tokens::tokens(sql)?))
}
