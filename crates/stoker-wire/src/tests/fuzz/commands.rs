//! Descriptors of clients.

use std::fmt::Debug;
use std::time::Duration;

use prost::Message;
use stoker_fuzz::Target;
use stoker_types::{
    BadRows, BatchSize, Batching, BucketOptions, ClipStart, ColumnClip, Compression, ErrorKind, LastBatch, LongerRows,
    MixOptions, MixtureStop, PackOptions, ParamValue, PlanRequest, Query, ReadOptions, RunId, Slice, StreamOptions,
    Topology,
};

use crate::Result;
use crate::convert::*;
use crate::proto::{
    Command, ReadPolicy, Reweigh, SqlRequest, StreamRequest, WriteRequest, command, reweigh, stream_request,
};
use crate::written_rows::write_from_proto;

const TOKENS: [&str; 14] = [
    "block",
    "full",
    "sequential",
    "first",
    "all",
    "rows",
    "pad",
    "drop",
    "uneven",
    "substitute",
    "error",
    "zstd",
    "[{\"float\":\"NaN\"},null,[1.5]]",
    "\"",
];

fn clips() -> Vec<ColumnClip> {
    let clip =
        |start, offsets| ColumnClip { column: "video".into(), frames: 2, stride: 1, start, offsets, within: None };
    vec![
        clip(ClipStart::Frame(3), None),
        clip(ClipStart::Seconds(0.5), Some(vec![-0.1, 0.1])),
        clip(ClipStart::Column("at".into()), None),
        clip(ClipStart::Random, None),
        clip(ClipStart::Uniform, None),
        ColumnClip { within: Some(("from".into(), "to".into())), ..clip(ClipStart::Random, None) },
    ]
}

fn requests() -> Vec<StreamRequest> {
    let params = [ParamValue::Int(-1), ParamValue::Float(f64::NAN), ParamValue::Vector(vec![0.1, 2.0])];
    let query = Query::new("SELECT id FROM t WHERE x < $1", &params);
    let mix = MixOptions { weights: vec![0.7, 0.3], stop: MixtureStop::Rows, epoch_rows: 100 };
    let one = PlanRequest::new(
        query.clone(),
        StreamOptions { seed: 7, weight: Some("w".into()), ..StreamOptions::default() },
    );
    let pack = PackOptions { columns: vec!["t".into(), "m".into()], length: 64, lengths: Some("n".into()), pad: -100 };
    let packed = PlanRequest::new(query.clone(), StreamOptions { pack: Some(pack), ..StreamOptions::default() });
    let bucket = BucketOptions {
        column: "t".into(),
        max_tokens: 512,
        max_rows: Some(8),
        multiple: 16,
        longer: LongerRows::Error,
    };
    let bucketed = PlanRequest::new(query.clone(), StreamOptions { bucket: Some(bucket), ..StreamOptions::default() });
    let run_id = Some(RunId::try_new("run-1").expect("a name"));
    let mixed = PlanRequest { queries: vec![query.clone(), query], mix: Some(mix), run_id, ..one.clone() };
    let slice = |size, last| Slice {
        origin: 5,
        first_step: 6,
        ..Slice::new(Topology { rank: 1, world_size: 3 }, Batching { size, last }, 4)
    };
    let options = ReadOptions {
        bad_rows: BadRows::Substitute,
        verify: false,
        retry_budget: Some(Duration::from_millis(1_500)),
        compression: Some(Compression::Lz4),
        ..ReadOptions::default()
    };
    let spec = b"{}".to_vec();
    let weights = Reweigh {
        stream: Some(reweigh::Stream::Spec(spec)),
        epoch: 1,
        position: 2,
        weights: vec![0.5],
        may_link: true,
    };
    let request = |source| StreamRequest { source: Some(source), slice: None, num_endpoints: 2, read: None };
    vec![
        StreamRequest {
            slice: Some(slice_to_proto(&slice(BatchSize::PerRank(8), LastBatch::Drop))),
            read: Some(policy_to_proto(&options, true).with_clips(&clips())),
            ..request(stream_request::Source::Query(request_to_proto(&one)))
        },
        request(stream_request::Source::Query(request_to_proto(&packed))),
        request(stream_request::Source::Query(request_to_proto(&bucketed))),
        StreamRequest {
            slice: Some(slice_to_proto(&slice(BatchSize::Global(8), LastBatch::Uneven))),
            ..request(stream_request::Source::Query(request_to_proto(&mixed)))
        },
        request(stream_request::Source::StreamId("ab".repeat(32))),
        request(stream_request::Source::Reweigh(weights)),
    ]
}

/// Checks that a value that was read is the same after it was written and read again. Returns whether there is one.
/// Values are compared as texts, in which numbers that are not finite are equal.
fn is_same_again<T: Debug>(value: Result<T>, again: impl FnOnce(&T) -> Result<T>) -> bool {
    match value {
        Ok(value) => {
            let again = again(&value).expect("a value that was written");
            assert_eq!(format!("{again:?}"), format!("{value:?}"));
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
            false
        }
    }
}

fn params(json: &str) -> bool {
    is_same_again(params_from_json(json), |params| params_from_json(&params_to_json(params)))
}

fn stream(request: &StreamRequest) -> bool {
    let slice = request.slice.as_ref().map(slice_from_proto);
    if let Some(Ok(slice)) = &slice {
        // The limits of a server.
        let num_endpoints = request.num_endpoints.clamp(1, 256);
        if slice.topology.world_size <= u32::MAX / num_endpoints {
            for endpoint in [0, num_endpoints - 1] {
                let part = slice_to_proto(&endpoint_slice(slice, endpoint, num_endpoints));
                assert!(is_same_again(slice_from_proto(&part), |part| slice_from_proto(&slice_to_proto(part))));
            }
        }
    }
    let slice = slice.is_none_or(|slice| is_same_again(slice, |slice| slice_from_proto(&slice_to_proto(slice))));
    let policy = policy_from_proto(request.read.as_ref(), ReadOptions::default());
    let policy = is_same_again(policy, |options| {
        policy_from_proto(Some(&policy_to_proto(options, options.first_batch_only)), ReadOptions::default())
    });
    let clips = is_same_again(clips_from_proto(request.read.as_ref()), |clips| {
        clips_from_proto(Some(&ReadPolicy::default().with_clips(clips)))
    });
    let query = match &request.source {
        Some(stream_request::Source::Query(query)) => {
            is_same_again(request_from_proto(query), |request| request_from_proto(&request_to_proto(request)))
        }
        _ => true,
    };
    slice && policy && clips && query
}

#[test]
fn commands_are_refused_or_the_same_again() {
    let (params_json, compression) = ("[1, null]".into(), "zstd".into());
    let sql = SqlRequest { sql: "SELECT 1".into(), params_json, compression, approximate: true };
    let write = WriteRequest { table: "t".into(), mode: "append".into(), key: "k".into(), ..WriteRequest::default() };
    let kinds = [command::Kind::Sql(sql), command::Kind::Poll(vec![10, 1, 107]), command::Kind::Write(write)];
    let kinds = requests().into_iter().map(command::Kind::Stream).chain(kinds);
    let seeds = kinds.map(|kind| Command { version: COMMAND_VERSION, kind: Some(kind) }.encode_to_vec());
    Target::new("commands").seeds(seeds).tokens(TOKENS).memory_bytes_max(2 << 20).run(|input| {
        match Command::decode(input).map(|command| command.kind) {
            Ok(Some(command::Kind::Stream(request))) => stream(&request),
            Ok(Some(command::Kind::Sql(request))) => {
                let compression = is_same_again(compression_from_proto(&request.compression), |compression| {
                    compression_from_proto(&compression_to_proto(*compression))
                });
                params(&request.params_json) && compression
            }
            // The fuzz targets of tickets are for what is signed.
            Ok(Some(command::Kind::Poll(signed))) => !signed.is_empty(),
            Ok(Some(command::Kind::Write(request))) => write_from_proto(&request).is_ok(),
            Ok(None) | Err(_) => false,
        }
    });
}
