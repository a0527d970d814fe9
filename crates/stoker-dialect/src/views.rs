//! Views: puts the queries of views into statements that name them.
//!
//! A view is a query under a name. A statement that names a view is planned with the query of the view in its place, in
//! parentheses, as `SELECT id FROM v` becomes `SELECT id FROM (SELECT …) AS "v"`. So a view can be used wherever a
//! subquery can, a stream that is pinned keeps the query itself, and a view that changes later changes no stream.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{ControlFlow, Range};

use sqlparser::ast::{Ident, ObjectName, Query, TableFactor, Visit, Visitor};

use crate::change::cannot_parse;
use crate::source_text::SourceText;
use crate::{Error, Result, SQL_BYTES_MAX};

/// The most bytes of a statement with the queries of views in it. Views that read each other twice double the text with
/// each level, so the limit ends the growth before the text takes memory and time. It leaves room for the texts that a
/// statement is made of, such as the expressions of an `UPDATE`; queries have the limit of the engine besides.
const EXPANDED_BYTES_MAX: usize = 4 * SQL_BYTES_MAX;

/// The catalog and the schema that names of tables and views may begin with.
const CATALOG: &str = "lake";
const SCHEMA: &str = "public";

/// Returns the names of the tables and views that a statement reads, without its `WITH` queries and without the
/// arguments of table functions. It must be called on a large stack.
///
/// # Errors
/// [`Error::Refused`] for text that cannot be parsed.
pub fn relations(sql: &str) -> Result<BTreeSet<String>> {
    Ok(Relations::of(&SourceText::try_new(sql)?)?.into_iter().map(|relation| relation.name).collect())
}

/// Puts the query of a view in place of its name, wherever a statement reads from it. It must be called on a large
/// stack.
///
/// # Errors
/// [`Error::Refused`] for text that cannot be parsed, for `AT` after the view, for a `WITH` query of the statement that
/// has the name of a relation which the view reads, and for a result of more than 262,144 bytes.
pub fn expand_view(sql: &str, view: &str, query: &str) -> Result<String> {
    let source = SourceText::try_new(sql)?;
    let (inner, reads) = (SourceText::try_new(query)?, relations(query)?);
    if inner.has_placeholder() {
        return Err(Error::refused(format!("view {view}"), "its query has a parameter, which has no value in a view"));
    }
    let (text, alias) = (inner.part(0..usize::MAX), Ident::with_quote('"', view).to_string());
    let mut expanded = String::with_capacity(sql.len().saturating_add(query.len()).min(EXPANDED_BYTES_MAX));
    let mut from = 0;
    for relation in Relations::of(&source)?.into_iter().filter(|relation| relation.name == view) {
        if relation.has_version {
            return Err(Error::refused(
                format!("{view} AT (…)"),
                "it is a view; name the versions of tables in the query of the view",
            ));
        }
        if let Some(name) = relation.withs.iter().find(|name| reads.contains(*name)) {
            return Err(Error::refused(
                format!("WITH name {name}"),
                format!("view {view} reads the table or view of this name; give the WITH query another name"),
            ));
        }
        let before = sql.get(from..relation.bytes.start).unwrap_or_default();
        let query = match relation.has_alias {
            true => format!("({text})"),
            false => format!("({text}) AS {alias}"),
        };
        push(&mut expanded, before, view)?;
        push(&mut expanded, &query, view)?;
        from = relation.bytes.end;
    }
    push(&mut expanded, sql.get(from..).unwrap_or_default(), view)?;
    Ok(expanded)
}

/// Adds a part to the text of a statement with the query of a view in it.
fn push(expanded: &mut String, part: &str, view: &str) -> Result<()> {
    if expanded.len().saturating_add(part.len()) > EXPANDED_BYTES_MAX {
        return Err(Error::refused(
            format!("view {view}: with its query, the statement has more than {EXPANDED_BYTES_MAX} bytes"),
            "read fewer views, or copy one with CREATE TABLE … AS SELECT …",
        ));
    }
    expanded.push_str(part);
    Ok(())
}

/// A name that stands for a table or a view in a statement.
struct Relation {
    /// The name, without catalog and schema.
    name: String,
    /// Where it stands in the text.
    bytes: Range<usize>,
    has_alias: bool,
    has_version: bool,
    /// The names of the `WITH` queries that are known there.
    withs: Vec<String>,
}

/// Collects the relations of a statement, in the order of the text.
struct Relations<'a> {
    source: &'a SourceText<'a>,
    /// The enclosing queries, outermost first.
    scopes: Vec<Scope>,
    found: Vec<Relation>,
}

/// The `WITH` queries of one query.
struct Scope {
    /// The names of those that are not visited yet. They are the first queries that are visited inside, in this order.
    unknown: VecDeque<String>,
    /// The names of those that were visited, which the rest of the query may use.
    known: Vec<String>,
}

impl<'a> Relations<'a> {
    fn of(source: &'a SourceText<'a>) -> Result<Vec<Relation>> {
        let statements = source.parser().parse_statements().map_err(cannot_parse)?;
        let mut relations = Self { source, scopes: Vec::new(), found: Vec::new() };
        for statement in &statements {
            if let ControlFlow::Break(error) = statement.visit(&mut relations) {
                return Err(*error);
            }
        }
        relations.found.sort_by_key(|relation| relation.bytes.start);
        Ok(relations.found)
    }

    fn add(&mut self, name: &ObjectName, has_alias: bool, has_version: bool) -> Result<()> {
        let Some(short) = in_schema(name) else { return Ok(()) };
        let withs: Vec<String> = self.scopes.iter().flat_map(|scope| scope.known.iter().cloned()).collect();
        if withs.contains(&short) {
            return Ok(());
        }
        let span = |ident: Option<&Ident>| ident.map(|ident| ident.span.start);
        let first = span(name.0.first().and_then(|part| part.as_ident()));
        let last = span(name.0.last().and_then(|part| part.as_ident()));
        let bytes = first.zip(last).and_then(|(first, last)| self.source.bytes(first, last));
        let Some(bytes) = bytes else {
            return Err(Error::refused(format!("table {name}"), "its place in the statement is not known"));
        };
        self.found.push(Relation { name: short, bytes, has_alias, has_version, withs });
        Ok(())
    }
}

/// Returns the name of an identifier. Unquoted names are converted to lower case.
fn normalize(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// Returns the last part of the name of a table or a view; `None` for names in other schemas.
fn in_schema(name: &ObjectName) -> Option<String> {
    let parts: Vec<String> = name.0.iter().map(|part| part.as_ident().map(normalize)).collect::<Option<_>>()?;
    match parts.as_slice() {
        [name] => Some(name.clone()),
        [schema, name] if schema == SCHEMA => Some(name.clone()),
        [catalog, schema, name] if catalog == CATALOG && schema == SCHEMA => Some(name.clone()),
        _ => None,
    }
}

impl Visitor for Relations<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Box<Error>> {
        let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| normalize(&cte.alias.name));
        self.scopes.push(Scope { unknown: names.collect(), known: Vec::new() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<Box<Error>> {
        self.scopes.pop();
        if let Some(outer) = self.scopes.last_mut()
            && let Some(name) = outer.unknown.pop_front()
        {
            outer.known.push(name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Box<Error>> {
        let TableFactor::Table { name, alias, args: None, version, .. } = factor else {
            return ControlFlow::Continue(());
        };
        match self.add(name, alias.is_some(), version.is_some()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{expand_view, relations};

    #[test]
    fn the_query_of_a_view_stands_in_its_place() {
        let cases = [
            ("SELECT * FROM v", "SELECT * FROM (SELECT id FROM t) AS \"v\""),
            ("SELECT * FROM v x WHERE id = ?", "SELECT * FROM (SELECT id FROM t) x WHERE id = ?"),
            ("SELECT * FROM public.V AS x", "SELECT * FROM (SELECT id FROM t) AS x"),
            (
                "SELECT * FROM t JOIN v ON v.id = t.id",
                "SELECT * FROM t JOIN (SELECT id FROM t) AS \"v\" ON v.id = t.id",
            ),
            (
                "SELECT 'v' FROM \"v\" WHERE id IN (SELECT id FROM v)",
                "SELECT 'v' FROM (SELECT id FROM t) AS \"v\" WHERE id IN (SELECT id FROM (SELECT id FROM t) AS \"v\")",
            ),
            ("WITH v AS (SELECT 1) SELECT * FROM v", "WITH v AS (SELECT 1) SELECT * FROM v"),
            (
                "WITH v AS (SELECT * FROM v) SELECT * FROM v",
                "WITH v AS (SELECT * FROM (SELECT id FROM t) AS \"v\") SELECT * FROM v",
            ),
            ("SELECT * FROM \"V\"", "SELECT * FROM \"V\""),
            ("EXPLAIN SELECT * FROM v -- v", "EXPLAIN SELECT * FROM (SELECT id FROM t) AS \"v\" -- v"),
            ("SELECT * FROM vector_search(v, e, [1], k => 3)", "SELECT * FROM vector_search(v, e, [1], k => 3)"),
        ];
        for (sql, expanded) in cases {
            assert_eq!(expand_view(sql, "v", "SELECT id FROM t -- all").expect(sql), expanded);
        }
    }

    #[test]
    fn views_do_not_take_the_names_of_the_statement_around_them() {
        let error = |sql: &str, query: &str| expand_view(sql, "v", query).expect_err(sql).to_string();
        let hidden = error("WITH t AS (SELECT 1) SELECT * FROM v", "SELECT id FROM t");
        assert!(hidden.contains("WITH name t") && hidden.contains("view v reads"), "{hidden}");
        let pinned = error("SELECT * FROM v AT (VERSION => 3)", "SELECT id FROM t");
        assert!(pinned.contains("it is a view"), "{pinned}");
        let open = error("SELECT * FROM v", "SELECT id FROM t WHERE id = $1");
        assert!(open.contains("parameter"), "{open}");
    }

    #[test]
    fn views_that_make_a_statement_too_long_are_refused() {
        let view = format!("SELECT '{}' AS a FROM v", "a".repeat(1_000));
        let sql = |count: usize| format!("SELECT * FROM {}", vec!["v"; count].join(", "));
        let expanded = expand_view(&sql(200), "v", &view).expect("a statement within the limit");
        assert!(expanded.len() > 200_000);
        let error = expand_view(&sql(300), "v", &view).expect_err("a long statement").to_string();
        assert!(error.contains("more than 262144 bytes") && error.contains("view v"), "{error}");
        // Each expansion of a view that reads itself twice doubles the text.
        let twice = "SELECT 1 AS one FROM v AS a, v AS b WHERE true OR 'a long enough text' = 'a long enough text'";
        let mut doubled = twice.to_string();
        let error = loop {
            match expand_view(&doubled, "v", twice) {
                Ok(longer) => doubled = longer,
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("more than 262144 bytes") && doubled.len() > 100_000, "{error}");
    }

    #[test]
    fn relations_are_tables_and_views() {
        let sql = "WITH a AS (SELECT * FROM b) SELECT * FROM a, lake.public.C, information_schema.tables, \
                   text_search(d, x, 'y') WHERE EXISTS (SELECT 1 FROM e AT (TAG => 'v1'))";
        assert_eq!(relations(sql).expect(sql).into_iter().collect::<Vec<_>>(), ["b", "c", "e"]);
    }
}
