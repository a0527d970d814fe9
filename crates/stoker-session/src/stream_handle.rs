//! A planned stream, in this process or on servers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use stoker_batch::{Batch, MemoryBudget, PackColumns, ReceiptBuilder, RowsBeside, bucket_row_schema, check_batches};
use stoker_dialect::is_same_query;
use stoker_types::calls::Beside;
use stoker_types::{self as types, BadRows, BatchLogEntry, ReadOptions, Slice, Snapshot, StreamSpec, StreamState};

use crate::bucket_batches::BucketBatches;
use crate::decode::{DecodeStage, DecodedColumns, RowSubstitutes};
use crate::pack_batches::PackBatches;
use crate::sample_stream::halved;
use crate::{BatchSource, Connection, DecodeOptions, Error, PlannedStream, Result, SampleStream};

/// A planned stream, which opens any slice of any epoch. Cheap to clone.
#[derive(Clone)]
pub struct StreamHandle {
    plan: Arc<dyn PlannedStream>,
    /// The columns of the batches.
    schema: SchemaRef,
    /// The columns of packs, if batches do not have all of them on their way.
    packs: Option<Arc<PackColumns>>,
    /// The retry budget of reads, for streams without an option of their own.
    retry_budget: Duration,
    /// The memory budget that all streams of the connection share.
    memory: MemoryBudget,
}

impl StreamHandle {
    /// Makes a handle of a planned stream. `retry_budget` is for streams without an option of their own; the streams
    /// take the memory of decoded values from `memory`, and are measured by its clock.
    pub fn new(plan: impl PlannedStream + 'static, retry_budget: Duration, memory: MemoryBudget) -> Self {
        let (stored, length) = (plan.schema(), plan.spec().pack_length());
        let packs = length.and_then(|length| PackColumns::of(&stored, length)).map(Arc::new);
        let schema = match &packs {
            Some(packs) => packs.schema().clone(),
            None if plan.spec().has_buckets() => Arc::new(bucket_row_schema(&stored)),
            None => stored,
        };
        Self { plan: Arc::new(plan), schema, packs, retry_budget, memory }
    }

    /// Returns the specification of the stream.
    pub fn spec(&self) -> &StreamSpec {
        self.plan.spec()
    }

    /// Returns the tables that supply rows, in the order of a batch's row addresses.
    pub fn tables(&self) -> Vec<Snapshot> {
        self.spec().tables().cloned().collect()
    }

    /// Returns the schema of the batches, whose rows may be those of buckets.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns those of `columns` that are null in at least one row of the stream. The result is empty for a server
    /// that is too old to know this action.
    ///
    /// # Errors
    /// Errors of reading the tables; servers that cannot be reached.
    pub async fn nulls(&self, columns: Vec<String>) -> Result<Vec<String>> {
        self.plan.nulls(columns).await
    }

    /// Returns the number of rows per epoch; of packs or buckets, if the stream has these.
    pub fn num_rows(&self) -> u64 {
        self.spec().num_rows
    }

    /// Builds the state at a cursor and step, with the log of global batch sizes.
    pub fn state(&self, place: types::ResumePoint, log: &[BatchLogEntry]) -> StreamState {
        StreamState::new(self.spec(), place, log, !self.plan.spec_stored())
    }

    /// Returns the stream that continues a state, when that stream is not this one. It may differ from this stream in
    /// the weights, in the text of queries whose parsed statements are equal, and, with `any_version`, in the version of
    /// the order. Returns `None` for a state of this stream. A state of another stream costs one call that loads its
    /// stream.
    ///
    /// # Errors
    /// `StateMismatch`, which names the differences, for a state that this stream cannot continue; storage errors;
    /// servers that cannot be reached.
    pub async fn resumed(
        &self,
        connection: &Connection,
        state: &StreamState,
        any_version: bool,
    ) -> Result<Option<Self>> {
        let continues = |spec: &StreamSpec| spec.continues_query(self.spec(), any_version, is_same_query);
        if state.stream_id != self.spec().stream_id() && state.may_continue(self.spec(), any_version) {
            match connection.load_stream(state).await {
                Ok(found) if continues(found.spec()) => return Ok(Some(found)),
                Err(error) if error.kind().is_transient() => return Err(error),
                // `state.check` names the differences, which say more than this error.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(state.check(self.spec()).map(|()| None)?)
    }

    /// Plans the same mixture with other weights from a position of an epoch on. All processes that pass the same
    /// arguments get the same stream.
    ///
    /// # Errors
    /// A stream that is not a mixture; weights that do not fit its queries; storage errors.
    pub async fn reweigh(&self, epoch: u64, position: u64, weights: &[f64]) -> Result<Self> {
        self.plan.reweigh(epoch, position, weights).await
    }

    /// Returns the addresses of the rows at some positions of an epoch.
    pub(crate) async fn row_addrs(&self, epoch: u64, positions: Range<u64>) -> Result<Vec<Vec<u64>>> {
        self.plan.row_addrs(epoch, positions).await
    }

    /// Reads rows of the windows of an epoch. Returns the first of the `wanted` rows, at least one.
    pub(crate) async fn rows_beside(&self, epoch: u64, wanted: &[Beside], options: &ReadOptions) -> Result<RowsBeside> {
        let found = self.plan.rows_beside(epoch, wanted, options).await?;
        let Some(packs) = &self.packs else { return Ok(found) };
        let data = packs.complete(&found.data, Some(self.memory.pool()))?;
        Ok(RowsBeside { data, ..found })
    }

    /// Returns the columns of packs, if batches of [`StreamHandle::start`] do not have all of them yet.
    pub(crate) fn packs_of(&self, batch: &Batch) -> Option<Arc<PackColumns>> {
        self.packs.clone().filter(|packs| packs.schema().fields().len() > batch.data.num_columns())
    }

    /// Checks, without a request, that a slice fits this stream and that this machine has the memory for its batches.
    ///
    /// # Errors
    /// An invalid slice; an epoch that the stream does not have; `ResourceExhausted` for batches larger than this
    /// machine's memory.
    pub fn check_slice(&self, slice: &Slice) -> Result<()> {
        self.check_rows(slice, self.plan.row_bytes())
    }

    /// As [`StreamHandle::check_slice`], for rows of `row_bytes` bytes.
    fn check_rows(&self, slice: &Slice, row_bytes: u64) -> Result<()> {
        slice.validate()?;
        self.spec().check_epoch(slice.epoch)?;
        Ok(check_batches(slice, self.spec().num_rows, row_bytes)?)
    }

    /// Opens a rank's share of an epoch. Reading begins at once, on the current Tokio runtime.
    ///
    /// # Errors
    /// As for [`StreamHandle::check_slice`]. The first [`SampleStream::next`] returns errors of servers.
    pub async fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<SampleStream> {
        let batches = self.batches(slice, options)?;
        Ok(SampleStream::new(self.completed(batches), self.receipt(slice)))
    }

    /// As [`StreamHandle::open`], with columns that native threads of this process decode before the consumer
    /// asks for them. Decoding does not change which rows come or their order, except that a bad row may be
    /// substituted. Half of the memory budget is for encoded batches, the other half for decoded ones.
    ///
    /// # Errors
    /// As for [`StreamHandle::open`] and [`DecodeOptions::schema`]. A value that is null or cannot be decoded makes
    /// its row a bad row. With [`BadRows::Error`](stoker_types::BadRows) the stream then ends with
    /// [`Error::BadValue`]. Otherwise the next row of the same window whose values decode replaces the bad row, and all
    /// ranks with these transforms choose the same row; the stream ends with [`Error::NoSubstitute`] when the window
    /// has no such row. A stream of buckets has no such substitutes, which is `InvalidRequest`.
    pub async fn open_decoded(
        &self,
        slice: &Slice,
        options: &ReadOptions,
        decode: &DecodeOptions,
    ) -> Result<SampleStream> {
        self.start(slice, options, Some(decode))
    }

    /// As [`StreamHandle::open`] or, with options to decode by, as [`StreamHandle::open_decoded`]. It waits for nothing.
    /// Without them, batches of packs lack the columns that [`StreamHandle::packs_of`] makes.
    pub(crate) fn start(
        &self,
        slice: &Slice,
        options: &ReadOptions,
        decode: Option<&DecodeOptions>,
    ) -> Result<SampleStream> {
        let batches = match decode {
            None => self.batches(slice, options)?,
            Some(decode) => self.decoded_batches(slice, options, decode)?,
        };
        Ok(SampleStream::new(batches, self.receipt(slice)))
    }

    fn decoded_batches(
        &self,
        slice: &Slice,
        options: &ReadOptions,
        decode: &DecodeOptions,
    ) -> Result<Box<dyn BatchSource>> {
        let clips = decode.clips(&self.schema());
        if !clips.is_empty() {
            let plan = self.plan.with_clips(&clips)?;
            return Self { plan: plan.into(), ..self.clone() }.decode_batches(slice, options, decode);
        }
        self.decode_batches(slice, options, decode)
    }

    fn decode_batches(
        &self,
        slice: &Slice,
        options: &ReadOptions,
        decode: &DecodeOptions,
    ) -> Result<Box<dyn BatchSource>> {
        let columns = DecodedColumns::try_new(decode, &self.schema(), self.spec(), slice, self.memory.pool().clone())?;
        let decoded_bytes = columns.row_bytes().saturating_mul(self.spec().rows_per_position());
        self.check_rows(slice, self.plan.row_bytes().saturating_add(decoded_bytes))?;
        if self.spec().has_buckets() && options.bad_rows == BadRows::Substitute {
            let reason = "rows of buckets that cannot be decoded have no substitutes: leave bad_rows=\"substitute\", \
                          decode or bucket out";
            return Err(Error::invalid(reason));
        }
        let options = &ReadOptions { retry_budget: options.retry_budget.or(Some(self.retry_budget)), ..*options };
        let half = ReadOptions { memory_budget_bytes: halved(options.memory_budget_bytes), ..*options };
        let encoded = self.completed(self.batches(slice, &half)?);
        let columns = Arc::new(columns);
        let substitutes = match options.bad_rows {
            BadRows::Error => None,
            BadRows::Substitute => Some(RowSubstitutes::new(self.clone(), options, columns.clone())),
        };
        let (quota, clock) = (self.memory.join_with(&half), self.memory.clock().clone());
        Ok(Box::new(DecodeStage::start(encoded, columns, substitutes, quota, clock)))
    }

    fn batches(&self, slice: &Slice, options: &ReadOptions) -> Result<Box<dyn BatchSource>> {
        self.check_slice(slice)?;
        let options = &ReadOptions { retry_budget: options.retry_budget.or(Some(self.retry_budget)), ..*options };
        let batches = self.plan.open(slice, options)?;
        match self.spec().has_buckets() {
            true => Ok(Box::new(BucketBatches::new(batches, self.schema.clone()))),
            false => Ok(batches),
        }
    }

    /// Returns batches with all columns of packs, if they are packs.
    fn completed(&self, batches: Box<dyn BatchSource>) -> Box<dyn BatchSource> {
        match &self.packs {
            Some(packs) => Box::new(PackBatches::new(batches, packs.clone(), self.memory.pool().clone())),
            None => batches,
        }
    }

    /// Returns an empty receipt of a slice.
    pub fn receipt(&self, slice: &Slice) -> ReceiptBuilder {
        ReceiptBuilder::new(self.spec().stream_id(), slice, self.spec().num_rows)
    }
}
