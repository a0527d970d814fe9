//! The plan of a stream.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use futures::future::{join, try_join_all};
use stoker_batch::check_batches;
use stoker_clock::Clock;
use stoker_lake::{LakeStore, Table};
use stoker_order::{StreamOrders, source_seed};
use stoker_sql::{Engine, RowSet};
use stoker_types::{
    Digest, ErrorKind, MIXTURE_VERSION, Mixing, MixtureSegment, MixtureSpec, OrderOptions, ParamValue, PlanRequest,
    PrincipalName, Query, ReadOptions, SPEC_VERSION, ShuffleMode, Slice, Snapshot, SourceSpec, StreamOptions,
    StreamSpec, slots_for,
};
use tracing::Instrument;

use crate::clips::StreamClips;
use crate::depth::Depths;
use crate::epoch_rows::EpochRows;
use crate::light_blocks::LightBlocks;
use crate::options::orders;
use crate::part_plan::PartSize;
use crate::source::{ColumnPlan, SourcePlan, unify};
use crate::{BatchStream, Error, PartStream, Resources, Result, removed, run};

/// A planned stream: pinned queries, row sets and order options. It opens any slice of any epoch. Clones share their
/// data.
#[derive(Clone)]
pub struct StreamPlan {
    pub(crate) inner: Arc<PlanInner>,
}

pub(crate) struct PlanInner {
    pub spec: StreamSpec,
    pub stream_id: Digest,
    pub schema: SchemaRef,
    pub orders: StreamOrders,
    pub sources: Arc<[SourcePlan]>,
    pub spec_stored: bool,
    /// The bytes per row of all columns together. They are estimated for columns of variable width.
    pub row_bytes: u64,
    /// How far the streams of the plan read ahead.
    pub depths: Arc<Depths>,
    /// The columns of which clips are read.
    pub clips: StreamClips,
}

impl StreamPlan {
    /// Plans a stream: pins the query, makes its row set, freezes the order and stores the specification in the lake.
    ///
    /// # Errors
    /// A query that is not a sample query, invalid options, errors of reading the tables.
    pub async fn create(engine: &Engine, sql: &str, params: &[ParamValue], options: &StreamOptions) -> Result<Self> {
        Self::plan(engine, &PlanRequest::new(Query::new(sql, params), options.clone())).await
    }

    /// Plans a stream over one query, or over a mixture of several queries with the same columns. If the request names
    /// a run that exists, the stream of that run is returned.
    ///
    /// # Errors
    /// The errors of [`StreamPlan::create`]; weights that do not fit the queries; queries with different columns or
    /// without rows; [`Error::RunMismatch`].
    pub async fn plan(engine: &Engine, request: &PlanRequest) -> Result<Self> {
        Self::plan_for(engine, request, None).await
    }

    /// Like [`StreamPlan::plan`]. A new run belongs to `owner`, if there is one. An existing run is found whoever owns
    /// it.
    ///
    /// # Errors
    /// The errors of [`StreamPlan::plan`].
    pub async fn plan_for(engine: &Engine, request: &PlanRequest, owner: Option<&PrincipalName>) -> Result<Self> {
        request.validate()?;
        let span = tracing::info_span!("plan", run_id = request.run_id.as_ref().map(tracing::field::display));
        let planned = async {
            match &request.run_id {
                None => Self::plan_now(engine, request).await,
                Some(run_id) => run::plan_run(engine, request, run_id, owner).await,
            }
        };
        planned.instrument(span).await
    }

    /// Plans a stream at the newest snapshots.
    pub(crate) async fn plan_now(engine: &Engine, request: &PlanRequest) -> Result<Self> {
        let PlanRequest { queries, options, .. } = request;
        let mix = request.mix.as_ref();
        let slots = mix.map(|mix| slots_for(&mix.weights)).transpose()?;
        let source = |(index, query): (usize, &Query)| {
            let query = query.clone();
            async move {
                let sample = engine.sample(&query.sql, &query.params).await?;
                let row_set = async { Ok(engine.row_set(&sample).await?) };
                let mut source = SourcePlan::with_row_set(sample.clone(), row_set).await?;
                let seed = source_seed(options.seed, mix.is_some(), index);
                source.set_epoch(EpochRows::of_options(&source, options, seed).await?);
                Ok::<_, Error>(source)
            }
        };
        let mut sources = try_join_all(queries.iter().enumerate().map(source)).await?;
        let schema = unify(&mut sources)?;
        if let (Some(_), Some(empty)) = (mix, sources.iter().position(|source| source.epoch_rows() == 0)) {
            return Err(Error::EmptySource { query: empty });
        }
        let weights: Vec<f64> = slots.iter().flatten().map(|slots| f64::from(*slots)).collect();
        let orders = orders(options, &sources, &weights);
        let source_spec = |((query, source), order): ((&Query, &SourcePlan), _)| SourceSpec {
            // A view may be replaced later, and the stream stays as it is.
            sql: source.query.sql().to_string(),
            params: query.params.clone(),
            snapshots: source.query.snapshots().to_vec(),
            tables: source.row_set.sources().iter().map(Table::snapshot).collect(),
            row_set: source.row_set.digest(),
            num_rows: source.epoch_rows(),
            order,
            weight: source.epoch.weight().cloned(),
            pack: source.epoch.pack().cloned(),
            bucket: source.epoch.bucket().cloned(),
        };
        let sources_spec: Vec<SourceSpec> = queries.iter().zip(&sources).zip(orders).map(source_spec).collect();
        sources_spec.iter().try_for_each(|source| source.order.validate())?;
        let mut spec = StreamSpec {
            version: SPEC_VERSION,
            num_rows: sources_spec.first().map_or(0, |source| source.num_rows),
            sources: sources_spec,
            mixture: None,
            seed: options.seed,
        };
        if let (Some(mix), Some(slots)) = (mix, slots) {
            let segment = MixtureSegment { start: 0, drawn: vec![0; slots.len()], slots };
            let (version, segments) = (MIXTURE_VERSION, vec![segment]);
            spec.mixture = Some(MixtureSpec { version, stop: mix.stop, segments, earlier: None });
            let sizes: Vec<u64> = spec.sources.iter().map(|source| source.num_rows).collect();
            let orders = StreamOrders::new(&spec);
            let rows = orders.mixture().and_then(|mixture| mixture.epoch_rows(&sizes, mix.stop, mix.epoch_rows));
            spec.num_rows = rows.ok_or_else(|| stoker_types::Error::InvalidValue {
                what: "weights",
                reason: "an epoch would have more than 2^64 rows".into(),
            })?;
        }
        let (spec_stored, ()) = join(store_spec(engine, &spec), hold(engine.lake(), &spec, &sources)).await;
        Ok(Self::new(spec, schema, sources, spec_stored?))
    }

    /// Opens a planned stream again, on this or another machine.
    ///
    /// # Errors
    /// [`Error::RowSetMismatch`] if a row set does not have the digest of the specification;
    /// [`Error::SnapshotRemoved`]; errors of reading the row set.
    pub async fn load(engine: &Engine, spec: &StreamSpec) -> Result<Self> {
        let (schema, sources) = Self::load_sources(engine, spec).await?;
        let (spec_stored, ()) = join(store_spec(engine, spec), hold(engine.lake(), spec, &sources)).await;
        Ok(Self::new(spec.clone(), schema, sources, spec_stored?))
    }

    /// Like [`StreamPlan::load`], but does not store the specification.
    ///
    /// # Errors
    /// The errors of [`StreamPlan::load`].
    pub async fn load_unstored(engine: &Engine, spec: &StreamSpec) -> Result<Self> {
        let (schema, sources) = Self::load_sources(engine, spec).await?;
        let spec_stored = is_stored(engine.lake(), spec).await?;
        Ok(Self::new(spec.clone(), schema, sources, spec_stored))
    }

    async fn load_sources(engine: &Engine, spec: &StreamSpec) -> Result<(SchemaRef, Vec<SourcePlan>)> {
        spec.sources.iter().try_for_each(|source| source.order.validate())?;
        match Self::load_pinned(engine, spec).await {
            Ok(loaded) => Ok(loaded),
            Err(error) => Err(removed::explained(engine.lake(), spec, error).await),
        }
    }

    async fn load_pinned(engine: &Engine, spec: &StreamSpec) -> Result<(SchemaRef, Vec<SourcePlan>)> {
        let stream_id = spec.stream_id();
        let source = |(index, source): (usize, &SourceSpec)| {
            let source = source.clone();
            async move {
                let query = engine.sample_at(&source.sql, &source.params, &source.snapshots).await?;
                let row_set = async {
                    let row_set = engine.load_row_set(&query, source.row_set).await?;
                    check_row_set(&row_set, &source, stream_id)?;
                    Ok(row_set)
                };
                let mut plan = SourcePlan::with_row_set(query.clone(), row_set).await?;
                let seed = source_seed(spec.seed, spec.mixture.is_some(), index);
                let epoch = EpochRows::of_spec(&plan, &source, seed).await?;
                let other = |reason| Error::RowSetMismatch { stream_id: stream_id.to_string(), reason };
                plan.set_epoch(epoch.map_err(other)?);
                Ok::<_, Error>(plan)
            }
        };
        let mut sources = try_join_all(spec.sources.iter().enumerate().map(source)).await?;
        Ok((unify(&mut sources)?, sources))
    }

    /// Opens a stream whose specification is in the lake.
    ///
    /// # Errors
    /// [`Error::UnknownStream`]; the errors of [`StreamPlan::load`].
    pub async fn load_by_id(engine: &Engine, stream_id: Digest) -> Result<Self> {
        Self::load(engine, &load_spec(engine.lake(), stream_id).await?).await
    }

    fn new(spec: StreamSpec, schema: SchemaRef, mut sources: Vec<SourcePlan>, spec_stored: bool) -> Self {
        for (source, SourceSpec { order, .. }) in sources.iter_mut().zip(&spec.sources) {
            source.light = LightBlocks::of(source, order);
        }
        let row_bytes = sources.iter().map(|source| source.row_bytes).max().unwrap_or(1);
        let (stream_id, orders) = (spec.stream_id(), StreamOrders::new(&spec));
        let (sources, depths, clips) = (sources.into(), Arc::default(), StreamClips::default());
        let inner = PlanInner { spec, stream_id, schema, orders, sources, spec_stored, row_bytes, depths, clips };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the specification.
    pub fn spec(&self) -> &StreamSpec {
        &self.inner.spec
    }

    /// Returns the stream id, which is the digest of the specification.
    pub fn stream_id(&self) -> Digest {
        self.inner.stream_id
    }

    /// Returns the columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.inner.schema.clone()
    }

    /// Returns the number of rows in an epoch.
    pub fn num_rows(&self) -> u64 {
        self.inner.spec.num_rows
    }

    /// Returns the error of a read, or [`Error::SnapshotRemoved`] if the error follows from a removed snapshot.
    pub(crate) async fn explained(&self, error: Error) -> Error {
        match self.tables().next() {
            Some(table) => removed::explained(table.lake(), self.spec(), error).await,
            None => error,
        }
    }

    /// Holds the snapshots while the stream is read, so that cleanups do not remove them. This happens only if the lake
    /// has the specification. A renewal that takes long delays the next one.
    pub(crate) async fn keep_held(self, clock: Clock) {
        let Some(lake) = self.tables().next().map(Table::lake).filter(|_| self.spec_stored()) else { return };
        let mut ticks = clock.ticks(RENEWAL);
        loop {
            ticks.next().await;
            hold(lake, self.spec(), &self.inner.sources).await;
        }
    }

    /// Returns the tables that supply rows, in the order of a batch's row addresses.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.inner.sources.iter().flat_map(|source| source.row_set.sources())
    }

    /// Returns whether the lake has the specification. Otherwise states must contain it.
    pub fn spec_stored(&self) -> bool {
        self.inner.spec_stored
    }

    /// Returns the bytes per row of all columns together. They are estimated for columns of variable width.
    pub fn row_bytes(&self) -> u64 {
        self.inner.row_bytes
    }

    /// Checks that a slice is valid for this stream.
    ///
    /// # Errors
    /// `InvalidValue` for an invalid slice, and for an epoch that the stream does not have.
    pub fn check_slice(&self, slice: &Slice) -> Result<()> {
        slice.validate()?;
        Ok(self.spec().check_epoch(slice.epoch)?)
    }

    /// Opens a rank's share of an epoch, with a memory budget of its own. Reading begins at once on the current Tokio
    /// runtime. Dropping the stream cancels it.
    ///
    /// # Errors
    /// The errors of [`StreamPlan::check_slice`]; [`stoker_batch::Error::BatchTooLarge`].
    pub fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<BatchStream> {
        self.open_within(&Resources::default(), slice, options)
    }

    /// Like [`StreamPlan::open`], with resources that other streams share.
    ///
    /// # Errors
    /// The errors of [`StreamPlan::open`].
    pub fn open_within(&self, resources: &Resources, slice: &Slice, options: &ReadOptions) -> Result<BatchStream> {
        self.check_slice(slice)?;
        check_batches(slice, self.num_rows(), self.row_bytes())?;
        Ok(BatchStream::start(self.clone(), *slice, options, resources))
    }

    /// Like [`StreamPlan::open_within`], but delivers each batch in parts, each as soon as it is read. This is for
    /// consumers that forward the rows of a batch and do not need the batch as a whole. A part has at most
    /// `part_bytes`, estimated by [`StreamPlan::row_bytes`], or one row. The stream needs memory for a few parts only.
    ///
    /// # Errors
    /// The errors of [`StreamPlan::check_slice`].
    pub fn open_parts(
        &self,
        resources: &Resources,
        slice: &Slice,
        options: &ReadOptions,
        part_bytes: u64,
    ) -> Result<PartStream> {
        self.check_slice(slice)?;
        Ok(PartStream::start(self.clone(), *slice, options, resources, PartSize::Bytes(part_bytes)))
    }
}

impl PlanInner {
    /// Returns how the columns of the batches are read, which is the same in all sources.
    pub fn columns(&self) -> &[ColumnPlan] {
        self.sources.first().map_or(&[], |source| source.columns.as_slice())
    }

    /// Returns the number of tables that supply rows, over all sources.
    pub fn num_tables(&self) -> usize {
        self.sources.iter().map(|source| source.row_set.sources().len()).sum()
    }

    /// Returns whether streams keep rows in memory from when their block is opened until they are due. Clips are read when
    /// they are due: they depend on the position, and their blocks have nothing in common.
    pub fn has_resident_rows(&self, options: &ReadOptions) -> bool {
        let is_line =
            |order: &OrderOptions| order.mode == ShuffleMode::Block && matches!(order.mixing, Mixing::DelayLine { .. });
        matches!(self.spec.sources.as_slice(), [source] if is_line(&source.order))
            && !options.first_batch_only
            && self.clips.is_empty()
            && !self.reads_rows_alone()
    }

    /// Returns the bytes of a row in columns that are read by chunk scan.
    pub fn dense_row_bytes(&self) -> u64 {
        self.columns().iter().filter_map(ColumnPlan::dense_row_bytes).map(|bytes| bytes as u64).sum()
    }

    /// Returns whether clips are the only heavy columns that are read, so that neighbouring rows have nothing in common.
    pub fn reads_only_clips(&self) -> bool {
        !self.clips.is_empty() && self.dense_row_bytes() == 0
    }

    /// Returns whether rows may be read one by one at no extra cost.
    pub fn reads_rows_alone(&self) -> bool {
        self.sources.iter().all(SourcePlan::reads_rows_alone)
    }
}

/// Checks that a row set is the one that a specification names.
fn check_row_set(row_set: &RowSet, source: &SourceSpec, stream_id: Digest) -> Result<()> {
    let mismatch = |reason| Err(Error::RowSetMismatch { stream_id: stream_id.to_string(), reason });
    if row_set.num_rows() != source.row_set_rows() {
        return mismatch(format!("{} rows were planned, {} were found", source.row_set_rows(), row_set.num_rows()));
    }
    let tables: Vec<_> = row_set.sources().iter().map(Table::snapshot).collect();
    if tables != source.tables {
        return mismatch(format!("its rows come from {tables:?}, not from {:?}", source.tables));
    }
    Ok(())
}

/// The interval at which an open stream checks whether its snapshots are held for long enough. Usually they are.
const RENEWAL: Duration = Duration::from_secs(600);

/// Holds the snapshots of a stream, so that cleanups do not remove them.
async fn hold(lake: &LakeStore, spec: &StreamSpec, sources: &[SourcePlan]) {
    let open: Vec<Table> = sources.iter().flat_map(|source| source.row_set.sources()).cloned().collect();
    let snapshots: BTreeSet<&Snapshot> = spec.snapshots().chain(spec.tables()).collect();
    lake.hold(snapshots, &open).await;
}

/// The path of specifications, relative to the lake's objects.
pub(crate) const SPECS: &str = "specs";

/// Returns the path of a specification, relative to the lake's objects.
fn spec_path(stream_id: Digest) -> String {
    format!("{SPECS}/{stream_id}")
}

/// Loads the specification of a stream from the lake.
pub(crate) async fn load_spec(lake: &LakeStore, stream_id: Digest) -> Result<StreamSpec> {
    let unknown = || Error::UnknownStream { stream_id: stream_id.to_string(), lake: lake.uri().to_string() };
    let json = lake.objects().get(&spec_path(stream_id)).await?.ok_or_else(unknown)?;
    let spec = StreamSpec::from_json(&json)?;
    if spec.stream_id() != stream_id {
        return Err(Error::RowSetMismatch {
            stream_id: stream_id.to_string(),
            reason: "the stored specification does not match the stream id".into(),
        });
    }
    Ok(spec)
}

/// Returns whether the lake has a specification.
async fn is_stored(lake: &LakeStore, spec: &StreamSpec) -> Result<bool> {
    Ok(lake.objects().get(&spec_path(spec.stream_id())).await?.is_some())
}

/// Stores a specification in the lake. Returns `false` if the lake cannot be written.
pub(crate) async fn store_spec(engine: &Engine, spec: &StreamSpec) -> Result<bool> {
    let path = spec_path(spec.stream_id());
    match engine.lake().objects().put_if_absent(&path, spec.to_json().into()).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unauthenticated) => {
            tracing::warn!(%error, "the lake cannot be written: each state of this stream contains its specification");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
