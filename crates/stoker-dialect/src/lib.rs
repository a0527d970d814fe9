//! The SQL dialect of Stoker: the text of queries, before a planner sees it.
//!
//! It is a crate of its own so that clients can compare queries without a query engine.

#![warn(clippy::disallowed_methods)]

mod change;
mod dialect;
mod error;
#[cfg(test)]
mod fuzz;
mod inquiry;
mod named;
mod named_version;
mod same_query;
mod show;
mod source_text;
mod spans;
mod statements;
mod tokens;
mod views;
mod writes;

use sqlparser::parser::Parser;

pub use change::{Change, CreateIndex, DropIndex, OptimizeIndex, OptimizeTable, OptionValue, QualifiedName, is_change};
pub use dialect::{AT_OPERATOR, LakeDialect};
pub use error::{Error, Result};
pub use inquiry::Inquiry;
pub use named::{NumberedQuery, numbered, placeholders};
pub use same_query::is_same_query;
pub use statements::{Ending, Statements, statements};
pub use views::{expand_view, relations};
pub use writes::{
    AddedColumn, Assignment, ColumnDefinition, Existing, InsertRows, MergeAction, MergeClause, NamedVersion, Retained,
    TableContent, Target, WriteAction, WriteStatement,
};

/// The most bytes of a query, where the engine is not configured otherwise.
pub const SQL_BYTES_MAX: usize = 65_536;

/// The most levels of nesting while sqlparser parses a query.
pub const PARSER_DEPTH_MAX: usize = 300;

/// Returns a parser of a query. [`PARSER_DEPTH_MAX`] does not bound chains of operators: the parsed tree of a chain has as
/// many levels as the chain, so a long text needs a large stack even to be dropped.
///
/// # Errors
/// [`Error::Refused`] for text that cannot be tokenized, and for a query with placeholders of both kinds.
pub fn parser(sql: &str) -> Result<Parser<'static>> {
    let parser = Parser::new(&LakeDialect).with_recursion_limit(PARSER_DEPTH_MAX);
    Ok(parser.with_tokens_with_locations(tokens::tokens(sql)?))
}

/// Measures the memory that the target of `fuzz.rs` holds.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
