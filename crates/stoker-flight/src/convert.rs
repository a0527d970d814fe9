//! Protocol messages to and from types.

use stoker_stream::StreamOptions;
use stoker_types::{BatchSize, Batching, LastBatch, ParamValue, ShuffleMode, Slice, Topology};

use crate::proto;
use crate::{Error, Result};

/// The version of descriptors.
pub(crate) const COMMAND_VERSION: u32 = 1;

pub(crate) fn slice_to_proto(slice: &Slice) -> proto::Slice {
    let last_batch = match slice.batching.last {
        LastBatch::Pad => "pad",
        LastBatch::Drop => "drop",
        LastBatch::Uneven => "uneven",
    };
    proto::Slice {
        rank: slice.topology.rank,
        world_size: slice.topology.world_size,
        batch_size: Some(match slice.batching.size {
            BatchSize::PerRank(rows) => proto::slice::BatchSize::PerRank(rows),
            BatchSize::Global(rows) => proto::slice::BatchSize::Global(rows),
        }),
        last_batch: last_batch.into(),
        epoch: slice.epoch,
        origin: slice.origin,
        first_step: slice.first_step,
    }
}

pub(crate) fn slice_from_proto(slice: &proto::Slice) -> Result<Slice> {
    let last = match slice.last_batch.as_str() {
        "" | "pad" => LastBatch::Pad,
        "drop" => LastBatch::Drop,
        "uneven" => LastBatch::Uneven,
        other => return Err(Error::invalid(format!("last_batch is {other:?}; use pad, drop or uneven"))),
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

/// The share of endpoint `endpoint` of `num_endpoints`: a virtual rank of a larger world.
pub(crate) fn endpoint_slice(slice: &Slice, endpoint: u32, num_endpoints: u32) -> Slice {
    let world = slice.topology.world_size;
    let batching = Batching { size: BatchSize::Global(slice.global_batch()), last: slice.batching.last };
    let topology = Topology { rank: slice.topology.rank + endpoint * world, world_size: world * num_endpoints };
    if num_endpoints == 1 { *slice } else { Slice { topology, batching, ..*slice } }
}

pub(crate) fn query_to_proto(sql: &str, params: &[ParamValue], options: &StreamOptions) -> proto::StreamQuery {
    proto::StreamQuery {
        sql: sql.into(),
        params_json: params_to_json(params),
        seed: options.seed,
        shuffle: options.shuffle.as_str().into(),
        shuffle_window_bytes: options.shuffle_window_bytes,
        block_bytes: options.block_bytes,
        num_lanes: options.num_lanes,
    }
}

pub(crate) fn options_from_proto(query: &proto::StreamQuery) -> Result<StreamOptions> {
    let defaults = StreamOptions::default();
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let shuffle = match query.shuffle.as_str() {
        "" | "block" => ShuffleMode::Block,
        "full" => ShuffleMode::Full,
        "sequential" => ShuffleMode::Sequential,
        other => return Err(Error::invalid(format!("shuffle is {other:?}; use block, full or sequential"))),
    };
    Ok(StreamOptions {
        seed: query.seed,
        shuffle,
        shuffle_window_bytes: or(query.shuffle_window_bytes, defaults.shuffle_window_bytes),
        block_bytes: or(query.block_bytes, defaults.block_bytes),
        num_lanes: if query.num_lanes == 0 { defaults.num_lanes } else { query.num_lanes },
    })
}

pub(crate) fn params_to_json(params: &[ParamValue]) -> String {
    if params.is_empty() { String::new() } else { serde_json::to_string(params).unwrap_or_default() }
}

pub(crate) fn params_from_json(json: &str) -> Result<Vec<ParamValue>> {
    if json.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(json)
        .map_err(|source| Error::invalid(format!("the parameters are not a JSON array: {source}")))
}
