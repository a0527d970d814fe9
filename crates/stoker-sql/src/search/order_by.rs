//! Turns `ORDER BY` a distance with `LIMIT` over one table into a search for the rows that come first.
//!
//! ```text
//! Limit 10                            Limit 10
//!   Projection image                    Projection image
//!     Sort emb <-> [1, 2]       ─►        Sort rank#
//!       Projection image, emb               Projection image, emb, distance#, rank#
//!         Filter label = 3                    TableScan, a search ── exact: Sort distance, row address (10 rows)
//!           TableScan                                                  Projection row address, distance
//!                                                                        Filter label = 3
//!                                                                          TableScan
//! ```
//!
//! The plan `exact` computes distances by the same function as the plan on the left, so both give the same rows, also
//! where a distance is NULL or NaN. It reads the vectors, narrow columns, and what predicates name; other columns are
//! read for the found rows only. Ties are ordered by row address, where SQL leaves their order open.
//!
//! With [`OrderByDistance::Index`], the search has a second plan, in which the scan is a search by an index. It orders
//! the rows that the index leads to in the same way, and has the filter as a prefilter. Where it gives fewer than k
//! rows, as rows without a distance are in no index, `exact` runs instead.
//!
//! A plan of any other shape stays as it is.

use std::sync::Arc;

use arrow_array::Array as _;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, SortOptions};
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Column, Result as DfResult, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Filter, Limit, LogicalPlan, Projection, Sort, SortExpr, SubqueryAlias, TableScan};
use datafusion::prelude::Expr;
use stoker_columns::{fixed_row_bytes, is_heavy};
use stoker_lake::{Metric, ROW_ADDR, Table};
use stoker_types::{OrderByDistance, QueryOptions, Snapshot};

use super::nearest::NUM_EXTRA;
use super::options::K_MAX;
use super::prefilter::{prefilter, searched_column};
use super::top_rows::{DistanceCall, TopRows, constant};
use super::vector_type::VectorType;
use super::{IndexPlan, QuerySource, SEARCHED, Search, SearchKind, TopKSearch, VectorSearch};
use crate::params::list_numbers;
use crate::provider::{OutputColumn, Relation};
use crate::{Error, Result};

/// The hidden columns of the search: the distance, and the rank from 1.
const TOP_DISTANCE: &str = "distance#";
const TOP_RANK: &str = "rank#";
/// Light columns of at most this many bytes a row are read together with the vectors.
const NARROW_BYTES: usize = 16;
/// Wider light columns are read together with the vectors unless the table has this many rows for each row that is
/// found, and for as many rows at least: reading a row by its address costs more than reading it in a scan.
const ROWS_PER_FOUND_ROW: usize = 16;
const FOUND_ROWS_MIN: usize = 1_024;

/// An index that answers searches of a column.
struct UsableIndex {
    snapshot: Snapshot,
    column: String,
    metric: Metric,
    name: String,
}

/// A plan in which the scan is replaced, and which columns of its output are the vectors. The last two columns are the
/// hidden ones.
struct Rebuilt {
    plan: LogicalPlan,
    is_vector: Vec<bool>,
}

/// Returns the plan with searches for the first rows; `None` if no part of it has the shape.
///
/// # Errors
/// Storage errors of opening an index, which is only done for [`OrderByDistance::Index`].
pub(crate) async fn search_by_order(plan: &LogicalPlan, options: QueryOptions) -> Result<Option<LogicalPlan>> {
    let columns = searched_columns(plan)?;
    if columns.is_empty() {
        return Ok(None);
    }
    let indexes = match options.order_by_distance {
        OrderByDistance::Exact => Vec::new(),
        OrderByDistance::Index => usable_indexes(columns).await?,
    };
    let mut num_searches = 0;
    let rewritten = plan.clone().transform_up_with_subqueries(|node| {
        let LogicalPlan::Limit(limit) = node else { return Ok(Transformed::no(node)) };
        let Some(k) = num_rows(&limit) else { return Ok(Transformed::no(LogicalPlan::Limit(limit))) };
        let Limit { skip, fetch, input } = limit;
        let input = at_sort(Arc::unwrap_or_clone(input), &mut |sort| {
            num_searches += 1;
            Ok(rewritten(sort, k, &indexes, num_searches)?)
        })?;
        Ok(input.update_data(|input| LogicalPlan::Limit(Limit { skip, fetch, input: Arc::new(input) })))
    })?;
    Ok(Some(rewritten.data))
}

/// Returns the columns by whose distances a plan orders rows, with their tables.
fn searched_columns(plan: &LogicalPlan) -> Result<Vec<(Table, String, Metric)>> {
    let mut columns = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Limit(limit) = node
            && let Some(sort) = sort_below(&limit.input)
            && num_rows(limit).is_some()
            && let Some(TopRows { relation, distance, .. }) = TopRows::of(sort)?
        {
            columns.push((relation.table().clone(), distance.column, distance.function.metric));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(columns)
}

async fn usable_indexes(columns: Vec<(Table, String, Metric)>) -> Result<Vec<UsableIndex>> {
    let mut usable = Vec::new();
    for (table, column, metric) in columns {
        if let Some(name) = table.search_index(&column, metric).await? {
            usable.push(UsableIndex { snapshot: table.snapshot(), column, metric, name });
        }
    }
    Ok(usable)
}

/// Returns the number of rows that a limit needs of its input, with those that it skips; `None` if it is not a constant
/// from 1 to the most rows of a search.
fn num_rows(limit: &Limit) -> Option<usize> {
    let skip = limit.skip.as_deref().map_or(Some(0), whole_number)?;
    let fetch = limit.fetch.as_deref().and_then(whole_number)?;
    let needed = fetch.checked_add(skip)?;
    (skip >= 0 && fetch >= 1 && needed <= K_MAX).then(|| usize::try_from(needed).ok())?
}

fn whole_number(expr: &Expr) -> Option<i64> {
    let value = cast(&constant(expr)?, &DataType::Int64).ok()?;
    let value = value.as_primitive_opt::<Int64Type>()?;
    value.is_valid(0).then(|| value.value(0))
}

/// Returns the sort at the top of a plan. Projections and aliases above it keep its rows and their order.
fn sort_below(plan: &LogicalPlan) -> Option<&Sort> {
    match plan {
        LogicalPlan::Sort(sort) => Some(sort),
        LogicalPlan::Projection(projection) => sort_below(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => sort_below(&alias.input),
        _ => None,
    }
}

/// Replaces the sort that [`sort_below`] finds.
fn at_sort(
    plan: LogicalPlan,
    rewrite: &mut dyn FnMut(&Sort) -> DfResult<Option<LogicalPlan>>,
) -> DfResult<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(sort) => Ok(match rewrite(&sort)? {
            Some(rewritten) => Transformed::yes(rewritten),
            None => Transformed::no(LogicalPlan::Sort(sort)),
        }),
        plan @ (LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_)) => {
            plan.map_children(|child| at_sort(child, rewrite))
        }
        plan => Ok(Transformed::no(plan)),
    }
}

fn rewritten(sort: &Sort, k: usize, indexes: &[UsableIndex], number: usize) -> Result<Option<LogicalPlan>> {
    let Some(top) = TopRows::of(sort)? else { return Ok(None) };
    let carried = top.carried(k);
    let Some(exact) = top.first_rows(top.filtered()?, &carried, k)? else { return Ok(None) };
    let by_index = match top.usable(indexes) {
        Some(index) => top.found_by_index(index, k)?,
        None => None,
    };
    let by_index = match by_index {
        Some((index, found)) => {
            top.first_rows(found, &carried, k)?.map(|plan| IndexPlan { index, plan: Arc::new(plan) })
        }
        None => None,
    };
    let option = |key: &SortExpr| SortOptions { descending: !key.asc, nulls_first: key.nulls_first };
    let search = TopKSearch {
        column: top.distance.column.clone(),
        function: top.distance.function.name,
        k,
        order: top.keys.iter().map(option).collect(),
        carried,
        exact: Arc::new(exact),
        by_index,
    };
    let relation = top.relation.with_search(Search { kind: SearchKind::TopK(search), prefilter: None });
    let relation = relation
        .with_hidden(Field::new(TOP_DISTANCE, DataType::Float32, true), OutputColumn::Distance)
        .with_hidden(Field::new(TOP_RANK, DataType::Int64, false), OutputColumn::Rank);
    // As for prefilters, the scan gets a name of its own.
    let name = TableReference::bare(format!("{}/top{number}", top.scan.table_name.table()));
    let scan = TableScan::try_new(name, provider_as_source(Arc::new(relation)), None, Vec::new(), None)?;
    let Rebuilt { plan, .. } = rebuilt(&sort.input, LogicalPlan::TableScan(scan), &top.distance)?;
    let [_, rank] = hidden_columns(&plan);
    let by_rank = vec![Expr::Column(rank).sort(true, false)];
    let sorted = LogicalPlan::Sort(Sort { expr: by_rank, input: Arc::new(plan), fetch: None });
    let schema = sort.input.schema().clone();
    let visible = schema.iter().map(|field| Expr::Column(Column::from(field))).collect();
    Ok(Some(LogicalPlan::Projection(Projection::try_new_with_schema(visible, Arc::new(sorted), schema)?)))
}

/// Returns the plan with another scan and without its filters. Calls of the distance become the hidden column.
fn rebuilt(plan: &LogicalPlan, scan: LogicalPlan, distance: &DistanceCall) -> Result<Rebuilt> {
    match plan {
        LogicalPlan::TableScan(_) => {
            let is_vector = scan.schema().fields().iter().map(|field| *field.name() == distance.column).collect();
            Ok(Rebuilt { plan: scan, is_vector })
        }
        LogicalPlan::Filter(filter) => rebuilt(&filter.input, scan, distance),
        LogicalPlan::SubqueryAlias(alias) => {
            let Rebuilt { plan, is_vector } = rebuilt(&alias.input, scan, distance)?;
            let plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(plan), alias.alias.clone())?);
            Ok(Rebuilt { plan, is_vector })
        }
        LogicalPlan::Projection(projection) => {
            let below = rebuilt(&projection.input, scan, distance)?;
            let hidden = hidden_columns(&below.plan);
            let is_vector = |expr: &Expr| match expr {
                Expr::Column(column) => {
                    let index = below.plan.schema().maybe_index_of_column(column);
                    index.is_some_and(|index| below.is_vector[index])
                }
                _ => false,
            };
            let names = NamePreserver::new_for_projection();
            let mut exprs = Vec::with_capacity(projection.expr.len() + hidden.len());
            let mut are_vectors = Vec::with_capacity(projection.expr.len() + hidden.len());
            for expr in &projection.expr {
                let name = names.save(expr);
                let replaced = expr.clone().transform_down(|node| {
                    let is_distance = matches!(&node, Expr::ScalarFunction(call) if distance.is_same(call, is_vector));
                    Ok(match is_distance {
                        true => Transformed::new(Expr::Column(hidden[0].clone()), true, TreeNodeRecursion::Jump),
                        false => Transformed::no(node),
                    })
                })?;
                exprs.push(name.restore(replaced.data));
                are_vectors.push(is_vector(&expr.clone().unalias_nested().data));
            }
            exprs.extend(hidden.map(Expr::Column));
            are_vectors.extend([false, false]);
            let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(below.plan))?);
            Ok(Rebuilt { plan, is_vector: are_vectors })
        }
        _ => Err(Error::internal("the shape of a plan changed while it was rewritten")),
    }
}

/// The last two columns of a plan: distance and rank.
fn hidden_columns(plan: &LogicalPlan) -> [Column; 2] {
    let schema = plan.schema();
    let num_visible = schema.fields().len().saturating_sub(2);
    [0, 1].map(|index| Column::from(schema.qualified_field(num_visible + index)))
}

impl TopRows<'_> {
    /// The columns that are read together with the vectors: those that the plan reads, unless they are heavy, or wide and
    /// few rows of the table are found.
    fn carried(&self, k: usize) -> Vec<String> {
        let num_rows = self.relation.table().num_rows();
        let few_are_found = num_rows >= ROWS_PER_FOUND_ROW.saturating_mul(k.max(FOUND_ROWS_MIN)) as u64;
        let is_carried = |field: &&Arc<Field>| {
            let is_read = self.read.as_ref().is_none_or(|read| read.contains(field.name()));
            let is_narrow = fixed_row_bytes(field.data_type()).is_some_and(|bytes| bytes <= NARROW_BYTES);
            is_read && !is_heavy(field) && (is_narrow || !few_are_found)
        };
        let schema = self.relation.table().schema();
        schema.fields().iter().filter(is_carried).map(|field| field.name().clone()).collect()
    }

    /// The rows of the table that pass the filters.
    fn filtered(&self) -> Result<LogicalPlan> {
        let scan = LogicalPlan::TableScan(scan_of(self.with_row_addrs())?);
        Ok(match conjunction(self.predicates.clone()) {
            Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(scan))?),
            None => scan,
        })
    }

    /// Returns the index that may be used. SQL puts NULL first where rows are ordered by a descending similarity without
    /// `NULLS LAST`; rows without a distance are in no index, so the column must have a distance in every row then.
    fn usable<'b>(&self, indexes: &'b [UsableIndex]) -> Option<&'b UsableIndex> {
        let (metric, column) = (self.distance.function.metric, &self.distance.column);
        let schema = self.relation.table().schema();
        let may_be_null = metric == Metric::Cosine || schema.field_with_name(column).is_ok_and(Field::is_nullable);
        if self.relation.has_row_ids() || self.keys.first().is_some_and(|key| key.nulls_first && may_be_null) {
            return None;
        }
        let snapshot = self.relation.table().snapshot();
        indexes.iter().find(|index| index.snapshot == snapshot && index.column == *column && index.metric == metric)
    }

    /// Returns the name of an index and the rows to which it leads, if the constant is a vector that can be searched for.
    fn found_by_index(&self, index: &UsableIndex, k: usize) -> Result<Option<(String, LogicalPlan)>> {
        let schema = self.relation.table().schema();
        let vector_type = schema.field_with_name(&index.column).ok().map(|field| VectorType::of(field.data_type()));
        let numbers = constant(&self.distance.constant).and_then(|vector| list_numbers(&vector));
        let (Some(Ok(vector_type)), Some(numbers)) = (vector_type, numbers) else { return Ok(None) };
        let Ok(query) = vector_type.query(&numbers, index.metric) else { return Ok(None) };
        let search = VectorSearch {
            column: index.column.clone(),
            vector_type,
            query: QuerySource::Given(query),
            // Lance rounds distances otherwise than the functions do, which decides among nearly equal rows.
            k: k.saturating_add(NUM_EXTRA),
            metric: index.metric,
            use_index: true,
            nprobes: None,
            refine: None,
        };
        let mut rows = self.with_row_addrs().with_search(Search { kind: SearchKind::Vector(search), prefilter: None });
        if let Some(predicate) = conjunction(self.predicates.clone()) {
            rows = rows.with_prefilter(prefilter(&rows, predicate)?);
        }
        Ok(Some((index.name.clone(), LogicalPlan::TableScan(scan_of(rows)?))))
    }

    /// Returns the plan of the first rows of `rows`: address, keys, and carried columns; `None` if a key cannot be compared.
    fn first_rows(&self, rows: LogicalPlan, carried: &[String], k: usize) -> Result<Option<LogicalPlan>> {
        let row_addr = Expr::Column(searched_column(ROW_ADDR));
        let mut exprs = vec![row_addr.clone()];
        exprs.extend(self.keys.iter().enumerate().map(|(index, key)| key.expr.clone().alias(key_name(index))));
        exprs.extend(carried.iter().map(|name| Expr::Column(searched_column(name))));
        let rows = Projection::try_new(exprs, Arc::new(rows))?;
        let mut keys = rows.schema.fields().iter().skip(1).take(self.keys.len());
        if keys.any(|key| key.data_type().is_nested()) {
            return Ok(None);
        }
        let key = |(index, key): (usize, &SortExpr)| {
            Expr::Column(Column::new_unqualified(key_name(index))).sort(key.asc, key.nulls_first)
        };
        let mut order: Vec<SortExpr> = self.keys.iter().enumerate().map(key).collect();
        order.push(row_addr.sort(true, false));
        let input = Arc::new(LogicalPlan::Projection(rows));
        Ok(Some(LogicalPlan::Sort(Sort { expr: order, input, fetch: Some(k) })))
    }

    fn with_row_addrs(&self) -> Relation {
        self.relation.with_hidden(Field::new(ROW_ADDR, DataType::UInt64, true), OutputColumn::RowAddr)
    }
}

fn key_name(index: usize) -> String {
    format!("key{index}#")
}

fn scan_of(relation: Relation) -> Result<TableScan> {
    let source = provider_as_source(Arc::new(relation));
    Ok(TableScan::try_new(TableReference::bare(SEARCHED), source, None, Vec::new(), None)?)
}
