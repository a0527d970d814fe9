//! Recognises a sort by a distance whose first rows a search can find, and writes its expressions over the columns of
//! the table.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::datasource::source_as_provider;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{LogicalPlan, Sort, SortExpr, TableScan};
use datafusion::physical_expr::create_physical_expr;
use datafusion::prelude::Expr;
use stoker_columns::is_heavy;
use stoker_functions::{has_subquery, needs_only};
use stoker_lake::Metric;

use super::is_computed;
use super::prefilter::{Replacement, correlated_columns, replaced, searched_column};
use crate::provider::Relation;
use crate::{Error, Result};

/// By how many nodes an expression may grow when the columns of subqueries in it are replaced by what they stand for.
const GROWTH_MAX: usize = 1_000;

static FUNCTIONS: [DistanceFunction; 5] = [
    DistanceFunction { name: "l2_distance", metric: Metric::L2, is_ascending: true },
    DistanceFunction { name: "cosine_distance", metric: Metric::Cosine, is_ascending: true },
    DistanceFunction { name: "negative_inner_product", metric: Metric::Dot, is_ascending: true },
    DistanceFunction { name: "dot_product", metric: Metric::Dot, is_ascending: false },
    DistanceFunction { name: "cosine_similarity", metric: Metric::Cosine, is_ascending: false },
];

/// A function by which rows are ordered.
#[derive(Debug)]
pub(super) struct DistanceFunction {
    pub(super) name: &'static str,
    pub(super) metric: Metric,
    /// Whether the nearest rows have the smallest values.
    is_ascending: bool,
}

/// The call of a distance function for a column of the table and a constant.
pub(super) struct DistanceCall {
    pub(super) function: &'static DistanceFunction,
    pub(super) column: String,
    pub(super) constant: Expr,
}

/// A sort by a distance over projections, aliases and filters of one table. Its expressions are over the columns of the
/// table, qualified by [`SEARCHED`](super::SEARCHED).
pub(super) struct TopRows<'a> {
    pub(super) scan: &'a TableScan,
    pub(super) relation: Relation,
    pub(super) predicates: Vec<Expr>,
    /// The keys, of which the first is the distance, from the nearest rows to the farthest.
    pub(super) keys: Vec<SortExpr>,
    pub(super) distance: DistanceCall,
    /// The names of the columns that the projections read; `None` for all.
    pub(super) read: Option<BTreeSet<String>>,
}

impl<'a> TopRows<'a> {
    /// Returns `None` for another sort.
    pub(super) fn of(sort: &'a Sort) -> Result<Option<Self>> {
        let mut node = sort.input.as_ref();
        let (mut predicates, mut is_aliased) = (Vec::new(), false);
        let mut read: Option<BTreeSet<String>> = None;
        let scan = loop {
            node = match node {
                LogicalPlan::Filter(filter) => {
                    let Some(predicate) = over_table(filter.predicate.clone(), &filter.input)? else { return Ok(None) };
                    predicates.push(predicate);
                    filter.input.as_ref()
                }
                LogicalPlan::Projection(projection) => {
                    let is_taken = projection.schema.fields().iter().any(|field| is_hidden(field.name()));
                    if is_taken || projection.expr.iter().any(Expr::contains_outer) {
                        return Ok(None);
                    }
                    let columns = projection.expr.iter().flat_map(Expr::column_refs);
                    read.get_or_insert_default().extend(columns.map(|column| column.name.clone()));
                    projection.input.as_ref()
                }
                LogicalPlan::SubqueryAlias(alias) => {
                    is_aliased = matches!(alias.input.as_ref(), LogicalPlan::TableScan(_));
                    alias.input.as_ref()
                }
                LogicalPlan::TableScan(scan) => break scan,
                _ => return Ok(None),
            };
        };
        let is_whole = scan.projection.is_none() && scan.filters.is_empty() && scan.fetch.is_none();
        let Some(relation) = Relation::of(&source_as_provider(&scan.source)?).cloned() else { return Ok(None) };
        let schema = relation.table().schema();
        let is_taken = schema.fields().iter().any(|field| is_computed(field.name()) || is_hidden(field.name()));
        if relation.search().is_some() || !is_whole || !is_aliased || is_taken {
            return Ok(None);
        }
        let mut keys: Vec<SortExpr> = Vec::with_capacity(sort.expr.len());
        for key in &sort.expr {
            let Some(expr) = over_table(key.expr.clone(), &sort.input)? else { return Ok(None) };
            keys.push(expr.sort(key.asc, key.nulls_first));
        }
        let Some((first, others)) = keys.split_first() else { return Ok(None) };
        let Some(distance) = DistanceCall::of(&first.expr) else { return Ok(None) };
        let is_light = |name: &str| schema.field_with_name(name).is_ok_and(|field| !is_heavy(field));
        let is_found = distance.function.is_ascending == first.asc
            && schema.field_with_name(&distance.column).is_ok()
            && others.iter().all(|key| needs_only(&key.expr, is_light));
        Ok(is_found.then_some(Self { scan, relation, predicates, keys, distance, read }))
    }
}

impl DistanceCall {
    fn of(expr: &Expr) -> Option<Self> {
        let Expr::ScalarFunction(call) = expr else { return None };
        let function = FUNCTIONS.iter().find(|function| function.name == call.func.name())?;
        let [left, right] = call.args.as_slice() else { return None };
        match (left, right) {
            (Expr::Column(column), constant) | (constant, Expr::Column(column)) if is_constant(constant) => {
                Some(Self { function, column: column.name.clone(), constant: constant.clone() })
            }
            _ => None,
        }
    }

    /// Tells whether a call gives this distance, where `is_vector` tells whether an expression is the column. The two
    /// arguments of a distance function may be exchanged.
    pub(super) fn is_same(&self, call: &ScalarFunction, is_vector: impl Fn(&Expr) -> bool) -> bool {
        let [left, right] = call.args.as_slice() else { return false };
        self.function.name == call.func.name()
            && ((is_vector(left) && *right == self.constant) || (is_vector(right) && *left == self.constant))
    }
}

/// Tells whether a name may be that of a hidden column of the search.
fn is_hidden(name: &str) -> bool {
    name.ends_with('#')
}

fn is_constant(expr: &Expr) -> bool {
    needs_only(expr, |_| false)
}

/// Returns the value of an expression, as an array of one value; `None` if it is not a constant.
pub(super) fn constant(expr: &Expr) -> Option<ArrayRef> {
    if !is_constant(expr) {
        return None;
    }
    let physical = create_physical_expr(expr, &DFSchema::empty(), &ExecutionProps::new()).ok()?;
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).ok()?;
    physical.evaluate(&row).ok()?.into_array(1).ok()
}

/// Returns an expression over the output of `plan` as one over the columns of the table below it; `None` if it would be
/// too large, calls a volatile function, or depends on an enclosing query.
fn over_table(mut expr: Expr, mut plan: &LogicalPlan) -> Result<Option<Expr>> {
    let mut growth = 0;
    loop {
        if let LogicalPlan::Filter(filter) = plan {
            plan = filter.input.as_ref();
            continue;
        }
        let (correlated, nested) = correlated_columns(&expr)?;
        if expr.is_volatile() || expr.contains_outer() || !nested.is_empty() {
            return Ok(None);
        }
        let counted = expr.column_refs_counts().into_iter().map(|(column, count)| (column.clone(), count));
        let columns: Vec<(Column, usize)> = counted.chain(correlated.into_iter().map(|column| (column, 1))).collect();
        let mut replacements: Vec<Replacement> = Vec::with_capacity(columns.len());
        for (column, count) in columns {
            let Some(index) = plan.schema().maybe_index_of_column(&column) else { return Ok(None) };
            let below = match plan {
                LogicalPlan::Projection(projection) => projection.expr[index].clone().unalias(),
                LogicalPlan::SubqueryAlias(alias) => {
                    Expr::Column(Column::from(alias.input.schema().qualified_field(index)))
                }
                LogicalPlan::TableScan(_) => Expr::Column(searched_column(plan.schema().field(index).name())),
                _ => return Ok(None),
            };
            growth += count.saturating_mul(num_nodes(&below)?.saturating_sub(1));
            if growth > GROWTH_MAX || has_subquery(&below) {
                return Ok(None);
            }
            replacements.push((column, below));
        }
        // A subquery may refer to a column that is computed below.
        let refuse = |reason: &str| Error::internal(reason);
        let Ok(below) = replaced(expr, &replacements, &refuse) else { return Ok(None) };
        expr = below;
        plan = match plan {
            LogicalPlan::Projection(projection) => projection.input.as_ref(),
            LogicalPlan::SubqueryAlias(alias) => alias.input.as_ref(),
            _ => return Ok(Some(expr.unalias_nested().data)),
        };
    }
}

fn num_nodes(expr: &Expr) -> Result<usize> {
    let mut num_nodes = 0_usize;
    expr.apply(|_| {
        num_nodes += 1;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(num_nodes)
}
