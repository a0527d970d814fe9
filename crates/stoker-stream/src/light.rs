//! Columns that do not come by chunk scan.

use std::collections::BTreeMap;

use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use stoker_chunks::{RetryPolicy, with_retries};
use stoker_sql::{NO_ROW, ResolvedRows};

use crate::plan::{ColumnPlan, PlanInner};
use crate::{Error, Result};

/// Reads the light columns of a unit: for each column that is not dense, one array with a value for each of `rows`, which are
/// indexes into `resolved`.
pub(crate) async fn read_light(
    plan: &PlanInner,
    resolved: &ResolvedRows,
    rows: &[u64],
) -> Result<Vec<Option<ArrayRef>>> {
    let mut arrays: Vec<Option<ArrayRef>> = vec![None; plan.columns.len()];
    let mut groups: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (index, column) in plan.columns.iter().enumerate() {
        match column {
            ColumnPlan::Dense { .. } => {}
            ColumnPlan::RowSet { index: stored } => {
                let indices = UInt64Array::from(rows.to_vec());
                arrays[index] = Some(take(&resolved.columns[*stored], &indices, None).map_err(Error::arrow)?);
            }
            ColumnPlan::Table { sources } => {
                groups.entry(sources.iter().map(|(source, _)| *source).collect()).or_default().push(index);
            }
        }
    }
    for (sources, columns) in groups {
        for (column, array) in columns.iter().zip(read_group(plan, resolved, rows, &sources, &columns).await?) {
            arrays[*column] = Some(array);
        }
    }
    Ok(arrays)
}

/// Reads columns that share their sources: one read per source.
async fn read_group(
    plan: &PlanInner,
    resolved: &ResolvedRows,
    rows: &[u64],
    sources: &[usize],
    columns: &[usize],
) -> Result<Vec<ArrayRef>> {
    // For each row, which source supplies it, and its place among that source's rows.
    let mut addrs: Vec<Vec<u64>> = vec![Vec::new(); sources.len()];
    let mut places = Vec::with_capacity(rows.len());
    for row in rows {
        let supplier = sources.iter().position(|source| resolved.addrs[*source][*row as usize] != NO_ROW);
        let Some(supplier) = supplier else { return Err(Error::Internal { reason: "a row without a source".into() }) };
        places.push((supplier, addrs[supplier].len()));
        addrs[supplier].push(resolved.addrs[sources[supplier]][*row as usize]);
    }
    let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); columns.len()];
    for (supplier, (source, addrs)) in sources.iter().zip(&addrs).enumerate() {
        let names: Vec<String> = columns.iter().map(|column| name(&plan.columns[*column], supplier)).collect();
        let table = &plan.row_set.sources()[*source];
        let attempt = || table.take(&names, addrs);
        let batch = with_retries(RetryPolicy::default(), stoker_lake::Error::kind, |_| {}, attempt).await?;
        for (part, name) in parts.iter_mut().zip(&names) {
            let array = batch.column_by_name(name);
            let array = array.ok_or_else(|| Error::Internal { reason: format!("column {name} was not read") })?;
            part.push(array.clone());
        }
    }
    let join = |parts: Vec<ArrayRef>| match parts.as_slice() {
        [one] => Ok(one.clone()),
        many => interleave(&many.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>(), &places).map_err(Error::arrow),
    };
    parts.into_iter().map(join).collect()
}

fn name(column: &ColumnPlan, supplier: usize) -> String {
    match column {
        ColumnPlan::Table { sources } => sources[supplier].1.clone(),
        ColumnPlan::Dense { .. } | ColumnPlan::RowSet { .. } => String::new(),
    }
}
