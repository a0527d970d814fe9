//! Plans the selection of rows: row addresses and light columns, no heavy columns.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, Projection, Sort};
use datafusion::prelude::Expr;
use stoker_columns::is_heavy;
use stoker_lake::Table;

use super::carried::{Carried, Role, visible};
use super::lift::{LiftedQuery, Origin};
use super::split::split_of;
use super::{ColumnSource, SampleColumn, Split};
use crate::{Error, Result};

/// The plan whose result is a row set.
pub(crate) struct Selection {
    pub(crate) state: SessionState,
    /// The plan. Its output is one `UInt64` address for each source, then the columns of the row set; the rows are in
    /// final order if `ranked`.
    pub(crate) plan: LogicalPlan,
    /// The table of each source.
    pub(crate) sources: Vec<Table>,
    /// Whether the row set stores a sequence of rows. If not, it stores a set of addresses of one source.
    pub(crate) ranked: bool,
    /// Whether the query defines the order.
    pub(crate) ordered: bool,
    /// How the rows can be selected.
    pub(crate) split: Split,
}

/// Decides for each output column whether a table or the row set supplies it.
pub(super) fn select(
    lifted: LiftedQuery,
    fields: &[FieldRef],
    state: SessionState,
) -> Result<(Vec<SampleColumn>, Selection)> {
    let LiftedQuery { root, tables } = lifted;
    let carried: Vec<usize> =
        root.carried.iter().filter(|carried| carried.role == Role::RowAddr).map(|carried| carried.source).collect();
    if carried.is_empty() {
        return Err(not_samples(fields, &root.origins));
    }
    let kept = kept_sources(&carried, &root.origins);
    let mut columns = Vec::with_capacity(fields.len());
    let mut computed = Vec::new();
    let shown = visible(&root.plan);
    for ((field, origin), column) in fields.iter().zip(&root.origins).zip(&shown) {
        let source = match origin {
            Origin::Bare(candidates) => ColumnSource::Table(
                candidates
                    .iter()
                    .filter_map(|(source, name)| Some((kept.iter().position(|k| k == source)?, name.clone())))
                    .collect(),
            ),
            Origin::Other(reason) if is_heavy(field) => return Err(heavy(field, reason)),
            Origin::Other(_) if matches!(field.data_type(), DataType::FixedSizeList(_, 0)) => {
                let reason = format!("its column {} is a list without elements; leave it out", field.name());
                return Err(Error::NotSampleQuery { reason });
            }
            Origin::Other(_) => {
                computed.push(Expr::Column(column.clone()));
                ColumnSource::RowSet(computed.len() - 1)
            }
        };
        let optional = matches!(origin, Origin::Bare(candidates)
            if candidates.iter().any(|(source, _)| root.optional.contains(source)));
        columns.push(SampleColumn { field: field.clone(), source, optional });
    }
    let searches = root.carried.iter().any(|carried| carried.role != Role::RowAddr);
    let ordered = root.sorted || searches;
    let ranked = ordered || root.repeats || kept.len() > 1 || !computed.is_empty();
    let mut exprs = Vec::with_capacity(kept.len() + computed.len());
    for source in &kept {
        let addr = Carried { role: Role::RowAddr, source: *source }.column(&root.plan);
        exprs.push(addr.ok_or_else(|| Error::internal("a lifted plan lost a row address"))?);
    }
    let computed = computed.into_iter().enumerate().map(|(index, expr)| expr.alias(format!("c{index}")));
    exprs.extend(computed);
    let split = split_of(&root.plan)?;
    let natural = root.natural_order()?;
    let mut plan = root.plan;
    if ranked && !root.sorted {
        plan = LogicalPlan::Sort(Sort { expr: natural, input: Arc::new(plan), fetch: None });
    }
    let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
    let sources = kept.iter().map(|source| tables[*source].clone()).collect();
    Ok((columns, Selection { state, plan, sources, ranked, ordered, split }))
}

/// Returns the sources that supply a column, in order, or all sources if none does, so that rows can still be
/// identified.
fn kept_sources(carried: &[usize], origins: &[Origin]) -> Vec<usize> {
    let supplies = |source: usize| {
        origins.iter().any(|origin| match origin {
            Origin::Bare(candidates) => candidates.iter().any(|(candidate, _)| *candidate == source),
            Origin::Other(_) => false,
        })
    };
    let used: Vec<usize> = carried.iter().copied().filter(|source| supplies(*source)).collect();
    if used.is_empty() { carried.to_vec() } else { used }
}

fn heavy(field: &FieldRef, reason: &str) -> Error {
    Error::NotSampleQuery {
        reason: format!("column {} is heavy and {reason}; select the column of a table unchanged", field.name()),
    }
}

fn not_samples(fields: &[FieldRef], origins: &[Origin]) -> Error {
    let first = fields.iter().zip(origins).find_map(|(field, origin)| match origin {
        Origin::Other(reason) => Some(format!("column {} {reason}", field.name())),
        Origin::Bare(_) => None,
    });
    let detail = first.map(|text| format!(" ({text})")).unwrap_or_default();
    Error::NotSampleQuery { reason: format!("its output rows are not rows of a table{detail}") }
}
