//! A pinned table, or a search over one, as a DataFusion table provider.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DFSchema, Result as DfResult, Statistics};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::prelude::Expr;
use stoker_columns::{fixed_row_bytes, is_heavy};
use stoker_functions::needs_only;
use stoker_lake::{FragmentInfo, Table};
use stoker_types::to_usize;

use super::scan_exec::statistics;
use super::{HeavyTable, Layout, OutputColumn, ScanExec};
use crate::search::{Search, SearchExec, SearchInputs, SearchKind};
use crate::{Error, Result};

/// The bytes of a value from which Lance stores values row by row.
const WIDE_VECTOR_BYTES: usize = 128;

/// The column of `row_ids` that holds row addresses.
const ROW_ID: &str = "row_id";

/// The names of the hidden columns that a scan adds for a sample query.
#[derive(Clone, Debug)]
pub(crate) struct CarriedNames {
    /// The row address, `UInt64`.
    pub(crate) row_addr: String,
    /// A second copy of the distance, `Float32`, which only searches for vectors have.
    pub(crate) distance: String,
    /// The rank, `Int64`, which only other searches have.
    pub(crate) rank: String,
}

/// A relation of a query.
///
/// The columns are those of the table, then those that a search computes or `row_id` for `row_ids`, then the hidden columns
/// for a sample query.
#[derive(Clone)]
pub(crate) struct Relation {
    table: HeavyTable,
    search: Option<Arc<Search>>,
    /// The fragments whose rows the relation has; all fragments if `None`. A search always has all.
    fragments: Option<Arc<BTreeSet<u32>>>,
    schema: SchemaRef,
    columns: Vec<OutputColumn>,
}

impl Relation {
    pub(crate) fn new(table: HeavyTable, search: Option<Search>) -> Self {
        let table_schema = table.table.schema();
        let mut fields: Vec<FieldRef> = table_schema.fields().iter().cloned().collect();
        let mut columns: Vec<OutputColumn> = fields.iter().map(|field| OutputColumn::of(field)).collect();
        for (field, column) in search.iter().flat_map(|search| search.kind.columns()) {
            fields.push(Arc::new(field));
            columns.push(column);
        }
        let schema = Arc::new(Schema::new(fields));
        Self { table, search: search.map(Arc::new), fragments: None, schema, columns }
    }

    /// Returns the same relation with a column for row addresses.
    ///
    /// # Errors
    /// `InvalidRequest` for a table that has a column of that name.
    pub(crate) fn with_row_ids(mut self) -> Result<Self> {
        if self.schema.field_with_name(ROW_ID).is_ok() {
            let attempted = format!("row_ids({})", self.table().name());
            return Err(Error::refused(attempted, format!("the table has a column {ROW_ID} of its own")));
        }
        let mut fields: Vec<FieldRef> = self.schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(ROW_ID, DataType::UInt64, true)));
        self.columns.push(OutputColumn::RowAddr);
        self.schema = Arc::new(Schema::new(fields));
        Ok(self)
    }

    /// Tells whether the relation has a column for row addresses that users can name.
    pub(crate) fn has_row_ids(&self) -> bool {
        self.schema.field_with_name(ROW_ID).is_ok() && self.table().schema().field_with_name(ROW_ID).is_err()
    }

    /// Returns the relation behind a provider, or `None` for other providers.
    pub(crate) fn of(provider: &Arc<dyn TableProvider>) -> Option<&Relation> {
        (provider.as_ref() as &dyn Any).downcast_ref()
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table.table
    }

    pub(crate) fn search(&self) -> Option<&Search> {
        self.search.as_deref()
    }

    /// Returns the same relation with the hidden columns of a sample query.
    pub(crate) fn with_carried(&self, names: &CarriedNames) -> Self {
        let mut relation = self.clone();
        let mut fields: Vec<FieldRef> = self.schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(&names.row_addr, DataType::UInt64, true)));
        relation.columns.push(OutputColumn::RowAddr);
        match self.search.as_ref().map(|search| &search.kind) {
            Some(SearchKind::Vector(_)) => {
                fields.push(Arc::new(Field::new(&names.distance, DataType::Float32, true)));
                relation.columns.push(OutputColumn::Distance);
            }
            Some(SearchKind::Words(_) | SearchKind::Hybrid(_) | SearchKind::TopK(_)) => {
                fields.push(Arc::new(Field::new(&names.rank, DataType::Int64, true)));
                relation.columns.push(OutputColumn::Rank);
            }
            None => {}
        }
        relation.schema = Arc::new(Schema::new(fields));
        relation
    }

    /// Returns the same relation with the rows of these fragments only.
    pub(crate) fn with_fragments(&self, fragments: Arc<BTreeSet<u32>>) -> Self {
        Self { fragments: Some(fragments), ..self.clone() }
    }

    /// Returns the scanned fragments that have rows.
    fn scanned(&self) -> Vec<FragmentInfo> {
        let is_scanned = |fragment: &FragmentInfo| {
            fragment.num_rows > 0 && self.fragments.as_ref().is_none_or(|ids| ids.contains(&fragment.id))
        };
        self.table().fragments().into_iter().filter(is_scanned).collect()
    }

    /// Returns the relation of all rows of the same table, with one more column, the row id, and the column's name.
    pub(crate) fn with_hidden_row_ids(&self) -> (Self, String) {
        let mut relation = Self::new(self.table.clone(), None);
        let name = stoker_lake::ROW_ID.to_string();
        let mut fields: Vec<FieldRef> = relation.schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(&name, DataType::UInt64, true)));
        relation.columns.push(OutputColumn::RowId);
        relation.schema = Arc::new(Schema::new(fields));
        (relation, name)
    }

    /// Returns the relation of what a search finds in this relation. It has no columns that the search computes.
    pub(crate) fn with_search(&self, search: Search) -> Self {
        Self { search: Some(Arc::new(search)), ..self.clone() }
    }

    /// Returns the same relation with one more column.
    pub(crate) fn with_hidden(&self, field: Field, column: OutputColumn) -> Self {
        let mut relation = self.clone();
        let fields = self.schema.fields().iter().cloned().chain([Arc::new(field)]);
        relation.schema = Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()));
        relation.columns.push(column);
        relation
    }

    /// Returns the same search among the rows with the ids that this plan gives.
    pub(crate) fn with_prefilter(&self, prefilter: LogicalPlan) -> Self {
        let search = self.search.as_deref().cloned();
        let search = search.map(|search| Arc::new(Search { prefilter: Some(Arc::new(prefilter)), ..search }));
        Self { search, ..self.clone() }
    }

    /// Returns the same relation with other hidden plans of its search.
    pub(crate) fn map_hidden(&self, map: &mut dyn FnMut(LogicalPlan) -> Result<LogicalPlan>) -> Result<Self> {
        let search = self.search.as_ref().map(|search| search.map_hidden(map).map(Arc::new)).transpose()?;
        Ok(Self { search, ..self.clone() })
    }

    /// Splits filters into those that compare light vectors which are stored as plain bytes, and all others. The chunk scan
    /// reads such vectors into memory that is used again, several times as fast as Lance's decoder.
    async fn split_filters(&self, filters: &[Expr]) -> DfResult<(Vec<Expr>, Vec<Expr>)> {
        let (mut of_vectors, mut others) = (Vec::new(), Vec::new());
        for filter in filters {
            let mut is_of_vectors = false;
            for name in column_names(filter) {
                let field = self.table().schema().field_with_name(&name).cloned();
                if field.is_ok_and(|field| is_wide_vector(&field) && !is_heavy(&field)) {
                    is_of_vectors |= self.table.dense(&name).await?.is_some();
                }
            }
            if is_of_vectors { &mut of_vectors } else { &mut others }.push(filter.clone());
        }
        Ok((of_vectors, others))
    }

    /// Adds the columns of a filter that a layout lacks, and makes the chunk scan read its vectors.
    fn with_vectors(&self, layout: Layout, filter: &Expr) -> DfResult<Layout> {
        let schema = self.schema.clone();
        let mut layout = layout;
        for name in column_names(filter) {
            let index = schema.index_of(&name)?;
            let source = match (&self.columns[index], is_wide_vector(schema.field(index))) {
                (OutputColumn::Light(name), true) => OutputColumn::Heavy(name.clone()),
                (source, _) => source.clone(),
            };
            layout = layout.with(schema.fields()[index].clone(), source);
        }
        Ok(layout)
    }

    /// Tells whether Lance can evaluate the filter in its scan. Lance evaluates any expression over light columns. A
    /// filter that names a heavy column stays above the scan, so that the heavy column is read only for rows that pass
    /// the other filters.
    fn can_push(&self, filter: &Expr) -> bool {
        let is_light = |name: &str| self.table().schema().field_with_name(name).is_ok_and(|field| !is_heavy(field));
        self.search.is_none() && needs_only(filter, is_light)
    }
}

fn column_names(filter: &Expr) -> BTreeSet<String> {
    filter.column_refs().into_iter().map(|column| column.name.clone()).collect()
}

/// Whether a column is a vector of numbers of as many bytes as Lance may store row by row.
fn is_wide_vector(field: &Field) -> bool {
    matches!(field.data_type(), DataType::FixedSizeList(item, _) if item.data_type().is_numeric())
        && fixed_row_bytes(field.data_type()).is_some_and(|bytes| bytes >= WIDE_VECTOR_BYTES)
}

impl fmt::Debug for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relation").field("snapshot", &self.table().snapshot()).field("search", &self.search).finish()
    }
}

#[async_trait]
impl TableProvider for Relation {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let layout = match projection {
            Some(indices) => Layout::new(
                Arc::new(self.schema.project(indices)?),
                indices.iter().map(|index| self.columns[*index].clone()).collect(),
            ),
            None => Layout::new(self.schema.clone(), self.columns.clone()),
        };
        if let Some(search) = &self.search {
            let (kind, inputs) = (search.kind.clone(), SearchInputs::plan(search, state).await?);
            return Ok(Arc::new(SearchExec::new(self.table.clone(), kind, layout, limit, inputs)));
        }
        let target_partitions = state.config().target_partitions();
        let (of_vectors, others) = self.split_filters(filters).await?;
        let (fragments, filter) = (self.scanned(), conjunction(others));
        let scan = |layout, limit| {
            Arc::new(ScanExec::new(self.table.clone(), &fragments, layout, filter, limit, target_partitions))
        };
        let Some(of_vectors) = conjunction(of_vectors) else { return Ok(scan(layout, limit)) };
        let num_columns = layout.schema().fields().len();
        let layout = self.with_vectors(layout, &of_vectors)?;
        let predicate = state.create_physical_expr(of_vectors, &DFSchema::try_from(layout.schema().clone())?)?;
        let passing = FilterExecBuilder::new(predicate, scan(layout, None));
        Ok(Arc::new(passing.apply_projection(Some((0..num_columns).collect()))?.build()?))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match self.can_push(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        let num_rows = to_usize(self.scanned().iter().map(|fragment| fragment.num_rows).sum::<u64>());
        let num_rows = match &self.search {
            None => Precision::Exact(num_rows),
            Some(search) => Precision::Inexact(num_rows.min(search.kind.k())),
        };
        Some(statistics(&self.schema, num_rows))
    }
}
