//! Placeholders with names.

use sqlparser::tokenizer::Token;

use crate::spans::spans;
use crate::{Error, Result};

/// A query whose placeholders are numbered, and the names that they had.
#[derive(Debug, PartialEq, Eq)]
pub struct NumberedQuery {
    /// The query, with `$1`, `$2`, … in place of the names.
    pub sql: String,
    /// The name of `$1`, then that of `$2`, ….
    pub names: Vec<String>,
}

/// Numbers the named placeholders of a query, `$name`, in the order of their first appearance. Queries are planned with
/// numbered placeholders only. A query without names, or one that cannot be tokenized, stays as it is.
///
/// ```
/// use stoker_dialect::numbered;
/// let query = numbered("SELECT id FROM t WHERE x < $limit AND y < $limit AND z = '$z'").unwrap();
/// assert_eq!(query.sql, "SELECT id FROM t WHERE x < $1 AND y < $1 AND z = '$z'");
/// assert_eq!(query.names, ["limit"]);
/// ```
///
/// # Errors
/// [`Error::Refused`] for a query that has placeholders with and without names.
pub fn numbered(sql: &str) -> Result<NumberedQuery> {
    let (mut written, mut copied) = (String::with_capacity(sql.len()), 0);
    let mut names: Vec<String> = Vec::new();
    let mut unnamed = None;
    for (token, range) in spans(sql).tokens {
        let Token::Placeholder(placeholder) = token else { continue };
        let Some(name) = name(&placeholder) else {
            unnamed = Some(placeholder);
            continue;
        };
        let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_string());
            names.len() - 1
        });
        written.push_str(&sql[copied..range.start]);
        written.push_str(&format!("${}", index + 1));
        copied = range.end;
    }
    if let (Some(unnamed), Some(name)) = (unnamed, names.first()) {
        return Err(Error::refused(
            format!("placeholders {unnamed} and ${name} in one query"),
            "give all parameters a name ($name), or none",
        ));
    }
    written.push_str(&sql[copied..]);
    Ok(NumberedQuery { sql: written, names })
}

/// Returns the placeholders of a text: whether it has some without numbers, `?`, and the largest number of the others, of
/// which `$1` is the first; 0 for none.
///
/// ```
/// use stoker_dialect::placeholders;
/// assert_eq!(placeholders("x < $2 AND y = '$9?' -- ?"), (false, 2));
/// assert_eq!(placeholders("x < ?"), (true, 0));
/// ```
pub fn placeholders(sql: &str) -> (bool, u64) {
    let (mut has_questions, mut last) = (false, 0);
    for (token, _) in spans(sql).tokens {
        let Token::Placeholder(placeholder) = token else { continue };
        has_questions |= placeholder == "?";
        let number = placeholder.strip_prefix('$').and_then(|number| number.parse().ok());
        last = last.max(number.unwrap_or(0));
    }
    (has_questions, last)
}

/// Returns the name of a placeholder: `label` of `$label`, and none of `$1` and `?`.
fn name(placeholder: &str) -> Option<&str> {
    let name = placeholder.strip_prefix('$')?;
    name.starts_with(|first: char| first.is_alphabetic() || first == '_').then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{numbered, placeholders};

    fn check(sql: &str, expected: &str, names: &[&str]) {
        let found = numbered(sql).expect("a query");
        assert_eq!(
            (found.sql, found.names),
            (expected.to_string(), names.iter().map(ToString::to_string).collect()),
            "{sql}"
        );
    }

    #[test]
    fn names_become_numbers() {
        check("SELECT $b, $a_1,$b", "SELECT $1, $2,$1", &["b", "a_1"]);
        check("SELECT $größe::INT", "SELECT $1::INT", &["größe"]);
        check("SELECT id FROM f(t, $query, k => $k)", "SELECT id FROM f(t, $1, k => $2)", &["query", "k"]);
        for same in [
            "SELECT $1, $2",
            "SELECT ?",
            "SELECT 1",
            "SELECT '$a', \"$a\" -- $a\n/* $a */",
            "SELECT $$ $a $$",
            "'open $a",
        ] {
            check(same, same, &[]);
        }
        check("SELECT $a, $t$ $a $t$, 'open $b", "SELECT $1, $t$ $a $t$, 'open $b", &["a"]);
    }

    #[test]
    fn placeholders_are_counted_outside_of_texts_and_comments() {
        for (sql, expected) in [
            ("x = 1", (false, 0)),
            ("x IN ($3, $1) AND s <> 'it''s $9'", (false, 3)),
            ("\"$7?\" = $$ $8 ? $$ /* ? $9 */ OR y = ?", (true, 0)),
            ("x = $99999999999999999999", (false, 0)),
        ] {
            assert_eq!(placeholders(sql), expected, "{sql}");
        }
    }

    #[test]
    fn placeholders_of_both_kinds_are_refused() {
        for both in ["SELECT $1, $a", "SELECT $a, ?"] {
            let error = numbered(both).expect_err("both kinds").to_string();
            assert!(error.contains("$a in one query"), "{error}");
        }
    }
}
