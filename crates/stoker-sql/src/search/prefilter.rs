//! Applies `WHERE` before a search.
//!
//! A predicate on columns of a searched table limits the rows that may be found. This pass moves such predicates from
//! the filters of the analysed plan into their search, and refuses predicates that it cannot move, which would
//! otherwise silently filter the results. The search itself accepts no filter pushdown, so that the meaning of a query
//! never depends on what DataFusion's optimizer infers. Filters above `LIMIT`, aggregates and windows do not affect the
//! search.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Filter, JoinType, LogicalPlan, TableScan};
use datafusion::prelude::Expr;
use stoker_functions::has_subquery;

use super::DISTANCE;
use crate::provider::Relation;
use crate::{Error, Result};

/// The origin of a column of a plan, with respect to searches.
enum Origin {
    /// The column does not come from a search into which a filter above the column could move.
    Plain,
    /// The column is an expression over columns of one search: the path down to the search as child indices, and the
    /// expression with unqualified columns.
    Search { path: Vec<usize>, expr: Expr },
    /// The column comes from a search, but a filter on it cannot move there, for this reason.
    Blocked(&'static str),
}

/// Moves predicates into searches.
pub(crate) fn push_prefilters(plan: LogicalPlan) -> Result<LogicalPlan> {
    let moved = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(filter) => Ok(Transformed::yes(rewrite(filter)?)),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(moved.data)
}

fn rewrite(filter: Filter) -> Result<LogicalPlan> {
    let mut input = Arc::unwrap_or_clone(filter.input);
    let mut kept = Vec::new();
    for predicate in split_conjunction_owned(filter.predicate) {
        match target(&predicate, &input)? {
            Some((path, prefilter)) => input = add_prefilter(input, &path, prefilter)?,
            None => kept.push(predicate),
        }
    }
    Ok(match conjunction(kept) {
        Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?),
        None => input,
    })
}

/// Returns the search to which the predicate belongs, and the predicate over the search's columns; `None` if the
/// predicate stays where it is.
fn target(predicate: &Expr, input: &LogicalPlan) -> Result<Option<(Vec<usize>, Expr)>> {
    let mut columns: Vec<Column> = predicate.column_refs().into_iter().cloned().collect();
    let outer = outer_columns(predicate)?;
    let correlated: Vec<Column> = outer.iter().filter(|column| input.schema().has_column(column)).cloned().collect();
    columns.extend(correlated.iter().cloned());
    let substituted = match substitute(predicate, &columns, input)? {
        Origin::Plain => return Ok(None),
        Origin::Blocked(reason) => return Err(refuse(predicate, reason)),
        Origin::Search { path, expr } => (path, expr),
    };
    let distance_only =
        correlated.is_empty() && substituted.1.column_refs().iter().all(|column| column.name == DISTANCE);
    if distance_only {
        return Ok(None);
    }
    if substituted.1.column_refs().iter().any(|column| column.name == DISTANCE) {
        return Err(refuse(predicate, "it mixes _distance with columns of the searched table"));
    }
    if has_subquery(predicate) || !outer.is_empty() {
        return Err(refuse(predicate, "it depends on a subquery or an outer query"));
    }
    if predicate.is_volatile() {
        return Err(refuse(predicate, "it calls a volatile function"));
    }
    Ok(Some(substituted))
}

fn refuse(predicate: &Expr, reason: &str) -> Error {
    Error::refused(
        format!("the predicate {predicate} cannot be applied before vector_search"),
        format!("{reason}; to filter what the search found, put the search into a subquery with a LIMIT of k rows"),
    )
}

/// Rewrites an expression over the columns of `plan` to an expression over the columns of a search.
fn substitute(expr: &Expr, columns: &[Column], plan: &LogicalPlan) -> Result<Origin> {
    let mut found: Option<Vec<usize>> = None;
    let mut replacements = Vec::new();
    let mut plain = false;
    for column in columns {
        match trace(plan, column)? {
            Origin::Plain => plain = true,
            Origin::Blocked(reason) => return Ok(Origin::Blocked(reason)),
            Origin::Search { path, expr } => {
                if found.as_ref().is_some_and(|known| *known != path) {
                    return Ok(Origin::Blocked("it compares two searches"));
                }
                replacements.push((column.clone(), expr));
                found = Some(path);
            }
        }
    }
    let Some(path) = found else { return Ok(Origin::Plain) };
    let distance_only =
        replacements.iter().all(|(_, expr)| expr.column_refs().iter().all(|column| column.name == DISTANCE));
    if plain && distance_only {
        return Ok(Origin::Plain);
    }
    if plain {
        return Ok(Origin::Blocked("it also depends on another relation"));
    }
    let expr = expr.clone().transform(|node| match &node {
        Expr::Column(column) => Ok(match replacements.iter().find(|(known, _)| known == column) {
            Some((_, expr)) => Transformed::new(expr.clone(), true, TreeNodeRecursion::Jump),
            None => Transformed::no(node),
        }),
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(Origin::Search { path, expr: expr.data })
}

fn trace(plan: &LogicalPlan, column: &Column) -> Result<Origin> {
    let Some(index) = position(plan.schema(), column) else { return Ok(Origin::Plain) };
    let below = |child: usize, plan: &LogicalPlan, column: &Column| {
        Ok(match trace(plan, column)? {
            Origin::Search { mut path, expr } => {
                path.insert(0, child);
                Origin::Search { path, expr }
            }
            other => other,
        })
    };
    match plan {
        LogicalPlan::TableScan(scan) => Ok(match searched(scan) {
            Some(_) => {
                let name = plan.schema().field(index).name();
                Origin::Search { path: Vec::new(), expr: Expr::Column(Column::new_unqualified(name)) }
            }
            None => Origin::Plain,
        }),
        LogicalPlan::Projection(projection) => {
            let expr = projection.expr[index].clone().unalias();
            let columns: Vec<Column> = expr.column_refs().into_iter().cloned().collect();
            let origin = substitute(&expr, &columns, &projection.input)?;
            Ok(match origin {
                Origin::Search { .. } if has_subquery(&expr) || expr.is_volatile() => {
                    Origin::Blocked("it is computed with a subquery or a volatile function")
                }
                Origin::Search { mut path, expr } => {
                    path.insert(0, 0);
                    Origin::Search { path, expr }
                }
                other => other,
            })
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = Column::from(alias.input.schema().qualified_field(index));
            below(0, &alias.input, &inner)
        }
        LogicalPlan::Filter(filter) => below(0, &filter.input, column),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => below(0, &sort.input, column),
        LogicalPlan::Join(join) => {
            let num_left = join.left.schema().fields().len();
            let only_right = matches!(join.join_type, JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark);
            let from_left = !only_right && index < num_left;
            let child = usize::from(!from_left);
            let side = if from_left { &join.left } else { &join.right };
            let preserved = match join.join_type {
                JoinType::Full => false,
                JoinType::Left => from_left,
                JoinType::Right => !from_left,
                _ => true,
            };
            Ok(match below(child, side, column)? {
                Origin::Search { .. } if !preserved => {
                    Origin::Blocked("the search is on the optional side of an outer join")
                }
                other => other,
            })
        }
        LogicalPlan::Union(union) => {
            for input in &union.inputs {
                let inner = Column::from(input.schema().qualified_field(index));
                if !matches!(trace(input, &inner)?, Origin::Plain) {
                    return Ok(Origin::Blocked("the search is below a UNION"));
                }
            }
            Ok(Origin::Plain)
        }
        _ => Ok(Origin::Plain),
    }
}

fn position(schema: &DFSchema, column: &Column) -> Option<usize> {
    schema.maybe_index_of_column(column)
}

fn searched(scan: &TableScan) -> Option<Relation> {
    let provider = source_as_provider(&scan.source).ok()?;
    Relation::of(&provider).filter(|relation| relation.search().is_some()).cloned()
}

/// Adds `prefilter` to the search at the end of `path`.
fn add_prefilter(plan: LogicalPlan, path: &[usize], prefilter: Expr) -> Result<LogicalPlan> {
    let Some((child, rest)) = path.split_first() else {
        let LogicalPlan::TableScan(mut scan) = plan else {
            return Err(Error::internal("the path to a search ends elsewhere"));
        };
        let relation = searched(&scan).ok_or_else(|| Error::internal("the path to a search ends at a table"))?;
        scan.source = provider_as_source(Arc::new(relation.with_prefilter(prefilter)));
        return Ok(LogicalPlan::TableScan(scan));
    };
    let mut inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
    let input = inputs.get(*child).cloned().ok_or_else(|| Error::internal("the path to a search leaves the plan"))?;
    inputs[*child] = add_prefilter(input, rest, prefilter)?;
    Ok(plan.with_new_exprs(plan.expressions(), inputs)?)
}

/// Returns the columns of enclosing queries that an expression or its subqueries refer to.
fn outer_columns(expr: &Expr) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    expr.apply(|node| {
        let outer = match node {
            Expr::OuterReferenceColumn(_, column) => {
                columns.push(column.clone());
                return Ok(TreeNodeRecursion::Continue);
            }
            Expr::ScalarSubquery(subquery) => &subquery.outer_ref_columns,
            Expr::InSubquery(inner) => &inner.subquery.outer_ref_columns,
            Expr::Exists(inner) => &inner.subquery.outer_ref_columns,
            Expr::SetComparison(inner) => &inner.subquery.outer_ref_columns,
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        for expr in outer {
            if let Expr::OuterReferenceColumn(_, column) = expr {
                columns.push(column.clone());
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(columns)
}
