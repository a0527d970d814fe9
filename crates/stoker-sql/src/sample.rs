//! Sample queries: compiles an analysed plan to the plan of a row set.

mod carried;
mod determinism;
mod lift;
mod selection;
mod split;

pub(crate) use selection::Selection;
pub use split::Split;
pub(crate) use split::limited;

use std::fmt;
use std::sync::Arc;

use arrow_schema::{FieldRef, Schema, SchemaRef};
use stoker_columns::fitting;
use stoker_lake::Table;
use stoker_types::{ParamValue, Snapshot};

use crate::planning::Planned;
use crate::{Error, Result};

/// A query whose output rows each carry the columns of given table rows unchanged, planned and pinned.
#[derive(Clone)]
pub struct SampleQuery {
    inner: Arc<Inner>,
}

struct Inner {
    sql: String,
    params: Vec<ParamValue>,
    schema: SchemaRef,
    snapshots: Vec<Snapshot>,
    columns: Vec<SampleColumn>,
    selection: Selection,
}

/// An output column of a sample query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleColumn {
    /// Name, type and metadata.
    pub field: FieldRef,
    /// The source of the column's values.
    pub source: ColumnSource,
    /// Whether an outer join may leave rows without a table row that supplies the column.
    pub optional: bool,
}

/// The source of the values of an output column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnSource {
    /// A table, by row address: pairs of an index into [`crate::RowSet::sources`] and a column of that table. After a
    /// UNION there are several pairs: each row takes its value from the source that supplies the row. The value is NULL
    /// if no source does, as in an outer join.
    Table(Vec<(usize, String)>),
    /// The row set: an index into [`crate::ResolvedRows::columns`].
    RowSet(usize),
}

/// Compiles an analysed plan, or returns why its rows are not samples.
pub(crate) fn compile(params: Vec<ParamValue>, planned: Planned) -> Result<SampleQuery> {
    determinism::check(&planned.plan)?;
    let fields: Vec<FieldRef> = planned.plan.schema().fields().iter().map(fitting).collect();
    for (index, field) in fields.iter().enumerate() {
        if fields[..index].iter().any(|earlier| earlier.name() == field.name()) {
            let reason = "name it with AS: a sample's columns are found by name";
            return Err(Error::refused(format!("two output columns are called {:?}", field.name()), reason));
        }
    }
    let lifted = lift::lift(planned.plan)?;
    let (columns, selection) = selection::select(lifted, &fields, planned.state)?;
    let schema = Arc::new(Schema::new(fields));
    let snapshots = planned.tables.iter().map(Table::snapshot).collect();
    let inner = Inner { sql: planned.sql, params, schema, snapshots, columns, selection };
    Ok(SampleQuery { inner: Arc::new(inner) })
}

impl SampleQuery {
    /// The text of the query, with the queries of views in place of their names.
    pub fn sql(&self) -> &str {
        &self.inner.sql
    }

    /// The parameters of the query.
    pub fn params(&self) -> &[ParamValue] {
        &self.inner.params
    }

    /// The columns of a sample.
    pub fn schema(&self) -> SchemaRef {
        self.inner.schema.clone()
    }

    /// The snapshots that the query reads: one for each table and version that the query names, in order of first
    /// appearance.
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.inner.snapshots
    }

    /// The columns of a sample, with their sources.
    pub fn columns(&self) -> &[SampleColumn] {
        &self.inner.columns
    }

    /// The tables that supply rows, which are the sources of the query's row set.
    pub fn tables(&self) -> &[Table] {
        &self.inner.selection.sources
    }

    /// Whether the order of the rows is defined by the query: by `ORDER BY`, or by the distance of a search.
    pub fn ordered(&self) -> bool {
        self.inner.selection.ordered
    }

    /// How the rows can be selected.
    pub fn split(&self) -> Split {
        self.inner.selection.split
    }

    pub(crate) fn selection(&self) -> &Selection {
        &self.inner.selection
    }
}

impl fmt::Debug for SampleQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleQuery")
            .field("sql", &self.inner.sql)
            .field("snapshots", &self.inner.snapshots)
            .field("columns", &self.inner.columns)
            .finish_non_exhaustive()
    }
}
