//! Bounds on a query, checked before it is planned.
//!
//! Without them a 4 KB query of chained operators overflows the planner's stack, and one call of `repeat` takes any amount
//! of memory past the pool. Clauses that DataFusion's planner drops silently are refused here too.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Select, SetExpr, Statement, Value, Visit,
    Visitor,
};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::dialect::LakeDialect;
use crate::{EngineOptions, Error, Result, tokens};

/// How deep expressions and subqueries may nest. A chain of n operators nests n levels.
const DEPTH_MAX: usize = 400;
/// sqlparser's own limit on nesting while it parses.
const PARSER_DEPTH_MAX: usize = 300;
/// The longest text that `lpad` and `rpad` may make, in characters.
const PAD_LENGTH_MAX: u64 = 65_536;

/// Functions whose result can be any multiple of their input, with what to use instead.
const REFUSED_FUNCTIONS: [(&str, &str); 8] = [
    ("repeat", "its result has no bound"),
    ("array_repeat", "its result has no bound"),
    ("list_repeat", "its result has no bound"),
    ("array_resize", "its result has no bound"),
    ("list_resize", "its result has no bound"),
    ("generate_series", "its result has no bound; join a table instead"),
    ("gen_series", "its result has no bound; join a table instead"),
    ("range", "its result has no bound; join a table instead"),
];

/// A parsed query, and whether it is to be explained instead of run.
pub(crate) struct Parsed {
    pub(crate) query: Box<Query>,
    pub(crate) explain: Option<Explain>,
}

/// `EXPLAIN [ANALYZE] [VERBOSE]` before a query.
pub(crate) struct Explain {
    pub(crate) analyze: bool,
    pub(crate) verbose: bool,
}

/// Parses one `SELECT` or `WITH` query, optionally below `EXPLAIN`, within the engine's bounds.
pub(crate) fn parse(sql: &str, options: &EngineOptions) -> Result<Parsed> {
    if sql.len() > options.max_sql_bytes {
        return Err(Error::TooLarge { what: "bytes", actual: sql.len(), limit: options.max_sql_bytes });
    }
    let mut parser = Parser::new(&LakeDialect)
        .with_recursion_limit(PARSER_DEPTH_MAX)
        .with_tokens_with_locations(tokens::tokens(sql)?);
    let mut statements = parser.parse_statements().map_err(parse_error)?;
    if statements.len() > 1 {
        return Err(Error::refused("several statements", "send one SELECT at a time"));
    }
    let Some(statement) = statements.pop() else {
        return Err(Error::refused("an empty query", "write a SELECT"));
    };
    let parsed = only_query(statement)?;
    let mut guard = Guard { num_nodes: 0, depth: 0, options };
    match parsed.query.visit(&mut guard) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(parsed),
    }
}

fn parse_error(error: ParserError) -> Error {
    match error {
        ParserError::RecursionLimitExceeded => {
            Error::TooLarge { what: "levels of nesting or more", actual: PARSER_DEPTH_MAX, limit: PARSER_DEPTH_MAX }
        }
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => {
            Error::refused("cannot parse the query", text)
        }
    }
}

fn only_query(statement: Statement) -> Result<Parsed> {
    match statement {
        Statement::Query(query) => Ok(Parsed { query, explain: None }),
        Statement::Explain {
            analyze,
            verbose,
            statement,
            query_plan: false,
            estimate: false,
            format: None,
            options: None,
            ..
        } => match *statement {
            Statement::Query(query) => Ok(Parsed { query, explain: Some(Explain { analyze, verbose }) }),
            other => Err(refuse_statement(&other)),
        },
        other => Err(refuse_statement(&other)),
    }
}

fn refuse_statement(statement: &Statement) -> Error {
    let text = statement.to_string();
    let verb: String = text.split_whitespace().take(2).collect::<Vec<_>>().join(" ").chars().take(40).collect();
    Error::refused(
        format!("statement {verb:?} is not allowed"),
        "only SELECT and WITH … SELECT are; tables are written with ingest and the table API",
    )
}

struct Guard<'a> {
    num_nodes: usize,
    depth: usize,
    options: &'a EngineOptions,
}

type Flow = ControlFlow<Box<Error>>;

fn refuse(what: impl Into<String>, reason: impl Into<String>) -> Flow {
    ControlFlow::Break(Box::new(Error::refused(what, reason)))
}

impl Guard<'_> {
    fn enter(&mut self) -> Flow {
        self.num_nodes += 1;
        self.depth += 1;
        let limit = self.options.max_sql_nodes;
        if self.num_nodes > limit {
            let actual = self.num_nodes;
            return ControlFlow::Break(Box::new(Error::TooLarge { what: "expression nodes or more", actual, limit }));
        }
        if self.depth > DEPTH_MAX {
            let error = Error::TooLarge { what: "levels of nesting or more", actual: self.depth, limit: DEPTH_MAX };
            return ControlFlow::Break(Box::new(error));
        }
        ControlFlow::Continue(())
    }

    fn leave(&mut self) -> Flow {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

impl Visitor for Guard<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        self.enter()?;
        if query.with.as_ref().is_some_and(|with| with.recursive) {
            return refuse("WITH RECURSIVE", "recursion has no bound here");
        }
        if !query.locks.is_empty() || query.for_clause.is_some() {
            return refuse("FOR clause", "snapshots are immutable, nothing is locked");
        }
        if query.settings.is_some() || query.format_clause.is_some() {
            return refuse("SETTINGS and FORMAT", "they are not supported in a query");
        }
        match query.body.as_ref() {
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                refuse("a statement that writes", "only SELECT is allowed")
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_query(&mut self, _query: &Query) -> Flow {
        self.leave()
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        let dropped = [
            ("INTO", select.into.is_some()),
            ("PREWHERE", select.prewhere.is_some()),
            ("CONNECT BY", !select.connect_by.is_empty()),
            ("DISTRIBUTE BY", !select.distribute_by.is_empty()),
            ("AS STRUCT or AS VALUE", select.value_table_mode.is_some()),
            ("EXCLUDE after the select list", select.exclude.is_some()),
            ("a select modifier", select.select_modifiers.is_some()),
            ("an optimizer hint", !select.optimizer_hints.is_empty()),
        ];
        match dropped.into_iter().find(|(_, present)| *present) {
            Some((clause, _)) => refuse(clause, "this clause of SELECT is not supported"),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        self.enter()?;
        match expr {
            Expr::Function(function) => check_function(function),
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, _expr: &Expr) -> Flow {
        self.leave()
    }
}

fn check_function(function: &Function) -> Flow {
    let name = function.name.to_string().to_ascii_lowercase();
    let name = name.trim_matches('"');
    if let Some((_, reason)) = REFUSED_FUNCTIONS.iter().find(|(refused, _)| *refused == name) {
        return refuse(format!("function {name} is not allowed"), *reason);
    }
    if matches!(name, "lpad" | "rpad") && pad_length(function).is_none_or(|length| length > PAD_LENGTH_MAX) {
        return refuse(
            format!("function {name}"),
            format!("its second argument must be a number up to {PAD_LENGTH_MAX}, written as a literal"),
        );
    }
    ControlFlow::Continue(())
}

fn pad_length(function: &Function) -> Option<u64> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) = list.args.get(1)? else { return None };
    match &value.value {
        Value::Number(digits, _) => digits.parse().ok(),
        _ => None,
    }
}
