//! `LIKE … ESCAPE 'c'` with any character: DataFusion 54 knows the backslash only.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{Like, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::{Expr, lit};

/// Writes patterns with the backslash in place of other characters.
#[derive(Debug)]
pub(crate) struct LikeEscapes;

impl AnalyzerRule for LikeEscapes {
    fn name(&self) -> &str {
        "like_escapes"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DfResult<LogicalPlan> {
        let rewritten =
            plan.transform_up_with_subqueries(|node| node.map_expressions(|expr| expr.transform_up(rewrite)))?;
        Ok(rewritten.data)
    }
}

fn rewrite(expr: Expr) -> DfResult<Transformed<Expr>> {
    let Expr::Like(Like { escape_char: Some(escape), .. }) = &expr else { return Ok(Transformed::no(expr)) };
    let escape = *escape;
    if escape == '\\' {
        return Ok(Transformed::no(expr));
    }
    let Expr::Like(like) = expr else { return Ok(Transformed::no(expr)) };
    let pattern = match like.pattern.as_ref() {
        Expr::Literal(
            ScalarValue::Utf8(pattern) | ScalarValue::LargeUtf8(pattern) | ScalarValue::Utf8View(pattern),
            _,
        ) => pattern,
        other => {
            return plan_err!(
                "the pattern of LIKE with ESCAPE '{escape}' is {other}; it must be a text, as in LIKE 'a!_%' ESCAPE '!'"
            );
        }
    };
    let pattern = match pattern.as_deref().map(|pattern| with_backslashes(pattern, escape)) {
        None => None,
        Some(Some(pattern)) => Some(pattern),
        Some(None) => {
            return plan_err!("the pattern of LIKE ends with its ESCAPE character '{escape}', which escapes nothing");
        }
    };
    let pattern = Box::new(lit(ScalarValue::Utf8(pattern)));
    Ok(Transformed::yes(Expr::Like(Like { pattern, escape_char: None, ..like })))
}

/// A pattern in which the backslash escapes; `None` where nothing follows the last escape.
fn with_backslashes(pattern: &str, escape: char) -> Option<String> {
    let mut written = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        let (escaped, char) = if char == escape { (true, chars.next()?) } else { (false, char) };
        if matches!(char, '\\') || (escaped && matches!(char, '%' | '_')) {
            written.push('\\');
        }
        written.push(char);
    }
    Some(written)
}

#[cfg(test)]
mod tests {
    use super::with_backslashes;

    #[test]
    fn the_backslash_takes_the_place_of_the_escape() {
        for (pattern, escape, expected) in [
            ("x!_%", '!', Some(r"x\_%")),
            ("!%!!!_", '!', Some(r"\%!\_")),
            (r"a\b", '!', Some(r"a\\b")),
            (r"a#\", '#', Some(r"a\\")),
            ("!a", '!', Some("a")),
            ("%%%", '%', None),
            ("_%%", '%', Some(r"_\%")),
            ("a!", '!', None),
            ("", '!', Some("")),
        ] {
            assert_eq!(with_backslashes(pattern, escape).as_deref(), expected, "{pattern}");
        }
    }
}
