//! The SQL dialect: sqlparser's generic one plus versioned tables and questions about the catalog.
//!
//! A table in `FROM` may have an `AT (…)` clause, which sqlparser parses for dialects with table versioning. In the
//! arguments of a table function a table is an expression; there `AT (` is an infix operator, which the engine resolves.

use std::any::TypeId;

use sqlparser::ast::{BinaryOperator, Expr, Statement};
use sqlparser::dialect::{Dialect, GenericDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::show;

/// The precedence of `AT`, which binds tighter than every other operator, so that `t AT (…)` is one argument.
pub(crate) const AT_PRECEDENCE: u8 = 120;

/// The precedence of distance operators. As all operators of PostgreSQL's extensions, they bind tighter than
/// comparisons and looser than sums.
const DISTANCE_PRECEDENCE: u8 = 22;

/// The name of the infix operator that holds an `AT` clause between parsing and resolving.
pub const AT_OPERATOR: &str = "AT";

/// The dialect of all queries.
#[derive(Debug, Default)]
pub struct LakeDialect;

impl Dialect for LakeDialect {
    fn dialect(&self) -> TypeId {
        GenericDialect.dialect()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_' || ch == '$'
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn parse_statement(&self, parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        show::parse(parser)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        if at_clause_follows(parser) {
            return Some(Ok(AT_PRECEDENCE));
        }
        is_distance(&parser.peek_token_ref().token).then_some(Ok(DISTANCE_PRECEDENCE))
    }

    fn parse_infix(&self, parser: &mut Parser, expr: &Expr, _precedence: u8) -> Option<Result<Expr, ParserError>> {
        at_clause_follows(parser).then(|| {
            let name = parser.parse_object_name(false)?;
            let clause = parser.parse_function(name)?;
            let op = BinaryOperator::Custom(AT_OPERATOR.to_string());
            Ok(Expr::BinaryOp { left: Box::new(expr.clone()), op, right: Box::new(clause) })
        })
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_left_associative_joins_without_parens(&self) -> bool {
        true
    }

    fn supports_parens_around_table_factor(&self) -> bool {
        true
    }

    fn supports_values_as_table_factor(&self) -> bool {
        true
    }

    fn supports_select_wildcard_except(&self) -> bool {
        true
    }

    fn supports_select_wildcard_exclude(&self) -> bool {
        true
    }

    fn supports_select_wildcard_replace(&self) -> bool {
        true
    }

    fn supports_select_wildcard_rename(&self) -> bool {
        true
    }

    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }

    fn supports_window_clause_named_window_reference(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_dictionary_syntax(&self) -> bool {
        true
    }

    fn support_map_literal_syntax(&self) -> bool {
        true
    }

    fn supports_struct_literal(&self) -> bool {
        true
    }

    fn supports_array_typedef_with_brackets(&self) -> bool {
        true
    }

    fn allow_extract_custom(&self) -> bool {
        true
    }

    fn allow_extract_single_quotes(&self) -> bool {
        true
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }

    fn supports_limit_comma(&self) -> bool {
        true
    }

    fn supports_projection_trailing_commas(&self) -> bool {
        true
    }

    fn supports_nested_comments(&self) -> bool {
        true
    }

    fn supports_string_escape_constant(&self) -> bool {
        true
    }

    fn supports_unicode_string_literal(&self) -> bool {
        true
    }
}

/// Tells whether the token is `<->`, `<=>` or `<#>`.
fn is_distance(token: &Token) -> bool {
    match token {
        Token::Spaceship => true,
        Token::CustomBinaryOperator(name) => name == "<->" || name == "<#>",
        _ => false,
    }
}

/// Tells whether the next tokens are `AT (`. `AT TIME ZONE` is another operator.
pub(crate) fn at_clause_follows(parser: &Parser) -> bool {
    let is_at = matches!(&parser.peek_nth_token_ref(0).token, Token::Word(word) if word.keyword == Keyword::AT);
    is_at && parser.peek_nth_token_ref(1).token == Token::LParen
}
