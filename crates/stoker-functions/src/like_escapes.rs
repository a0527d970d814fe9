//! Supports `LIKE … ESCAPE 'c'` with any character `c`. DataFusion 54 supports only the backslash.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{Like, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::{Expr, lit};

/// Rewrites each pattern that has another escape character to an equal pattern that is escaped by backslashes.
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
    let Expr::Like(like) = expr else { return Ok(Transformed::no(expr)) };
    let Some(escape) = like.escape_char.filter(|escape| *escape != '\\') else {
        return Ok(Transformed::no(Expr::Like(like)));
    };
    let Some(pattern) = like.pattern.as_literal().and_then(ScalarValue::try_as_str) else {
        return plan_err!(
            "the pattern of LIKE with ESCAPE '{escape}' is {}; it must be a text, as in LIKE 'a!_%' ESCAPE '!'",
            like.pattern
        );
    };
    let written = pattern.map(|pattern| with_backslashes(pattern, escape));
    if written == Some(None) {
        return plan_err!("the pattern of LIKE ends with its ESCAPE character '{escape}', which escapes nothing");
    }
    let pattern = Box::new(lit(ScalarValue::Utf8(written.flatten())));
    Ok(Transformed::yes(Expr::Like(Like { pattern, escape_char: None, ..like })))
}

/// Returns the pattern with backslashes as escapes, or `None` where nothing follows the last escape character.
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
