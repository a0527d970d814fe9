//! Rewrites an analysed plan so that row addresses reach its output.
//!
//! ```text
//! Projection label, image           Projection label, image, addr_0
//!   Filter split = 'train'     ─►     Filter split = 'train'
//!     TableScan t                       TableScan t + addr_0
//! ```
//!
//! Operators that keep rows pass the addresses on; aggregates and DISTINCT drop them. The lifted plan also records the
//! [`Origin`] of each visible column, whether rows are ordered, and whether they may repeat. Sorts get addresses as
//! tie-breakers, and a LIMIT without an order gets a sort, so that the same snapshots always give the same rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{
    Aggregate, Distinct, Filter, Join, JoinType, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Sort, SortExpr,
    Subquery, SubqueryAlias, TableScan, Union, Unnest, Window,
};
use datafusion::prelude::Expr;
use stoker_columns::is_heavy;
use stoker_lake::Table;

use super::carried::{Carried, Role, names, visible};
use crate::provider::Relation;
use crate::search::SearchKind;
use crate::{Error, Result};

mod window;

/// A plan whose output has row addresses where possible, and what is known about its rows.
pub(super) struct Lifted {
    pub(super) plan: LogicalPlan,
    /// The origin of each visible column, in order.
    pub(super) origins: Vec<Origin>,
    /// The hidden columns of the plan: distances first, then addresses, by source.
    pub(super) carried: Vec<Carried>,
    /// Whether `ORDER BY` orders the rows.
    pub(super) sorted: bool,
    /// Whether a table row may occur twice.
    pub(super) repeats: bool,
    /// Whether some rows come from an operator without row addresses, so that addresses may not identify them.
    pub(super) lossy: bool,
    /// The sources that may be missing from a row because of an outer join.
    pub(super) optional: BTreeSet<usize>,
}

/// The source of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An unchanged column of a scan whose row address is carried. After a UNION there are several.
    Bare(Vec<(usize, String)>),
    /// Another source, in plain words that follow the column's name, such as `goes through an aggregate`.
    Other(String),
}

impl Origin {
    pub(super) fn other(reason: &str) -> Self {
        Origin::Other(reason.to_string())
    }

    /// Returns the origin after an operator that drops row addresses.
    pub(super) fn without_address(self, reason: &str) -> Self {
        match self {
            Origin::Bare(_) => Origin::other(reason),
            other => other,
        }
    }

    /// Returns the origin of a column of a UNION.
    pub(super) fn union(branches: impl IntoIterator<Item = Origin>) -> Self {
        let mut all = Vec::new();
        for branch in branches {
            match branch {
                Origin::Bare(candidates) => all.extend(candidates),
                other => return other,
            }
        }
        Origin::Bare(all)
    }
}

/// The lifted plan and its scanned tables. A source is an index into these tables.
pub(super) struct LiftedQuery {
    pub(super) root: Lifted,
    pub(super) tables: Vec<Table>,
}

pub(super) fn lift(plan: LogicalPlan) -> Result<LiftedQuery> {
    let mut lifter = Lifter { tables: Vec::new() };
    let root = lifter.lift(plan)?;
    Ok(LiftedQuery { root, tables: lifter.tables })
}

struct Lifter {
    tables: Vec<Table>,
}

impl Lifted {
    /// Creates a lifted plan whose rows have no addresses.
    fn plain(plan: LogicalPlan, reason: &str) -> Self {
        let origins = visible(&plan).iter().map(|_| Origin::other(reason)).collect();
        let optional = BTreeSet::new();
        Self { plan, origins, carried: Vec::new(), sorted: false, repeats: true, lossy: true, optional }
    }

    /// Returns the hidden columns as expressions.
    pub(super) fn carried_exprs(&self) -> Result<Vec<Expr>> {
        let missing = || Error::internal("a lifted plan lost a row address");
        self.carried.iter().map(|carried| carried.column(&self.plan).ok_or_else(missing)).collect()
    }

    /// Returns the plan with its visible columns only.
    pub(super) fn into_visible(self) -> Result<LogicalPlan> {
        if self.carried.is_empty() {
            return Ok(self.plan);
        }
        let columns = visible(&self.plan).into_iter().map(Expr::Column).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(self.plan))?))
    }

    /// Returns sort keys that order the rows completely: distances, then addresses, then all light columns if addresses
    /// may not identify the rows.
    pub(super) fn natural_order(&self) -> Result<Vec<SortExpr>> {
        let mut keys: Vec<SortExpr> = self.carried_exprs()?.into_iter().map(|expr| expr.sort(true, false)).collect();
        if self.lossy {
            for (qualifier, field) in self.plan.schema().iter() {
                let column = Column::from((qualifier, field));
                if !is_heavy(field) && visible(&self.plan).contains(&column) {
                    keys.push(Expr::Column(column).sort(true, false));
                }
            }
        }
        Ok(keys)
    }

    fn into_sorted(mut self) -> Result<Self> {
        let keys = self.natural_order()?;
        if !keys.is_empty() {
            self.plan = LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(self.plan), fetch: None });
        }
        Ok(self)
    }
}

/// Tells whether a column of an expression refers to this column of its input.
fn refers_to(column: &Column, known: &Column) -> bool {
    column == known || (column.relation.is_none() && column.name == known.name)
}

impl Lifter {
    fn lift(&mut self, plan: LogicalPlan) -> Result<Lifted> {
        let plan = self.lift_subqueries(plan)?;
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::SubqueryAlias(alias) => {
                let mut lifted = self.lift_shared(alias.input)?;
                lifted.plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(lifted.plan), alias.alias)?);
                Ok(lifted)
            }
            LogicalPlan::Filter(filter) => {
                let mut lifted = self.lift_shared(filter.input)?;
                lifted.plan = LogicalPlan::Filter(Filter::try_new(filter.predicate, Arc::new(lifted.plan))?);
                lifted.sorted = false;
                Ok(lifted)
            }
            LogicalPlan::Sort(sort) => self.sort(sort),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input),
            LogicalPlan::Distinct(Distinct::On(_)) => Err(Error::NotSampleQuery {
                reason: "DISTINCT ON is not supported here; use row_number() OVER (PARTITION BY …) in a subquery"
                    .into(),
            }),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            plan @ (LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_)) => {
                Ok(Lifted::plain(plan, "does not come from a table"))
            }
            plan @ LogicalPlan::Subquery(_) => Ok(Lifted::plain(plan, "comes from a LATERAL subquery")),
            other => {
                Err(Error::NotSampleQuery { reason: format!("the operator {} is not supported here", other.display()) })
            }
        }
    }

    fn lift_shared(&mut self, plan: Arc<LogicalPlan>) -> Result<Lifted> {
        self.lift(Arc::unwrap_or_clone(plan))
    }

    /// Makes the subqueries in the expressions of a node deterministic. The addresses of the subqueries' rows are not
    /// needed.
    fn lift_subqueries(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let mut failure = None;
        let mapped = plan.map_expressions(|expr| {
            expr.transform_up(|expr| match self.lift_subquery(expr) {
                Ok(mapped) => Ok(mapped),
                Err(error) => {
                    let text = error.to_string();
                    failure.get_or_insert(error);
                    Err(datafusion::error::DataFusionError::Plan(text))
                }
            })
        });
        match (mapped, failure) {
            (_, Some(error)) => Err(error),
            (mapped, None) => Ok(mapped?.data),
        }
    }

    fn lift_subquery(&mut self, mut expr: Expr) -> Result<Transformed<Expr>> {
        let subquery = match &mut expr {
            Expr::ScalarSubquery(subquery) => subquery,
            Expr::InSubquery(inner) => &mut inner.subquery,
            Expr::Exists(inner) => &mut inner.subquery,
            Expr::SetComparison(inner) => &mut inner.subquery,
            _ => return Ok(Transformed::no(expr)),
        };
        let Subquery { subquery: plan, .. } = &*subquery;
        let plan = self.lift_shared(plan.clone())?.into_visible()?;
        subquery.subquery = Arc::new(plan);
        Ok(Transformed::yes(expr))
    }

    fn scan(&mut self, scan: TableScan) -> Result<Lifted> {
        let provider = source_as_provider(&scan.source)?;
        let Some(relation) = Relation::of(&provider) else {
            return Ok(Lifted::plain(LogicalPlan::TableScan(scan), "does not come from a table of the lake"));
        };
        if relation.has_row_ids() {
            return Ok(Lifted::plain(
                LogicalPlan::TableScan(scan),
                "comes from row_ids(…), which streams do not need: batches contain row ids",
            ));
        }
        let source = self.tables.len();
        self.tables.push(relation.table().clone());
        // Like subqueries, hidden plans must be deterministic, and the addresses of their rows are not needed.
        let relation = relation.map_hidden(&mut |hidden| self.lift(hidden)?.into_visible())?;
        let carrying = relation.with_carried(&names(source));
        let num_visible = scan.source.schema().fields().len();
        let num_all = datafusion::catalog::TableProvider::schema(&carrying).fields().len();
        let projection = scan.projection.map(|mut indices| {
            indices.extend(num_visible..num_all);
            indices
        });
        let order = relation.search().map(|search| match search.kind {
            SearchKind::Vector(_) => Role::Distance,
            SearchKind::Words(_) | SearchKind::Hybrid(_) | SearchKind::TopK(_) => Role::Rank,
        });
        let lifted = TableScan::try_new(
            scan.table_name,
            provider_as_source(Arc::new(carrying)),
            projection,
            scan.filters,
            scan.fetch,
        )?;
        let plan = LogicalPlan::TableScan(lifted);
        let table_schema = relation.table().schema();
        let origins = visible(&plan).into_iter().map(|column| match table_schema.field_with_name(&column.name) {
            Ok(_) => Origin::Bare(vec![(source, column.name)]),
            Err(_) => Origin::other("is computed by a search"),
        });
        let origins = origins.collect();
        let mut carried = vec![Carried { role: Role::RowAddr, source }];
        if let Some(role) = order {
            carried.insert(0, Carried { role, source });
        }
        Ok(Lifted { plan, origins, carried, sorted: false, repeats: false, lossy: false, optional: BTreeSet::new() })
    }

    fn projection(&mut self, projection: Projection) -> Result<Lifted> {
        let mut lifted = self.lift_shared(projection.input)?;
        let columns = visible(&lifted.plan);
        let origins = projection.expr.iter().map(|expr| match expr.clone().unalias_nested().data {
            Expr::Column(column) => match columns.iter().position(|known| refers_to(&column, known)) {
                Some(index) => lifted.origins[index].clone(),
                None => Origin::other("is computed"),
            },
            computed => Origin::Other(format!("is computed as {computed}")),
        });
        let origins = origins.collect();
        let mut exprs = projection.expr;
        exprs.extend(lifted.carried_exprs()?);
        lifted.plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(lifted.plan))?);
        lifted.origins = origins;
        Ok(lifted)
    }

    fn sort(&mut self, sort: Sort) -> Result<Lifted> {
        let mut lifted = self.lift_shared(sort.input)?;
        let mut keys = sort.expr;
        keys.extend(lifted.natural_order()?);
        lifted.plan = LogicalPlan::Sort(Sort { expr: keys, input: Arc::new(lifted.plan), fetch: sort.fetch });
        lifted.sorted = true;
        Ok(lifted)
    }

    fn limit(&mut self, limit: Limit) -> Result<Lifted> {
        let mut lifted = self.lift_shared(limit.input)?;
        if !lifted.sorted {
            lifted = lifted.into_sorted()?;
        }
        let input = Arc::new(lifted.plan);
        lifted.plan = LogicalPlan::Limit(Limit { skip: limit.skip, fetch: limit.fetch, input });
        Ok(lifted)
    }

    fn join(&mut self, join: Join) -> Result<Lifted> {
        let left = self.lift_shared(join.left)?;
        let right = self.lift_shared(join.right)?;
        let Join { on, filter, join_type, join_constraint, null_equality, null_aware, .. } = join;
        let (left_plan, right_plan) = (Arc::new(left.plan), Arc::new(right.plan));
        let plan =
            Join::try_new(left_plan, right_plan, on, filter, join_type, join_constraint, null_equality, null_aware)?;
        let mark = || Origin::other("is computed by a semi-join");
        let mut optional: BTreeSet<usize> = left.optional.union(&right.optional).copied().collect();
        if matches!(join_type, JoinType::Left | JoinType::Full) {
            optional.extend(right.carried.iter().map(|carried| carried.source));
        }
        if matches!(join_type, JoinType::Right | JoinType::Full) {
            optional.extend(left.carried.iter().map(|carried| carried.source));
        }
        let (mut origins, mut carried, repeats, lossy) = match join_type {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (left.origins, left.carried, left.repeats, left.lossy)
            }
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                (right.origins, right.carried, right.repeats, right.lossy)
            }
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                let origins = left.origins.into_iter().chain(right.origins).collect();
                let carried = left.carried.into_iter().chain(right.carried).collect();
                (origins, carried, true, left.lossy || right.lossy)
            }
        };
        if matches!(join_type, JoinType::LeftMark | JoinType::RightMark) {
            origins.push(mark());
        }
        carried.sort_unstable();
        Ok(Lifted { plan: LogicalPlan::Join(plan), origins, carried, sorted: false, repeats, lossy, optional })
    }

    fn union(&mut self, union: Union) -> Result<Lifted> {
        let branches: Vec<Lifted> =
            union.inputs.into_iter().map(|input| self.lift_shared(input)).collect::<Result<_>>()?;
        let mut carried: Vec<Carried> = branches.iter().flat_map(|branch| branch.carried.clone()).collect();
        carried.sort_unstable();
        let num_columns = branches.first().map_or(0, |branch| branch.origins.len());
        let origins = (0..num_columns)
            .map(|index| Origin::union(branches.iter().map(|branch| branch.origins[index].clone())))
            .collect();
        let repeats = branches.iter().any(|branch| branch.repeats);
        let lossy = branches.iter().any(|branch| branch.lossy);
        let optional = branches.iter().flat_map(|branch| branch.optional.iter().copied()).collect();
        let mut inputs = Vec::with_capacity(branches.len());
        for branch in branches {
            let mut exprs: Vec<Expr> = visible(&branch.plan).into_iter().map(Expr::Column).collect();
            // The aliases have no qualifiers, so that the hidden columns of all branches have the same names.
            exprs.extend(carried.iter().map(|carried| match carried.column(&branch.plan) {
                Some(column) => column.alias(carried.name()),
                None => carried.null(),
            }));
            inputs.push(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(branch.plan))?)));
        }
        let plan = LogicalPlan::Union(Union::try_new(inputs)?);
        Ok(Lifted { plan, origins, carried, sorted: false, repeats, lossy, optional })
    }

    fn window(&mut self, window: Window) -> Result<Lifted> {
        let mut lifted = self.lift_shared(window.input)?;
        let keys = lifted.natural_order()?;
        let exprs: Vec<Expr> =
            window.window_expr.into_iter().map(|expr| window::with_ties(expr, &keys)).collect::<Result<_>>()?;
        lifted.origins.extend(exprs.iter().map(|_| Origin::other("is computed by a window function")));
        lifted.plan = LogicalPlan::Window(Window::try_new(exprs, Arc::new(lifted.plan))?);
        lifted.sorted = false;
        Ok(lifted)
    }

    fn aggregate(&mut self, aggregate: Aggregate) -> Result<Lifted> {
        let lifted = self.lift_shared(aggregate.input)?;
        let plan = Aggregate::try_new(Arc::new(lifted.plan), aggregate.group_expr, aggregate.aggr_expr)?;
        Ok(Lifted::plain(LogicalPlan::Aggregate(plan), "goes through an aggregate"))
    }

    fn distinct(&mut self, input: Arc<LogicalPlan>) -> Result<Lifted> {
        let lifted = self.lift_shared(input)?;
        let reason = "goes through DISTINCT (or UNION without ALL)";
        let origins = lifted.origins.iter().cloned().map(|origin| origin.without_address(reason)).collect();
        let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(lifted.into_visible()?)));
        Ok(Lifted { origins, ..Lifted::plain(plan, reason) })
    }

    fn unnest(&mut self, unnest: Unnest) -> Result<Lifted> {
        let lifted = self.lift_shared(unnest.input)?;
        let unnested = |input: usize| {
            unnest.list_type_columns.iter().any(|(index, _)| *index == input)
                || unnest.struct_type_columns.contains(&input)
        };
        let origins = unnest.dependency_indices.iter().map(|input| match unnested(*input) {
            true => Origin::other("is unnested"),
            false => lifted.origins.get(*input).cloned().unwrap_or_else(|| Origin::other("is unnested")),
        });
        let origins = origins.collect();
        let (carried, optional) = (lifted.carried, lifted.optional);
        let plan = LogicalPlanBuilder::from(lifted.plan)
            .unnest_columns_with_options(unnest.exec_columns, unnest.options)?
            .build()?;
        Ok(Lifted { plan, origins, carried, sorted: false, repeats: true, lossy: true, optional })
    }
}
