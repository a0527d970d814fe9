//! Selects the rows of a row set, in one pass or in parts by fragment.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryConsumer;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use stoker_batch::array_bytes;
use stoker_lake::{FragmentInfo, Table, row_offset};
use stoker_types::{Digest, DigestBuilder};

use super::partial::PartialRowSet;
use super::{RowSet, build};
use crate::planner_threads::on_large_stack;
use crate::planning::{activity_of, physical};
use crate::provider::num_scanned_rows;
use crate::running::{RowLimits, run};
use crate::sample::{Selection, limited};
use crate::{Engine, Error, Result, SampleQuery, Split};

/// Selects the rows of one sample query.
///
/// ```text
/// RowSource ─┬─ fragments 0, 1 ─► PartialRowSet ─┐ merge
///            ├─ fragment 2     ─► PartialRowSet ─┼───────► PartialRowSet ─► RowSet
///            └─ fragments 3, 4 ─► PartialRowSet ─┘
/// ```
///
/// Parts of a selection that splits by fragment can be computed by different processes, as all of them plan the same
/// query at the same snapshots. The row set of merged parts is the one that [`Engine::row_set`] computes in one pass.
#[derive(Clone, Debug)]
pub struct RowSource {
    engine: Engine,
    query: SampleQuery,
}

/// Some selected rows of one fragment.
#[derive(Clone, Debug)]
pub struct FragmentRows {
    fragment: u32,
    addrs: UInt64Array,
    columns: Vec<ArrayRef>,
}

impl FragmentRows {
    /// The id of the fragment.
    pub fn fragment(&self) -> u32 {
        self.fragment
    }

    /// The number of rows.
    pub fn num_rows(&self) -> usize {
        self.addrs.len()
    }

    /// Returns the offset of each row in its fragment.
    pub fn offsets(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.addrs.values().iter().map(|addr| row_offset(*addr))
    }

    /// The columns of the row set, each with one value for each row; see [`crate::ColumnSource::RowSet`].
    pub fn columns(&self) -> &[ArrayRef] {
        &self.columns
    }

    pub(super) fn new(fragment: u32, addrs: UInt64Array, columns: Vec<ArrayRef>) -> Self {
        Self { fragment, addrs, columns }
    }

    pub(super) fn addrs(&self) -> &[u64] {
        self.addrs.values()
    }

    /// Returns the rows as a batch of a ranked row set: addresses, then columns.
    pub(super) fn into_batch(self, schema: &SchemaRef) -> Result<RecordBatch> {
        let addrs: ArrayRef = Arc::new(self.addrs);
        Ok(RecordBatch::try_new(schema.clone(), std::iter::once(addrs).chain(self.columns).collect())?)
    }

    /// Returns the bytes of the addresses and of the values of the columns.
    fn bytes(&self) -> usize {
        let columns = self.columns.iter().map(|column| array_bytes(&column.to_data(), 0, column.len()));
        self.addrs.len() * size_of::<u64>() + columns.sum::<usize>()
    }
}

/// Cuts a batch of a selection with one source where the fragment changes.
fn cut(batch: &RecordBatch) -> Result<Vec<FragmentRows>> {
    let addrs = batch.column(0).as_primitive::<UInt64Type>();
    if addrs.null_count() > 0 {
        return Err(Error::internal("a scan gave no row address"));
    }
    let runs = addrs.values().chunk_by(|one, next| one >> 32 == next >> 32);
    let mut first = 0;
    let rows = runs.map(|run| {
        let columns = batch.columns()[1..].iter().map(|column| column.slice(first, run.len())).collect();
        let rows = FragmentRows::new((run[0] >> 32) as u32, addrs.slice(first, run.len()), columns);
        first += run.len();
        rows
    });
    Ok(rows.collect())
}

impl RowSource {
    pub(crate) fn new(engine: &Engine, query: &SampleQuery) -> Self {
        Self { engine: engine.clone(), query: query.clone() }
    }

    /// How the selection splits.
    pub fn split(&self) -> Split {
        self.query.split()
    }

    /// Returns the fragments by which the selection splits, in the order of the table's manifest; none if it does not
    /// split.
    pub fn fragments(&self) -> Vec<FragmentInfo> {
        match (self.split(), self.table()) {
            (Split::ByFragment, Ok(table)) => table.fragments(),
            _ => Vec::new(),
        }
    }

    /// Selects rows of these fragments.
    ///
    /// If the row set has columns, the rows come by ascending address, so fragment after fragment. Else the row set is a
    /// set of addresses, and rows of different fragments may take turns.
    ///
    /// # Errors
    /// `InvalidRequest` for a selection that does not split, and for a fragment that the table does not have. Here and in
    /// the stream, the errors of running the query.
    pub async fn rows(&self, fragments: &[u32]) -> Result<BoxStream<'static, Result<FragmentRows>>> {
        let fragments = self.checked(fragments)?;
        let batches = self.batches(Some(Arc::new(fragments))).await?;
        Ok(cut_all(batches))
    }

    /// Selects the rows of these fragments, and keeps them in memory.
    ///
    /// # Errors
    /// As for [`RowSource::rows`]; `ResourceExhausted` when the rows exceed the memory limit of the query, which counts
    /// them while they are selected.
    pub async fn partial(&self, fragments: &[u32]) -> Result<PartialRowSet> {
        let (source, fragments) = (self.clone(), self.checked(fragments)?);
        let work = async move {
            let pool = activity_of(&source.selection().state)?.pool().clone();
            let held = MemoryConsumer::new("partial row set").register(&pool);
            let batches = source.batches(Some(Arc::new(fragments.clone()))).await?;
            let mut partial = source.empty(fragments, &batches.schema())?;
            let mut rows = cut_all(batches);
            while let Some(rows) = rows.try_next().await? {
                held.try_grow(rows.bytes())?;
                partial.add(rows)?;
            }
            Ok(partial)
        };
        self.engine.on_threads(work.boxed()).await
    }

    /// Stores the row set of a partial row set that covers all fragments.
    ///
    /// # Errors
    /// `InvalidRequest` when fragments are missing, or for a partial row set of another selection; else as for
    /// [`Engine::row_set`].
    pub async fn row_set(&self, partial: PartialRowSet) -> Result<Arc<RowSet>> {
        if partial.selection() != self.digest()? {
            return Err(partial.refusal("they belong to another query or to other snapshots"));
        }
        partial.check_covers(&self.all_fragments()?)?;
        let source = self.clone();
        self.engine.on_threads(async move { build::complete(&source, partial).await.map(Arc::new) }.boxed()).await
    }

    /// Starts the selection of all rows of a table in one pass: a partial row set that covers all fragments but has no
    /// rows yet, and its rows.
    pub(super) async fn all(&self) -> Result<(PartialRowSet, BoxStream<'static, Result<FragmentRows>>)> {
        let batches = self.batches(None).await?;
        let partial = self.empty(self.all_fragments()?, &batches.schema())?;
        Ok((partial, cut_all(batches)))
    }

    /// Runs the selection over these fragments, or over everything. The rows of a ranked selection come in order.
    pub(super) async fn batches(&self, fragments: Option<Arc<BTreeSet<u32>>>) -> Result<SendableRecordBatchStream> {
        let query = self.query.clone();
        let activity = activity_of(&self.selection().state)?;
        let work = async move {
            let Selection { state, plan, .. } = query.selection();
            let (state, plan) = match fragments {
                None => physical(state, plan).await?,
                Some(fragments) => physical(state, &limited(plan.clone(), &fragments)?).await?,
            };
            let num_rows = num_scanned_rows(plan.as_ref());
            Ok::<_, Error>((state, plan, num_rows))
        };
        let (mut state, plan, num_rows) = on_large_stack(&self.engine, &activity, work.boxed()).await?;
        if let Some(progress) = self.engine.progress() {
            if num_rows > 0 {
                progress.send_modify(|progress| {
                    progress.phase = "selecting rows".to_string();
                    progress.unit = "rows".to_string();
                    progress.total = Some(progress.total.unwrap_or(0).saturating_add(num_rows));
                });
            }
            state.config_mut().set_extension(Arc::new(progress.clone()));
        }
        run(&self.engine, plan, state.task_ctx(), RowLimits::NONE, activity.begin()).await
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn query(&self) -> &SampleQuery {
        &self.query
    }

    pub(super) fn selection(&self) -> &Selection {
        self.query.selection()
    }

    /// Returns the schema of the pages of a row set with one source and these columns.
    pub(super) fn page_schema(&self, columns: &Schema) -> SchemaRef {
        let planned = self.selection().plan.schema().fields();
        let addr = planned.iter().take(1).cloned();
        let fields: Vec<FieldRef> = addr.chain(columns.fields().iter().cloned()).collect();
        Arc::new(Schema::new_with_metadata(fields, columns.metadata().clone()))
    }

    /// Returns the only table that supplies rows.
    fn table(&self) -> Result<&Table> {
        match &self.selection().sources[..] {
            [table] => Ok(table),
            sources => Err(Error::internal(format!("a selection from {} sources has no fragments", sources.len()))),
        }
    }

    fn all_fragments(&self) -> Result<BTreeSet<u32>> {
        Ok(self.table()?.fragments().iter().map(|fragment| fragment.id).collect())
    }

    /// Returns the fragments without repetitions, if the selection splits and the table has all of them.
    fn checked(&self, fragments: &[u32]) -> Result<BTreeSet<u32>> {
        if let Split::Whole { reason } = self.split() {
            let reason = format!("it has {reason}, so that its rows are selected in one pass");
            return Err(Error::refused("the selection does not split by fragment", reason));
        }
        let (known, fragments) = (self.all_fragments()?, BTreeSet::from_iter(fragments.iter().copied()));
        match fragments.difference(&known).next() {
            None => Ok(fragments),
            Some(unknown) => {
                let attempted = format!("selecting rows of fragment {unknown}");
                Err(Error::refused(attempted, format!("table {} has no such fragment", self.table()?.snapshot())))
            }
        }
    }

    fn empty(&self, fragments: BTreeSet<u32>, schema: &SchemaRef) -> Result<PartialRowSet> {
        let columns = match self.selection().ranked {
            true => Schema::new_with_metadata(schema.fields()[1..].to_vec(), schema.metadata().clone()),
            false => Schema::empty(),
        };
        let (selection, table) = (self.digest()?, self.table()?.snapshot());
        let ranked = self.selection().ranked;
        Ok(PartialRowSet::new(selection, table, fragments.into_iter().collect(), Arc::new(columns), ranked))
    }

    /// Returns a digest of what the selection depends on: the query, its parameters and its snapshots.
    fn digest(&self) -> Result<Digest> {
        let text = |source: serde_json::Error| Error::internal(format!("a selection as JSON: {source}"));
        let params = serde_json::to_vec(self.query.params()).map_err(text)?;
        let snapshots = serde_json::to_vec(self.query.snapshots()).map_err(text)?;
        let digest = DigestBuilder::new("stoker.row_set.selection").part(self.query.sql().as_bytes());
        Ok(digest.part(&params).part(&snapshots).finish())
    }
}

fn cut_all(batches: SendableRecordBatchStream) -> BoxStream<'static, Result<FragmentRows>> {
    let cut = |batch| async move { Ok(stream::iter(cut(&batch)?).map(Ok)) };
    batches.map_err(Error::from).and_then(cut).try_flatten().boxed()
}
