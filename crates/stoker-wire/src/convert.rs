//! Converts protocol messages to and from types of the engine.

use std::time::Duration;

use stoker_types::{
    BadRows, BadShare, BatchSize, Batching, BucketOptions, ClipStart, ColumnClip, Compression, LastBatch, LongerRows,
    MixOptions, MixtureStop, PackOptions, ParamValue, PlanRequest, Query, ReadOptions, RunId, ShuffleMode, Slice,
    Stalls, StreamOptions, Topology, to_micros, to_millis,
};

use crate::{Error, Result, proto};

/// The version of the messages in descriptors.
pub const COMMAND_VERSION: u32 = 1;

/// The most columns of which a request may name clips.
pub const CLIP_COLUMNS_MAX: usize = 8;

/// Converts a slice to its message.
pub fn slice_to_proto(slice: &Slice) -> proto::Slice {
    proto::Slice {
        rank: slice.topology.rank,
        world_size: slice.topology.world_size,
        batch_size: Some(match slice.batching.size {
            BatchSize::PerRank(rows) => proto::slice::BatchSize::PerRank(rows),
            BatchSize::Global(rows) => proto::slice::BatchSize::Global(rows),
        }),
        last_batch: slice.batching.last.as_str().into(),
        epoch: slice.epoch,
        origin: slice.origin,
        first_step: slice.first_step,
    }
}

/// Converts a message to a slice.
///
/// # Errors
/// `InvalidRequest` for values that are no slice.
pub fn slice_from_proto(slice: &proto::Slice) -> Result<Slice> {
    let last = match slice.last_batch.as_str() {
        "" => LastBatch::Pad,
        name => LastBatch::parse(name)
            .ok_or_else(|| Error::invalid(format!("last_batch is {name:?}; use pad, drop or uneven")))?,
    };
    let size = match slice.batch_size {
        Some(proto::slice::BatchSize::PerRank(rows)) => BatchSize::PerRank(rows),
        Some(proto::slice::BatchSize::Global(rows)) => BatchSize::Global(rows),
        None => return Err(Error::invalid("a slice needs a batch size")),
    };
    let slice = Slice {
        topology: Topology { rank: slice.rank, world_size: slice.world_size },
        batching: Batching { size, last },
        epoch: slice.epoch,
        origin: slice.origin,
        first_step: slice.first_step,
    };
    slice.validate()?;
    Ok(slice)
}

/// Returns the slice of endpoint `endpoint` of `num_endpoints`: that of a virtual rank in a world that is
/// `num_endpoints` times as large.
pub fn endpoint_slice(slice: &Slice, endpoint: u32, num_endpoints: u32) -> Slice {
    let world = slice.topology.world_size;
    let batching = Batching { size: BatchSize::Global(slice.global_batch()), last: slice.batching.last };
    let topology = Topology { rank: slice.topology.rank + endpoint * world, world_size: world * num_endpoints };
    if num_endpoints == 1 { *slice } else { Slice { topology, batching, ..*slice } }
}

/// Converts a request for a stream to its message.
pub fn request_to_proto(request: &PlanRequest) -> proto::StreamQuery {
    let options = &request.options;
    let mut query = proto::StreamQuery {
        seed: options.seed,
        shuffle: options.shuffle.as_str().into(),
        shuffle_window_bytes: options.shuffle_window_bytes.unwrap_or(0),
        block_bytes: options.block_bytes,
        num_lanes: options.num_lanes,
        order_version: options.order_version.unwrap_or(0),
        weight: options.weight.clone().unwrap_or_default(),
        pack: options.pack.as_ref().map(|pack| proto::Pack {
            columns: pack.columns.clone(),
            length: pack.length,
            lengths: pack.lengths.clone().unwrap_or_default(),
            pad: pack.pad,
        }),
        bucket: options.bucket.as_ref().map(|bucket| proto::Bucket {
            column: bucket.column.clone(),
            max_tokens: bucket.max_tokens,
            max_rows: bucket.max_rows.unwrap_or(0),
            multiple: bucket.multiple,
            longer: bucket.longer.as_str().into(),
        }),
        run_id: request.run_id.as_ref().map(RunId::to_string).unwrap_or_default(),
        ..proto::StreamQuery::default()
    };
    match (&request.mix, request.queries.as_slice()) {
        (None, [one]) => (query.sql, query.params_json) = (one.sql.clone(), params_to_json(&one.params)),
        (mix, queries) => {
            let weights = mix.iter().flat_map(|mix| mix.weights.iter().copied()).chain(std::iter::repeat(0.0));
            let mixed = |(query, weight): (&Query, f64)| proto::MixedQuery {
                sql: query.sql.clone(),
                params_json: params_to_json(&query.params),
                weight,
            };
            query.mixed = queries.iter().zip(weights).map(mixed).collect();
            query.stop = mix.as_ref().map_or(String::new(), |mix| mix.stop.as_str().into());
            query.epoch_rows = mix.as_ref().map_or(0, |mix| mix.epoch_rows);
        }
    }
    query
}

/// Converts a message to a request for a stream.
///
/// # Errors
/// `InvalidRequest` for values that are no request.
pub fn request_from_proto(query: &proto::StreamQuery) -> Result<PlanRequest> {
    let defaults = StreamOptions::default();
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let shuffle = match query.shuffle.as_str() {
        "" | "block" => ShuffleMode::Block,
        "full" => ShuffleMode::Full,
        "sequential" => ShuffleMode::Sequential,
        other => return Err(Error::invalid(format!("shuffle is {other:?}; use block, full or sequential"))),
    };
    let options = StreamOptions {
        seed: query.seed,
        shuffle,
        shuffle_window_bytes: Some(query.shuffle_window_bytes).filter(|bytes| *bytes != 0),
        block_bytes: or(query.block_bytes, defaults.block_bytes),
        num_lanes: if query.num_lanes == 0 { defaults.num_lanes } else { query.num_lanes },
        order_version: Some(query.order_version).filter(|version| *version != 0),
        weight: Some(query.weight.clone()).filter(|column| !column.is_empty()),
        pack: query.pack.as_ref().map(|pack| PackOptions {
            columns: pack.columns.clone(),
            length: pack.length,
            lengths: Some(pack.lengths.clone()).filter(|column| !column.is_empty()),
            pad: pack.pad,
        }),
        bucket: query.bucket.as_ref().map(bucket_from_proto).transpose()?,
    };
    let run_id = match query.run_id.as_str() {
        "" => None,
        name => Some(RunId::try_new(name)?),
    };
    if query.mixed.is_empty() {
        let one = Query { sql: query.sql.clone(), params: params_from_json(&query.params_json)? };
        return Ok(PlanRequest { run_id, ..PlanRequest::new(one, options) });
    }
    if !query.sql.is_empty() {
        return Err(Error::invalid("a stream request has a query and a mixture; give one of them"));
    }
    let stop = MixtureStop::parse(&query.stop)
        .ok_or_else(|| Error::invalid(format!("stop is {:?}; use first, all or rows", query.stop)))?;
    let one =
        |mixed: &proto::MixedQuery| Ok(Query { sql: mixed.sql.clone(), params: params_from_json(&mixed.params_json)? });
    let weights = query.mixed.iter().map(|mixed| mixed.weight).collect();
    Ok(PlanRequest {
        queries: query.mixed.iter().map(one).collect::<Result<_>>()?,
        mix: Some(MixOptions { weights, stop, epoch_rows: query.epoch_rows }),
        options,
        run_id,
    })
}

fn bucket_from_proto(bucket: &proto::Bucket) -> Result<BucketOptions> {
    let longer = match bucket.longer.as_str() {
        "" => LongerRows::default(),
        name => LongerRows::parse(name)
            .ok_or_else(|| Error::invalid(format!("longer of bucket is {name:?}; use alone or error")))?,
    };
    Ok(BucketOptions {
        column: bucket.column.clone(),
        max_tokens: bucket.max_tokens,
        max_rows: Some(bucket.max_rows).filter(|rows| *rows != 0),
        multiple: bucket.multiple,
        longer,
    })
}

/// Converts what a server needs to know of read options to their message, without clips.
pub fn policy_to_proto(options: &ReadOptions, first_batch_only: bool) -> proto::ReadPolicy {
    proto::ReadPolicy {
        bad_rows: options.bad_rows.as_str().into(),
        unverified: !options.verify,
        first_batch_only,
        compression: compression_to_proto(options.compression),
        retry_budget_millis: options.retry_budget.map(to_millis),
        max_bad_share: Some(options.max_bad_share.share()),
        clips: Vec::new(),
    }
}

impl proto::ReadPolicy {
    /// Names the clips of columns that the client decodes: the first [`CLIP_COLUMNS_MAX`] of them. Of further columns, the
    /// server sends whole files.
    #[must_use]
    pub fn with_clips(self, clips: &[ColumnClip]) -> Self {
        Self { clips: clips.iter().take(CLIP_COLUMNS_MAX).map(clip_to_proto).collect(), ..self }
    }
}

fn clip_to_proto(clip: &ColumnClip) -> proto::ColumnClip {
    use proto::column_clip::Start;
    proto::ColumnClip {
        column: clip.column.clone(),
        frames: clip.frames,
        stride: clip.stride,
        start: Some(match &clip.start {
            ClipStart::Frame(frame) => Start::Frame(*frame),
            ClipStart::Seconds(seconds) => Start::Seconds(*seconds),
            ClipStart::Column(column) => Start::StartColumn(column.clone()),
            ClipStart::Random => Start::Random(true),
            ClipStart::Uniform => Start::Uniform(true),
        }),
        offsets: clip.offsets.clone().unwrap_or_default(),
        begin_column: clip.within.as_ref().map(|(begin, _)| begin.clone()).unwrap_or_default(),
        end_column: clip.within.as_ref().map(|(_, end)| end.clone()).unwrap_or_default(),
    }
}

/// Returns the clips that a client decodes.
///
/// # Errors
/// `InvalidRequest` for clips of more than [`CLIP_COLUMNS_MAX`] columns, and for a clip without a start.
pub fn clips_from_proto(policy: Option<&proto::ReadPolicy>) -> Result<Vec<ColumnClip>> {
    let clips = policy.map_or(&[][..], |policy| policy.clips.as_slice());
    bounded_clips(clips)?.iter().map(clip_from_proto).collect()
}

/// Checks the number of columns of which a client decodes clips: each ticket of an answer has the clips of all columns.
fn bounded_clips(clips: &[proto::ColumnClip]) -> Result<&[proto::ColumnClip]> {
    match clips.len() {
        0..=CLIP_COLUMNS_MAX => Ok(clips),
        number => {
            Err(Error::invalid(format!("clips of {number} columns are requested; the most is {CLIP_COLUMNS_MAX}")))
        }
    }
}

fn clip_from_proto(clip: &proto::ColumnClip) -> Result<ColumnClip> {
    use proto::column_clip::Start;
    let start = match &clip.start {
        Some(Start::Frame(frame)) => ClipStart::Frame(*frame),
        Some(Start::Seconds(seconds)) => ClipStart::Seconds(*seconds),
        Some(Start::StartColumn(column)) => ClipStart::Column(column.clone()),
        Some(Start::Random(true)) => ClipStart::Random,
        Some(Start::Uniform(true)) => ClipStart::Uniform,
        Some(Start::Random(false) | Start::Uniform(false)) | None => {
            return Err(Error::invalid(format!("the clip of column {} has no start", clip.column)));
        }
    };
    Ok(ColumnClip {
        column: clip.column.clone(),
        frames: clip.frames,
        stride: clip.stride,
        start,
        offsets: Some(clip.offsets.clone()).filter(|offsets| !offsets.is_empty()),
        within: Some((clip.begin_column.clone(), clip.end_column.clone()))
            .filter(|(begin, end)| !begin.is_empty() || !end.is_empty()),
    })
}

/// Returns `options` with those that a client asked for.
///
/// # Errors
/// `InvalidRequest` for values that are no options.
pub fn policy_from_proto(policy: Option<&proto::ReadPolicy>, options: ReadOptions) -> Result<ReadOptions> {
    let Some(policy) = policy else { return Ok(options) };
    let bad_rows = match policy.bad_rows.as_str() {
        "" => BadRows::Error,
        name => BadRows::parse(name)
            .ok_or_else(|| Error::invalid(format!("bad_rows is {name:?}; use error or substitute")))?,
    };
    let compression = compression_from_proto(&policy.compression)?;
    let max_bad_share = policy.max_bad_share.map_or(Ok(options.max_bad_share), BadShare::try_new)?;
    Ok(ReadOptions {
        bad_rows,
        max_bad_share,
        verify: !policy.unverified,
        ahead: policy.first_batch_only,
        first_batch_only: policy.first_batch_only,
        compression,
        retry_budget: policy.retry_budget_millis.map(Duration::from_millis).or(options.retry_budget),
        ..options
    })
}

/// Returns the name of a codec, or no text for no compression.
pub fn compression_to_proto(compression: Option<Compression>) -> String {
    compression.map_or("", Compression::as_str).into()
}

/// Returns the codec of a name, or `None` for no text.
///
/// # Errors
/// `InvalidRequest` for a name that no codec has.
pub fn compression_from_proto(name: &str) -> Result<Option<Compression>> {
    match (name, Compression::parse(name)) {
        ("", _) => Ok(None),
        (_, Some(compression)) => Ok(Some(compression)),
        (_, None) => Err(Error::invalid(format!("compression is {name:?}; use lz4 or zstd, or leave it out"))),
    }
}

/// Converts the times that a batch waited for to their message.
pub fn stall_to_proto(waited: &Stalls) -> proto::Stall {
    proto::Stall { storage_micros: to_micros(waited.storage), decode_micros: to_micros(waited.decode) }
}

/// Converts the times of a message; they are zero for servers that do not measure them.
pub fn stall_from_proto(stall: Option<&proto::Stall>) -> Stalls {
    let Some(stall) = stall else { return Stalls::default() };
    let (storage, decode) = (Duration::from_micros(stall.storage_micros), Duration::from_micros(stall.decode_micros));
    Stalls { storage, decode, ..Stalls::default() }
}

/// Converts parameters to JSON; no parameters to no text.
pub fn params_to_json(params: &[ParamValue]) -> String {
    if params.is_empty() { String::new() } else { serde_json::to_string(params).unwrap_or_default() }
}

/// Converts JSON to parameters.
///
/// # Errors
/// `InvalidRequest` for text that is no list of parameters.
pub fn params_from_json(json: &str) -> Result<Vec<ParamValue>> {
    if json.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(json).map_err(|source| Error::invalid(format!("cannot read the parameters: {source}")))
}
