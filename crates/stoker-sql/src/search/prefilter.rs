//! Applies `WHERE` before a search.
//!
//! A predicate on columns of a searched table limits the rows that may be found. This pass moves such predicates from
//! the filters of the analysed plan into a hidden plan of their search, and refuses predicates that it cannot move,
//! which would otherwise silently filter the results:
//!
//! ```text
//! Filter v.label IN (SELECT …)            SubqueryAlias v
//!   SubqueryAlias v                 ─►      TableScan, a search ── prefilter: Projection row id
//!     TableScan, a search                                            Filter label IN (SELECT …)
//!                                                                      TableScan, all rows + row id
//! ```
//!
//! The search itself accepts no filter pushdown, so that the meaning of a query never depends on what DataFusion's
//! optimizer infers. What becomes of a filter on columns of the searched table depends on the operators between them:
//!
//! - it moves through projections, aliases, filters, sorts, `DISTINCT`, `unnest` of other columns, and joins, except to
//!   the optional side of an outer join;
//! - it is refused above that side, above window functions, `DISTINCT ON`, `UNION` and `LATERAL` subqueries, and if it
//!   names a value that `unnest` gives;
//! - it stays above `LIMIT` and aggregates (`HAVING`), by which a query says that it filters what was found.
//!
//! Filters on columns that the search or a window function computes stay where they are.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DfResult, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{Distinct, Filter, JoinType, LogicalPlan, Projection, Subquery, TableScan, Unnest};
use datafusion::prelude::Expr;
use stoker_functions::has_subquery;

use super::is_computed;
use crate::provider::Relation;
use crate::{Error, Result};

/// The qualifier of the columns of the searched table in the plan of a prefilter. Inside subqueries of the predicate it
/// differs from the names of all relations there, because no alias may be this name.
pub(crate) const SEARCHED: &str = "searched#";

/// The origin of something in a plan, with respect to searches.
enum Origin<T> {
    /// It does not come from a search into which a filter above the plan could move.
    Plain,
    /// It comes from columns of one search: the path down to the search as child indices, and what it is there, with
    /// columns qualified by [`SEARCHED`].
    Search { path: Vec<usize>, found: T },
    /// It comes from a search, but a filter on it cannot move there, for this reason.
    Blocked(&'static str),
}

/// A column of a plan, and the expression over columns of a search that it is.
pub(super) type Replacement = (Column, Expr);

/// Moves predicates into searches.
pub(crate) fn push_prefilters(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut num_moved = 0;
    let moved = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(filter) => Ok(Transformed::yes(rewrite(filter, &mut num_moved)?)),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(moved.data)
}

fn rewrite(filter: Filter, num_moved: &mut usize) -> Result<LogicalPlan> {
    let mut input = Arc::unwrap_or_clone(filter.input);
    let mut kept = Vec::new();
    for predicate in split_conjunction_owned(filter.predicate) {
        match target(&predicate, &input)? {
            Some((path, prefilter)) => {
                *num_moved += 1;
                input = add_prefilter(input, &path, prefilter, *num_moved)?;
            }
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
    let (correlated, nested) = correlated_columns(predicate)?;
    let mut columns: Vec<Column> = predicate.column_refs().into_iter().cloned().collect();
    columns.extend(correlated.iter().chain(&nested).filter(|column| input.schema().has_column(column)).cloned());
    // Other columns belong to queries around this filter.
    let depends_outside =
        predicate.contains_outer() || correlated.iter().any(|column| !input.schema().has_column(column));
    let (path, replacements) = match replacements(&columns, input)? {
        Origin::Plain => return Ok(None),
        Origin::Blocked(reason) => return Err(refuse(predicate, reason)),
        Origin::Search { path, found } => (path, found),
    };
    if is_distance_only(&replacements) {
        return Ok(None);
    }
    if replacements.iter().flat_map(|(_, found)| found.column_refs()).any(|column| is_computed(&column.name)) {
        return Err(refuse(predicate, "it mixes a column that the search computes with columns of the searched table"));
    }
    if depends_outside {
        return Err(refuse(predicate, "it depends on an outer query"));
    }
    if predicate.is_volatile() {
        return Err(refuse(predicate, "it calls a volatile function"));
    }
    let refuse_correlated = |reason: &str| refuse(predicate, reason);
    Ok(Some((path, replaced(predicate.clone(), &replacements, &refuse_correlated)?)))
}

fn refuse(predicate: &Expr, reason: &str) -> Error {
    Error::refused(
        format!("the predicate {predicate} cannot be applied before the search"),
        format!("{reason}; to filter what the search found, put the search into a subquery with a LIMIT of k rows"),
    )
}

fn is_distance_only(replacements: &[Replacement]) -> bool {
    replacements.iter().all(|(_, found)| found.column_refs().iter().all(|column| is_computed(&column.name)))
}

/// Finds the expressions over the columns of one search that these columns of `plan` are.
fn replacements(columns: &[Column], plan: &LogicalPlan) -> Result<Origin<Vec<Replacement>>> {
    let mut searched: Option<Vec<usize>> = None;
    let mut replacements = Vec::new();
    let mut plain = false;
    for column in columns {
        match trace(plan, column)? {
            Origin::Plain => plain = true,
            Origin::Blocked(reason) => return Ok(Origin::Blocked(reason)),
            Origin::Search { path, found } => {
                if searched.as_ref().is_some_and(|known| *known != path) {
                    return Ok(Origin::Blocked("it compares two searches"));
                }
                replacements.push((column.clone(), found));
                searched = Some(path);
            }
        }
    }
    Ok(match searched {
        None => Origin::Plain,
        Some(_) if plain && is_distance_only(&replacements) => Origin::Plain,
        Some(_) if plain => Origin::Blocked("it also depends on another relation"),
        Some(path) => Origin::Search { path, found: replacements },
    })
}

fn trace(plan: &LogicalPlan, column: &Column) -> Result<Origin<Expr>> {
    let Some(index) = position(plan.schema(), column) else { return Ok(Origin::Plain) };
    match plan {
        LogicalPlan::TableScan(scan) => Ok(match searched(scan) {
            Some(_) => {
                let name = plan.schema().field(index).name();
                Origin::Search { path: Vec::new(), found: Expr::Column(searched_column(name)) }
            }
            None => Origin::Plain,
        }),
        LogicalPlan::Projection(projection) => {
            let expr = projection.expr[index].clone().unalias();
            let columns: Vec<Column> = expr.column_refs().into_iter().cloned().collect();
            Ok(match replacements(&columns, &projection.input)? {
                Origin::Search { .. } if has_subquery(&expr) || expr.contains_outer() || expr.is_volatile() => {
                    Origin::Blocked("it is computed with a subquery, an outer query or a volatile function")
                }
                Origin::Search { mut path, found } => {
                    path.insert(0, 0);
                    let without_subqueries = |reason: &str| Error::internal(reason);
                    Origin::Search { path, found: replaced(expr, &found, &without_subqueries)? }
                }
                Origin::Plain => Origin::Plain,
                Origin::Blocked(reason) => Origin::Blocked(reason),
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
            let found = below(child, side, column)?;
            Ok(match preserved {
                true => found,
                false => blocked(found, "the search is on the optional side of an outer join"),
            })
        }
        LogicalPlan::Union(union) => {
            for input in &union.inputs {
                let inner = Column::from(input.schema().qualified_field(index));
                let found = blocked(trace(input, &inner)?, "the search is below a UNION");
                if matches!(found, Origin::Blocked(_)) {
                    return Ok(found);
                }
            }
            Ok(Origin::Plain)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => below(0, input, column),
        LogicalPlan::Distinct(Distinct::On(on)) => {
            let columns: Vec<Column> = on.select_expr[index].column_refs().into_iter().cloned().collect();
            Ok(match replacements(&columns, &on.input)? {
                Origin::Search { found, .. } if !is_distance_only(&found) => {
                    Origin::Blocked("the search is below DISTINCT ON")
                }
                Origin::Blocked(reason) => Origin::Blocked(reason),
                _ => Origin::Plain,
            })
        }
        // The columns after those of the input are computed from what the search found.
        LogicalPlan::Window(window) if index < window.input.schema().fields().len() => {
            let inner = Column::from(window.input.schema().qualified_field(index));
            Ok(blocked(below(0, &window.input, &inner)?, "the search is below a window function"))
        }
        LogicalPlan::Unnest(unnest) => unnested(unnest, index),
        LogicalPlan::Subquery(lateral) => {
            let inner = Column::from(lateral.subquery.schema().qualified_field(index));
            Ok(blocked(below(0, &lateral.subquery, &inner)?, "the search is in a LATERAL subquery"))
        }
        _ => Ok(Origin::Plain),
    }
}

/// Returns the origin of a column above an operator below which a filter cannot move. A filter on what the search
/// computes stays above it.
fn blocked(origin: Origin<Expr>, reason: &'static str) -> Origin<Expr> {
    match origin {
        Origin::Search { found, .. } if found.column_refs().iter().all(|column| is_computed(&column.name)) => {
            Origin::Plain
        }
        Origin::Search { .. } => Origin::Blocked(reason),
        other => other,
    }
}

/// Traces a column of an input, with the index of the input as the first step of the path.
fn below(child: usize, input: &LogicalPlan, column: &Column) -> Result<Origin<Expr>> {
    Ok(match trace(input, column)? {
        Origin::Search { mut path, found } => {
            path.insert(0, child);
            Origin::Search { path, found }
        }
        other => other,
    })
}

/// Traces a column of `unnest`. A filter on another column than the values of a list gives the same rows below it.
fn unnested(unnest: &Unnest, index: usize) -> Result<Origin<Expr>> {
    let input = unnest.dependency_indices[index];
    let is_value =
        unnest.list_type_columns.iter().any(|(list, _)| *list == input) || unnest.struct_type_columns.contains(&input);
    let inner = Column::from(unnest.input.schema().qualified_field(input));
    let found = below(0, &unnest.input, &inner)?;
    Ok(match is_value {
        true => blocked(found, "it depends on a value that unnest gives"),
        false => found,
    })
}

fn position(schema: &DFSchema, column: &Column) -> Option<usize> {
    schema.maybe_index_of_column(column)
}

fn searched(scan: &TableScan) -> Option<Relation> {
    let provider = source_as_provider(&scan.source).ok()?;
    Relation::of(&provider).filter(|relation| relation.search().is_some()).cloned()
}

/// Returns a column of the searched table.
pub(super) fn searched_column(name: &str) -> Column {
    Column::new(Some(TableReference::bare(SEARCHED)), name)
}

/// Replaces columns in an expression, and in its subqueries where they are columns of the enclosing query. `refuse`
/// makes the error for a reference in a subquery that cannot be replaced, from the reason.
pub(super) fn replaced(expr: Expr, replacements: &[Replacement], refuse: &dyn Fn(&str) -> Error) -> Result<Expr> {
    let replaced = expr.transform_down(|mut node| {
        if let Expr::Column(column) = &node {
            return Ok(match find(replacements, column) {
                Some(found) => Transformed::new(found.clone(), true, TreeNodeRecursion::Jump),
                None => Transformed::no(node),
            });
        }
        let Some(subquery) = subquery_of_mut(&mut node) else { return Ok(Transformed::no(node)) };
        *subquery = correlated(subquery, replacements, refuse)?;
        Ok(Transformed::yes(node))
    })?;
    Ok(replaced.data)
}

fn find<'a>(replacements: &'a [Replacement], column: &Column) -> Option<&'a Expr> {
    replacements.iter().find(|(known, _)| known == column).map(|(_, found)| found)
}

/// Replaces the columns of the enclosing query in a subquery.
fn correlated(subquery: &Subquery, replacements: &[Replacement], refuse: &dyn Fn(&str) -> Error) -> DfResult<Subquery> {
    let plan = subquery.subquery.as_ref().clone().transform_up(|node| {
        let inputs = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let replaced = expr.transform_up(|expr| {
                let is_searched = |column: &Column| find(replacements, column).is_some() && !inputs.has_column(column);
                if subquery_of(&expr).is_some_and(|nested| outer_columns(nested).any(is_searched)) {
                    return Err(refuse("a subquery inside a subquery refers to the searched table").into());
                }
                outer_replaced(expr, replacements, refuse)
            })?;
            Ok(replaced.update_data(|expr| name.restore(expr)))
        })
    })?;
    let outer = subquery.outer_ref_columns.iter().cloned();
    let outer = outer.map(|expr| outer_replaced(expr, replacements, refuse).map(|replaced| replaced.data));
    let outer_ref_columns = outer.collect::<DfResult<_>>()?;
    Ok(Subquery { subquery: Arc::new(plan.data), outer_ref_columns, spans: subquery.spans.clone() })
}

fn outer_replaced(
    expr: Expr,
    replacements: &[Replacement],
    refuse: &dyn Fn(&str) -> Error,
) -> DfResult<Transformed<Expr>> {
    let Expr::OuterReferenceColumn(field, column) = &expr else { return Ok(Transformed::no(expr)) };
    match find(replacements, column) {
        None => Ok(Transformed::no(expr)),
        Some(Expr::Column(found)) => Ok(Transformed::yes(Expr::OuterReferenceColumn(field.clone(), found.clone()))),
        Some(_) => Err(refuse(&format!("a subquery refers to {column}, which is computed")).into()),
    }
}

fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some(subquery),
        Expr::InSubquery(inner) => Some(&inner.subquery),
        Expr::Exists(inner) => Some(&inner.subquery),
        Expr::SetComparison(inner) => Some(&inner.subquery),
        _ => None,
    }
}

fn subquery_of_mut(expr: &mut Expr) -> Option<&mut Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery) => Some(subquery),
        Expr::InSubquery(inner) => Some(&mut inner.subquery),
        Expr::Exists(inner) => Some(&mut inner.subquery),
        Expr::SetComparison(inner) => Some(&mut inner.subquery),
        _ => None,
    }
}

/// Returns the columns of enclosing queries that a subquery refers to.
fn outer_columns(subquery: &Subquery) -> impl Iterator<Item = &Column> {
    subquery.outer_ref_columns.iter().filter_map(|expr| match expr {
        Expr::OuterReferenceColumn(_, column) => Some(column),
        _ => None,
    })
}

/// Returns the columns of enclosing queries to which the subqueries of an expression refer, and those to which
/// subqueries inside them refer; the latter may also be columns of the subqueries around these.
pub(super) fn correlated_columns(expr: &Expr) -> Result<(Vec<Column>, Vec<Column>)> {
    let (mut correlated, mut nested) = (Vec::new(), Vec::new());
    expr.apply(|node| {
        let Some(subquery) = subquery_of(node) else { return Ok(TreeNodeRecursion::Continue) };
        correlated.extend(outer_columns(subquery).cloned());
        subquery.subquery.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    nested.extend(subquery_of(expr).into_iter().flat_map(outer_columns).cloned());
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })
    })?;
    Ok((correlated, nested))
}

/// Adds `predicate` to the search at the end of `path`.
///
/// DataFusion takes two subqueries for one if their plans are equal, and compares scans by name. Therefore the scan
/// gets a new name, which ends in `number`. All searches are below an alias, above which this name is not seen.
fn add_prefilter(plan: LogicalPlan, path: &[usize], predicate: Expr, number: usize) -> Result<LogicalPlan> {
    let Some((child, rest)) = path.split_first() else {
        let LogicalPlan::TableScan(scan) = plan else {
            return Err(Error::internal("the path to a search ends elsewhere"));
        };
        let relation = searched(&scan).ok_or_else(|| Error::internal("the path to a search ends at a table"))?;
        let relation = relation.with_prefilter(prefilter(&relation, predicate)?);
        let name = TableReference::bare(format!("{}/{number}", scan.table_name.table()));
        let source = provider_as_source(Arc::new(relation));
        let scan = TableScan::try_new(name, source, scan.projection, scan.filters, scan.fetch)?;
        return Ok(LogicalPlan::TableScan(scan));
    };
    let mut inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
    let input = inputs.get(*child).cloned().ok_or_else(|| Error::internal("the path to a search leaves the plan"))?;
    inputs[*child] = add_prefilter(input, rest, predicate, number)?;
    let exprs = match &plan {
        // DataFusion lists the columns that it unnests as expressions, and takes none.
        LogicalPlan::Unnest(_) => Vec::new(),
        plan => plan.expressions(),
    };
    Ok(plan.with_new_exprs(exprs, inputs)?)
}

/// Returns the plan of the row ids that a search may find if `predicate` must hold too.
pub(super) fn prefilter(relation: &Relation, predicate: Expr) -> Result<LogicalPlan> {
    let (rows, row_id) = relation.with_hidden_row_ids();
    let earlier = relation.search().and_then(|search| search.prefilter.as_deref());
    let input = match earlier {
        Some(LogicalPlan::Projection(earlier)) => earlier.input.clone(),
        Some(_) => return Err(Error::internal("a prefilter is not a projection")),
        None => {
            let source = provider_as_source(Arc::new(rows));
            let scan = TableScan::try_new(TableReference::bare(SEARCHED), source, None, Vec::new(), None)?;
            Arc::new(LogicalPlan::TableScan(scan))
        }
    };
    let filter = Arc::new(LogicalPlan::Filter(Filter::try_new(predicate, input)?));
    let row_ids = vec![Expr::Column(searched_column(&row_id))];
    Ok(LogicalPlan::Projection(Projection::try_new(row_ids, filter)?))
}
