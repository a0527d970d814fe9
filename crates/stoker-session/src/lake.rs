//! What a lake does, wherever it is.

use std::any::Any;
use std::ops::Range;

use arrow_schema::SchemaRef;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use stoker_batch::RowsBeside;
use stoker_types::calls::{Answering, Beside, BoxedAnswersAll};
use stoker_types::{
    ColumnClip, Context, Digest, ParamValue, PlanRequest, ProgressSink, ReadOptions, Slice, SqlOptions,
    StatementOutcome, StreamSpec, WriteRequest,
};

use crate::{BatchSource, Error, Patience, Result, RowWriter, SqlResult, StreamHandle};

/// A lake: an engine in this process, or servers. It answers the calls of [`stoker_types::calls`], each attempt once;
/// [`Connection`](crate::Connection) repeats the attempts.
pub trait Lake: Answering<Error = Error> + BoxedAnswersAll + Any {
    /// Whether the engine is in this process.
    fn is_local(&self) -> bool;

    /// Whether a call may have been done by another server than the one that answered.
    fn has_replicas(&self) -> bool {
        false
    }

    /// Returns the retry policy of calls.
    fn patience(&self) -> &Patience;

    /// Plans a SELECT at snapshots that are pinned now, and does not run it: the columns that it gives.
    ///
    /// # Errors
    /// Malformed SQL, unknown tables and columns; storage errors.
    fn sql_schema<'a>(&'a self, sql: &'a str, params: &'a [ParamValue]) -> BoxFuture<'a, Result<SchemaRef>>;

    /// Runs a SELECT at the tables' current versions.
    ///
    /// # Errors
    /// Malformed SQL, unknown tables and columns; storage errors, which may also come later in the stream.
    fn sql<'a>(
        &'a self,
        sql: &'a str,
        params: &'a [ParamValue],
        options: SqlOptions,
    ) -> BoxFuture<'a, Result<SqlResult>>;

    /// Executes one statement that changes the lake, in one attempt, and tells `progress` how far it is. Dropping the future
    /// before the change is committed leaves the lake as it was.
    ///
    /// # Errors
    /// A query, and a statement that cannot be parsed or executed; names that do not exist or exist already; a role or a
    /// server that does not allow changes (kind `PermissionDenied`); storage errors.
    /// [`Error::OutcomeUnknown`] if the answer was lost after the statement was sent.
    fn execute<'a>(
        &'a self,
        context: &'a Context,
        sql: &'a str,
        params: &'a [ParamValue],
        progress: &'a ProgressSink<'a>,
    ) -> BoxFuture<'a, Result<StatementOutcome>>;

    /// Begins a write of rows with these columns, in one attempt. A lake that takes no rows has the default.
    ///
    /// # Errors
    /// A table that exists, or does not, as the mode says; columns that do not fit it; a role or a server that does not
    /// allow writes; storage errors.
    fn begin_write<'a>(
        &'a self,
        _request: &'a WriteRequest,
        _columns: &'a SchemaRef,
    ) -> BoxFuture<'a, Result<Box<dyn RowWriter>>> {
        ready(Err(Error::invalid("this lake takes no rows"))).boxed()
    }

    /// Plans a stream, or finds a planned one.
    ///
    /// # Errors
    /// A query that is not a sample query, invalid options; a stream that the lake does not know; data that changed
    /// (kind `StateMismatch`); storage errors.
    fn plan<'a>(&'a self, source: StreamSource<'a>) -> BoxFuture<'a, Result<StreamHandle>>;

    /// Waits until the chunk cache of this process has written all chunks that streams handed to it.
    fn settle(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

/// Where the specification of a stream comes from.
#[derive(Clone, Copy, Debug)]
pub enum StreamSource<'a> {
    /// One query or a mixture, which is pinned now, or the stream of a run.
    Request(&'a PlanRequest),
    /// A stream whose specification the lake stores.
    Id(Digest),
    /// A specification, for example of a state.
    Spec(&'a StreamSpec),
}

/// A stream that a lake planned.
pub trait PlannedStream: Send + Sync {
    /// Returns the specification of the stream.
    fn spec(&self) -> &StreamSpec;

    /// Returns the schema of the batches.
    fn schema(&self) -> SchemaRef;

    /// Whether the lake stores the specification, so that the stream is found by its id.
    fn spec_stored(&self) -> bool;

    /// Returns the bytes of a row; an estimate for columns of variable width.
    fn row_bytes(&self) -> u64;

    /// Opens a rank's share of an epoch. Reading begins at once, on the current Tokio runtime.
    ///
    /// # Errors
    /// As for [`StreamHandle::check_slice`].
    fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<Box<dyn BatchSource>>;

    /// Returns the same stream for a consumer that decodes these clips. Where the columns have an index of their videos, the
    /// compressed frames of the clips come in place of whole files, in the form of [`stoker_video::ClipBytes`].
    ///
    /// # Errors
    /// Clips that are not valid.
    fn with_clips(&self, clips: &[ColumnClip]) -> Result<Box<dyn PlannedStream>>;

    /// Returns those of `columns` that are null in at least one row of the stream. The result is empty for a server
    /// that is too old to tell.
    ///
    /// # Errors
    /// Errors of reading the tables; servers that cannot be reached.
    fn nulls(&self, columns: Vec<String>) -> BoxFuture<'_, Result<Vec<String>>>;

    /// Returns the addresses of the rows at some positions of an epoch: for each table of the stream, one address per
    /// position, which is `u64::MAX` where that table does not supply the row.
    ///
    /// # Errors
    /// `InvalidRequest` for positions beyond the rows; storage errors.
    fn row_addrs(&self, epoch: u64, positions: Range<u64>) -> BoxFuture<'_, Result<Vec<Vec<u64>>>>;

    /// Reads rows of the windows of an epoch. Returns the first of the `wanted` rows, at least one.
    ///
    /// # Errors
    /// Positions and offsets that the stream does not have; errors of reading; `InvalidRequest` from servers that are
    /// too old to know the request.
    fn rows_beside<'a>(
        &'a self,
        epoch: u64,
        wanted: &'a [Beside],
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<RowsBeside>>;

    /// Plans the same mixture with other weights from a position of an epoch on. All processes that pass the same
    /// arguments get the same stream.
    ///
    /// # Errors
    /// A stream that is not a mixture; weights that do not fit its queries; storage errors.
    fn reweigh<'a>(&'a self, epoch: u64, position: u64, weights: &'a [f64]) -> BoxFuture<'a, Result<StreamHandle>>;
}
