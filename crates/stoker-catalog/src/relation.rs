//! Relations about the lake and its tables, as DataFusion table providers.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as DfResult;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::Expr;
use futures::future::{BoxFuture, ready};
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use stoker_lake::{LakeStore, Table};
use stoker_types::{ErrorKind, SCHEMA, SnapshotRef, TableName};

use crate::functions::{Function, functions};
use crate::names::NameFilter;
use crate::{LakeView, TableView, of_lake, of_table, view_names, view_query};

/// The number of tables that are opened concurrently for their columns, and of views that are read concurrently.
const TABLES_AT_ONCE: usize = 8;

/// A relation about the lake or about one of its tables. Its rows are read when the query runs.
#[derive(Clone, Debug)]
pub enum CatalogRelation {
    /// A relation about a lake.
    OfLake(LakeView, LakeStore),
    /// A relation about a table. Versions, tags and branches are those that exist when the query runs.
    OfTable(TableView, Table),
    /// The columns of a relation about a lake.
    ColumnsOf(LakeView),
}

#[async_trait]
impl TableProvider for CatalogRelation {
    fn schema(&self) -> SchemaRef {
        match self {
            Self::OfLake(view, _) => view.schema(),
            Self::OfTable(view, _) => view.schema(),
            Self::ColumnsOf(_) => TableView::Columns.schema(),
        }
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let (names, functions) = match self {
            Self::OfLake(LakeView::Columns, _) => (NameFilter::try_new(state, filters)?, Vec::new()),
            Self::OfLake(LakeView::Functions, _) => (NameFilter::default(), functions(state)),
            _ => (NameFilter::default(), Vec::new()),
        };
        let schema = self.schema();
        let rows = Rows { relation: self.clone(), schema: schema.clone(), names, functions };
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![Arc::new(rows)], projection, None, false, None)?))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let is_of_columns = matches!(self, Self::OfLake(LakeView::Columns, _));
        let support = |filter: &&Expr| match is_of_columns && NameFilter::understands(filter) {
            true => TableProviderFilterPushDown::Inexact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }
}

/// The rows of a relation.
#[derive(Debug)]
struct Rows {
    relation: CatalogRelation,
    schema: SchemaRef,
    names: NameFilter,
    functions: Vec<Function>,
}

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let once = |rows: BoxFuture<'static, DfResult<RecordBatch>>| stream::once(rows).boxed();
        let rows = match self.relation.clone() {
            CatalogRelation::OfTable(view, table) => once(Box::pin(async move { view.rows(&table).await })),
            CatalogRelation::ColumnsOf(view) => {
                once(Box::pin(ready(of_table::columns(&view.schema()).map_err(Into::into))))
            }
            CatalogRelation::OfLake(LakeView::Tables, lake) => once(Box::pin(async move {
                let (tables, views) = tables_and_views(&lake).await?;
                Ok(of_lake::tables(&tables, &views)?)
            })),
            CatalogRelation::OfLake(LakeView::Columns, lake) => columns(lake, self.names.clone()),
            CatalogRelation::OfLake(LakeView::Schemata, _) => {
                once(Box::pin(ready(of_lake::schemata().map_err(Into::into))))
            }
            CatalogRelation::OfLake(LakeView::Views, lake) => once(Box::pin(async move { views(&lake).await })),
            CatalogRelation::OfLake(LakeView::Functions, _) => {
                once(Box::pin(ready(of_lake::functions(&self.functions).map_err(Into::into))))
            }
        };
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), rows))
    }
}

/// Lists the tables, and the views that no table hides.
async fn tables_and_views(lake: &LakeStore) -> DfResult<(Vec<TableName>, Vec<TableName>)> {
    let (tables, mut views) = (lake.tables().await?, view_names(lake).await?);
    views.retain(|view| tables.binary_search(view).is_err());
    Ok((tables, views))
}

/// Reads the views. One that was just removed is left out.
async fn views(lake: &LakeStore) -> DfResult<RecordBatch> {
    let (_, names) = tables_and_views(lake).await?;
    let read = stream::iter(names).map(|name| async {
        let query = view_query(lake, &name).await?;
        Ok::<_, DataFusionError>(query.map(|query| (name, query)))
    });
    let found: Vec<_> = read.buffered(TABLES_AT_ONCE).try_filter_map(|view| ready(Ok(view))).try_collect().await?;
    Ok(of_lake::views(&found)?)
}

/// Opens the tables that the predicates keep, and lists their columns.
fn columns(lake: LakeStore, names: NameFilter) -> BoxStream<'static, DfResult<RecordBatch>> {
    let own = stream::iter(of_lake::own_columns().map(|rows| rows.map_err(Into::into)));
    let opened = async move {
        let names = names.select(lake.tables().await?)?;
        let is_alone = names.len() == 1;
        let open = move |name: TableName| {
            let lake = lake.clone();
            async move { columns_of(&lake, &name, is_alone).await.transpose() }
        };
        Ok::<_, DataFusionError>(stream::iter(names).map(open).buffered(TABLES_AT_ONCE).filter_map(ready))
    };
    own.chain(stream::once(opened).try_flatten()).boxed()
}

/// Lists the columns of a table; `None` for a damaged table, and for one that was just removed, which must not hide the
/// other tables.
async fn columns_of(lake: &LakeStore, name: &TableName, is_alone: bool) -> DfResult<Option<RecordBatch>> {
    match lake.table(name, &SnapshotRef::Latest).await {
        Ok(table) => Ok(Some(of_lake::columns(SCHEMA, name.as_str(), table.schema().fields())?)),
        Err(error) if !is_alone && matches!(error.kind(), ErrorKind::DataCorrupt | ErrorKind::NotFound) => {
            tracing::warn!(table = %name, %error, "listing columns without those of a table");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
