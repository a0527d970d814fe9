//! Checks the bounds of a query before it is planned.
//!
//! Without these bounds a 4 KB query of chained operators overflows the planner's stack, and one call of `repeat` takes
//! any amount of memory outside the memory pool. Clauses that DataFusion's planner drops silently are refused here too.

mod expansion;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Query, Select, SetExpr, Statement,
    UtilityOption, Value, Visit, Visitor,
};
use datafusion::sql::sqlparser::parser::ParserError;
use stoker_dialect::{PARSER_DEPTH_MAX, is_change};
use stoker_functions::refused;

use crate::{EngineOptions, Error, Result};
use expansion::Expansion;

/// The most levels of nested expressions and subqueries. A chain of n operators nests n levels.
const DEPTH_MAX: usize = 400;
/// The longest text that `lpad` and `rpad` may create, in characters.
const PAD_LENGTH_MAX: u64 = 65_536;

/// The most levels of nested subqueries in expressions. The planner's work doubles with each level.
const EXPR_SUBQUERY_DEPTH_MAX: usize = 12;
/// The most `UNION`, `INTERSECT` and `EXCEPT` operations of a query. Each adds a level to the plan.
const SET_OPERATIONS_MAX: usize = 256;
/// The most centroids of approximate percentiles, which are all allocated at the start.
const CENTROIDS_MAX: u64 = 65_536;

/// A parsed query, and the `EXPLAIN` that it stands below, if any.
pub(crate) struct Parsed {
    pub(crate) query: Box<Query>,
    pub(crate) explain: Option<Explain>,
}

/// `EXPLAIN [ANALYZE] [VERBOSE] [FORMAT …]` before a query.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Explain {
    pub(crate) analyze: bool,
    pub(crate) verbose: bool,
    pub(crate) format: PlanFormat,
}

/// The form in which a plan is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PlanFormat {
    /// Indented lines.
    #[default]
    Text,
    /// Indented lines with branches, of the physical plan only.
    Tree,
    /// One JSON value, of the physical plan only.
    Json,
}

/// Parses one `SELECT` or `WITH` query, optionally below `EXPLAIN`, within the engine's bounds.
pub(crate) fn parse(sql: &str, options: &EngineOptions) -> Result<Parsed> {
    if sql.len() > options.max_sql_bytes {
        return Err(Error::TooLarge { what: "bytes", actual: sql.len(), limit: options.max_sql_bytes });
    }
    if is_change(sql) {
        return Err(Error::refused(
            "a statement that changes the lake is not allowed in a query",
            "execute it with lake.execute(…) in Python, Connection::execute in Rust, or `stoker sql`",
        ));
    }
    let mut statements = stoker_dialect::parser(sql)?.parse_statements().map_err(parse_error)?;
    if statements.len() > 1 {
        return Err(Error::refused("several statements", "send one SELECT at a time"));
    }
    let Some(statement) = statements.pop() else {
        return Err(Error::refused("an empty query", "write a SELECT"));
    };
    let parsed = only_query(statement)?;
    let mut guard = Guard {
        num_nodes: 0,
        depth: 0,
        expr_subquery_depth: 0,
        num_set_operations: 0,
        expansion: Expansion::default(),
        options,
    };
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
            options,
            ..
        } => {
            let mut explain = Explain { analyze, verbose, ..Explain::default() };
            options.iter().flatten().try_for_each(|option| explain.add(option))?;
            if explain.verbose && explain.format != PlanFormat::Text {
                return Err(Error::refused("EXPLAIN VERBOSE", "it shows text only; leave out VERBOSE or FORMAT"));
            }
            match *statement {
                Statement::Query(query) => Ok(Parsed { query, explain: Some(explain) }),
                other => Err(refuse_statement(&other)),
            }
        }
        other => Err(refuse_statement(&other)),
    }
}

impl PlanFormat {
    fn parse(name: &str) -> Result<Self> {
        match name.to_ascii_lowercase().as_str() {
            "text" => Ok(PlanFormat::Text),
            "tree" => Ok(PlanFormat::Tree),
            "json" => Ok(PlanFormat::Json),
            other => Err(Error::refused(format!("EXPLAIN FORMAT {other}"), "the formats are: text, tree, json")),
        }
    }
}

impl Explain {
    /// Adds an option of `EXPLAIN (…)`, as PostgreSQL writes them.
    fn add(&mut self, option: &UtilityOption) -> Result<()> {
        let name = option.name.value.to_ascii_lowercase();
        let value = option.arg.as_ref().map(|arg| arg.to_string().trim_matches('\'').to_ascii_lowercase());
        let refuse = |reason| Err(Error::refused(format!("EXPLAIN ({option})"), reason));
        let switch = match value.as_deref() {
            None | Some("true" | "on" | "1") => Some(true),
            Some("false" | "off" | "0") => Some(false),
            Some(_) => None,
        };
        match (name.as_str(), switch, value.as_deref()) {
            ("analyze", Some(on), _) => self.analyze = on,
            ("verbose", Some(on), _) => self.verbose = on,
            ("analyze" | "verbose", None, _) => return refuse("write true or false"),
            ("format", _, Some(format)) => self.format = PlanFormat::parse(format)?,
            _ => return refuse("the options are: ANALYZE, VERBOSE, FORMAT text | tree | json"),
        }
        Ok(())
    }
}

fn refuse_statement(statement: &Statement) -> Error {
    let text = statement.to_string();
    let verb: String = text.split_whitespace().take(2).collect::<Vec<_>>().join(" ").chars().take(40).collect();
    Error::refused(
        format!("statement {verb:?} is not allowed"),
        "only SELECT, WITH … SELECT, SHOW, DESCRIBE and EXPLAIN are; statements that change the lake are executed with \
         lake.execute(…) in Python, or `stoker sql`",
    )
}

struct Guard<'a> {
    num_nodes: usize,
    depth: usize,
    expr_subquery_depth: usize,
    num_set_operations: usize,
    expansion: Expansion,
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
        let expanded = self.expansion.count();
        self.check_expanded(expanded)?;
        if self.depth > DEPTH_MAX {
            let error = Error::TooLarge { what: "levels of nesting or more", actual: self.depth, limit: DEPTH_MAX };
            return ControlFlow::Break(Box::new(error));
        }
        ControlFlow::Continue(())
    }

    fn check_expanded(&self, num_nodes: usize) -> Flow {
        self.at_most("plan nodes or more once expanded", num_nodes, self.options.query.plan_nodes)
    }

    fn leave(&mut self) -> Flow {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn count_set_operations(&mut self, body: &SetExpr) -> Flow {
        let mut sides = vec![body];
        while let Some(side) = sides.pop() {
            if let SetExpr::SetOperation { left, right, .. } = side {
                self.num_set_operations += 1;
                sides.extend([left.as_ref(), right.as_ref()]);
            }
        }
        self.at_most("set operations", self.num_set_operations, SET_OPERATIONS_MAX)
    }

    fn at_most(&self, what: &'static str, actual: usize, limit: usize) -> Flow {
        match actual > limit {
            true => ControlFlow::Break(Box::new(Error::TooLarge { what, actual, limit })),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Visitor for Guard<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        self.expansion.enter(query);
        self.enter()?;
        if query.with.as_ref().is_some_and(|with| with.recursive) {
            return refuse("WITH RECURSIVE", "recursion can take any number of steps");
        }
        if !query.locks.is_empty() || query.for_clause.is_some() {
            return refuse("FOR clause", "snapshots are immutable, nothing is locked");
        }
        if query.settings.is_some() || query.format_clause.is_some() {
            return refuse("SETTINGS and FORMAT", "they are not supported in a query");
        }
        self.count_set_operations(&query.body)?;
        match query.body.as_ref() {
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                refuse("a statement that writes", "only SELECT is allowed")
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_query(&mut self, _query: &Query) -> Flow {
        self.expansion.leave();
        self.leave()
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> Flow {
        let name = relation.0.last().and_then(|part| part.as_ident()).map_or("", |name| name.value.as_str());
        let expanded = self.expansion.count_relation(name);
        self.check_expanded(expanded)
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
            expr if holds_subquery(expr) => {
                self.expr_subquery_depth += 1;
                self.at_most("nested subqueries", self.expr_subquery_depth, EXPR_SUBQUERY_DEPTH_MAX)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> Flow {
        self.expr_subquery_depth -= usize::from(holds_subquery(expr));
        self.leave()
    }
}

fn holds_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

fn check_function(function: &Function) -> Flow {
    let name = function.name.to_string().to_ascii_lowercase();
    let name = name.trim_matches('"');
    if let Some(reason) = refused(name) {
        return refuse(format!("function {name} is not allowed"), reason);
    }
    if matches!(name, "string_agg" | "array_agg") && function.over.is_some() {
        let reason = "each row would hold the values of all rows of its frame; use it with GROUP BY";
        return refuse(format!("function {name} as a window function"), reason);
    }
    if matches!(name, "lpad" | "rpad") && argument(function, 1).is_none_or(|length| length > PAD_LENGTH_MAX) {
        return refuse(
            format!("function {name}"),
            format!("its second argument must be a number up to {PAD_LENGTH_MAX}, written as a literal"),
        );
    }
    let centroids = match name {
        "approx_percentile_cont" => 2,
        "approx_percentile_cont_with_weight" => 3,
        _ => return ControlFlow::Continue(()),
    };
    let centroids = centroids - usize::from(!function.within_group.is_empty());
    if expression(function, centroids).is_some()
        && argument(function, centroids).is_none_or(|count| count > CENTROIDS_MAX)
    {
        let reason = format!("the number of its centroids must be up to {CENTROIDS_MAX}, written as a literal");
        return refuse(format!("function {name}"), reason);
    }
    ControlFlow::Continue(())
}

/// Returns an unnamed argument of a call.
fn expression(function: &Function, index: usize) -> Option<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.get(index)? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// Returns an argument that is a whole number, written as a literal.
fn argument(function: &Function, index: usize) -> Option<u64> {
    match expression(function, index)? {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}
