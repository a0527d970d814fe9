//! Compares two texts as queries.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::thread;

use sqlparser::ast::{Expr, ObjectNamePart, Query, Statement, visit_expressions_mut};

use crate::{SQL_BYTES_MAX, parser};

/// The stack of the thread that parses. The tree of a chain of operators has as many levels as the chain, and sqlparser
/// visits, compares and drops it recursively. Texts of [`SQL_BYTES_MAX`] bytes need less than half of this.
const STACK_BYTES: usize = 64 << 20;

/// Tells whether two texts parse to the same query. White space, comments, the case of keywords and of function names,
/// and a final semicolon make no difference; all other names and values do. A text that does not parse, or that begins
/// with `EXPLAIN`, equals only itself. Two texts that are not the same are parsed on a thread of their own, and count as
/// different where the system has no thread.
///
/// ```
/// use stoker_dialect::is_same_query;
/// assert!(is_same_query("SELECT id FROM t", "select  id from t -- all\n;"));
/// assert!(!is_same_query("SELECT id FROM t", "SELECT id FROM T"));
/// ```
pub fn is_same_query(one: &str, other: &str) -> bool {
    let compare = || match (parse(one), parse(other)) {
        (Some(one), Some(other)) => folded(one) == folded(other),
        _ => false,
    };
    one == other || on_large_stack(compare).unwrap_or(false)
}

/// Parses on a thread with a large stack; `None` where the system has no thread.
pub(crate) fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("parse queries".to_string()).stack_size(STACK_BYTES);
        let thread = builder.spawn_scoped(scope, work).ok()?;
        Some(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Returns the query of a text that is one query.
fn parse(sql: &str) -> Option<Box<Query>> {
    if sql.len() > SQL_BYTES_MAX {
        return None;
    }
    let mut statements = parser(sql).ok()?.parse_statements().ok()?;
    match (statements.pop(), statements.is_empty()) {
        (Some(Statement::Query(query)), true) => Some(query),
        _ => None,
    }
}

/// Returns the query with unquoted function names in lower case. `AT` before a version clause is a function name to the
/// parser.
fn folded(mut query: Box<Query>) -> Box<Query> {
    let _: ControlFlow<()> = visit_expressions_mut(&mut query, |expr| {
        if let Expr::Function(function) = expr {
            for part in &mut function.name.0 {
                if let ObjectNamePart::Identifier(name) = part
                    && name.quote_style.is_none()
                {
                    name.value.make_ascii_lowercase();
                }
            }
        }
        ControlFlow::Continue(())
    });
    query
}

#[cfg(test)]
mod tests {
    use super::is_same_query;
    use crate::SQL_BYTES_MAX;

    #[test]
    fn only_what_is_not_part_of_the_statement_may_differ() {
        let query = "SELECT id, image FROM samples AT (TAG => 'v1') WHERE label < $1 AND name <> 'a  b' ORDER BY id";
        let equal = [
            "SELECT id, image  FROM samples AT (TAG => 'v1') WHERE label < $1 AND name <> 'a  b' ORDER BY id",
            "select id,image from samples at (TAG=>'v1')\nwhere label<$1 and name<>'a  b' order by id;",
            "/* rows */ SELECT id, image FROM samples AT (TAG => 'v1') -- pinned\nWHERE label < $1 AND name <> 'a  b' ORDER BY id ;",
        ];
        for text in equal {
            assert!(is_same_query(query, text), "{text}");
        }
        let others = [
            query.replace("'a  b'", "'a b'"),
            query.replace("$1", "$2"),
            query.replace("'v1'", "'v2'"),
            query.replace("id, image", "image, id"),
            query.replace("label", "LABEL"),
            query.replace("label <", "\"label\" <"),
            query.replace(" ORDER BY id", ""),
            format!("EXPLAIN {query}"),
            format!("{query}; {query}"),
            "no query".into(),
        ];
        for text in others {
            assert!(!is_same_query(query, &text), "{text}");
        }
        assert!(is_same_query("no query", "no query") && !is_same_query("no query", "no  query"));
    }

    #[test]
    fn long_chains_do_not_overflow_the_stack() {
        for link in ["+a", " AND a", "||a", "::INT", "[1]", "->a", " IS NULL", " UNION SELECT a"] {
            let query = |space: &str| format!("SELECT{space}a{}", link.repeat((SQL_BYTES_MAX - 20) / link.len()));
            assert!(is_same_query(&query(" "), &query("  ")), "{link}");
            assert!(!is_same_query(&query(" "), &query(" b, ")), "{link}");
        }
    }
}
