//! Documents and parameters that a user or a server may have changed: they are refused, or they are the same again after
//! they were written and read.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::{ArrayRef, Date32Array, Int64Array, ListArray, StringArray, types::Int32Type};
use arrow_schema::{DataType, Field, Schema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stoker_fuzz::Target;

use super::{at, mixed, spec};
use crate::calls::*;
use crate::*;

/// Parts of JSON, and forms of parameters.
const TOKENS: [&str; 26] = [
    "{}",
    "[]",
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "null",
    "true",
    "false",
    "\\u0000",
    "\\ud800",
    "\u{e4}",
    "{\"float\":\"NaN\"}",
    "{\"float\":\"-inf\"}",
    "{\"arrow\":\"\"}",
    "\"mixture\":",
    "\"spec\":",
    "0.1234567890123456789",
    "1.7976931348623157e308",
    "2.2250738585072011e-308",
    "\"sequential\"",
    "\"version\":2,",
    "\"version\":3,",
];

fn json<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("JSON")
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A specification with parameters of all forms.
fn with_params() -> StreamSpec {
    let mut spec = spec(10);
    let dates: ArrayRef = Arc::new(Date32Array::from(vec![20_000]));
    spec.sources[0].params = vec![
        ParamValue::Null,
        ParamValue::Bool(true),
        ParamValue::Int(i64::MIN),
        ParamValue::Float(0.1),
        ParamValue::Float(f64::NAN),
        ParamValue::Vector(vec![1.0, 2.5e-3]),
        ParamValue::Arrow(ArrowParam::try_new(dates).expect("one value")),
    ];
    spec
}

/// A specification of version 2 of the order.
fn with_delay_line() -> StreamSpec {
    let mut spec = spec(10);
    spec.sources[0].order.mixing = Mixing::DelayLine { super_strides_per_block: 29 };
    spec
}

/// A mixture whose weights changed once, and whose older weights are in another specification.
fn with_earlier() -> StreamSpec {
    let mut spec = mixed(10, &[0.7, 0.3]);
    if let Some(mixture) = &mut spec.mixture {
        let slots = mixture.segments[0].slots.clone();
        mixture.segments.push(MixtureSegment { start: 100, drawn: vec![60, 40], slots });
        mixture.earlier = Some(Digest::of(b"earlier"));
    }
    spec
}

#[test]
fn states_are_refused_or_the_same_again() {
    let specs = [spec(10), mixed(10, &[0.7, 0.3]), with_params(), with_earlier(), with_delay_line()];
    let log = [BatchLogEntry { step: 3, position: 0, global_batch: 4 }; 3];
    let state = |spec: &StreamSpec, embed| StreamState::new(spec, at(1, 4, 9), &log, embed).to_json().into_bytes();
    let seeds = specs.iter().flat_map(|spec| [state(spec, false), state(spec, true)]);
    Target::new("states").seeds(seeds).tokens(TOKENS).run(|input| {
        let Ok(state) = StreamState::from_json(&text(input)) else { return false };
        let text = state.to_json();
        let again = StreamState::from_json(&text).expect("a state that was written");
        assert_eq!((&again, again.to_json()), (&state, text));
        assert!(state.logged_epoch() <= state.epoch && state.cursor().position == state.position);
        for spec in specs.iter().chain(&state.spec) {
            let is_of_stream = state.check(spec).is_ok();
            assert!(!is_of_stream || spec.stream_id() == state.stream_id);
            assert!(state.may_continue(spec, true) || !state.may_continue(spec, false));
        }
        true
    });
}

#[test]
fn specifications_are_refused_or_the_same_again() {
    let mixtures = [mixed(10, &[0.7, 0.3]), mixed(10, &[1.0; 9]), with_earlier()];
    let specs: Vec<StreamSpec> = [spec(10), with_params(), with_delay_line()].into_iter().chain(mixtures).collect();
    let seeds = specs.iter().map(StreamSpec::to_json);
    Target::new("specifications").seeds(seeds).tokens(TOKENS).run(|input| {
        let Ok(spec) = StreamSpec::from_json(input) else { return false };
        let again = StreamSpec::from_json(&spec.to_json()).expect("a specification that was written");
        assert_eq!((&again, again.stream_id(), again.query_digest()), (&spec, spec.stream_id(), spec.query_digest()));
        assert!(spec.continues(&again) && spec.differences(&again, ("one", "other")).is_empty());
        assert!(spec.check_epoch(u64::MAX).is_ok() || spec.mixture.is_some());
        for other in &specs {
            assert_eq!(spec.continues(other), other.continues(&spec));
            spec.differences(other, ("one", "other"));
            if let (Some(mine), Some(theirs)) = (&spec.mixture, &other.mixture) {
                let changed = mine.changed(theirs.segments[0].clone(), Some(spec.stream_id()));
                drop((changed, mine.preceded_by(theirs)));
            }
        }
        true
    });
}

fn receipt() -> Receipt {
    let bad = SubstitutedRow { position: 7, row_addrs: vec![1 << 32, u64::MAX], reason: "a checksum".into() };
    let part = ReceiptPart {
        epoch: 1,
        origin: 2,
        rank: 1,
        world_size: 3,
        start: 5,
        end: 50,
        sum: u128::MAX - 1,
        substituted: vec![bad],
    };
    let run = Skipped { epoch: 1, start: 50, end: 60 };
    let (parts, skipped, dropped) = (vec![part.clone(), part], vec![run.clone()], vec![run]);
    Receipt { version: RECEIPT_VERSION, stream_id: Digest::of(b"stream"), parts, skipped, dropped }
}

#[test]
fn receipts_are_refused_or_the_same_again() {
    let older = Receipt { version: RECEIPT_VERSION_MIN, dropped: Vec::new(), ..receipt() };
    let seeds = [receipt(), older].map(|receipt| receipt.to_json().into_bytes());
    Target::new("receipts").seeds(seeds).tokens(TOKENS).run(|input| {
        let Ok(receipt) = Receipt::from_json(&text(input)) else { return false };
        let text = receipt.to_json();
        let again = Receipt::from_json(&text).expect("a receipt that was written");
        assert_eq!((&again, again.to_json()), (&receipt, text));
        for part in &receipt.parts {
            let has = |position| (position - part.origin) % u64::from(part.world_size) == u64::from(part.rank);
            assert!(
                part.positions().take(9).all(|position| (part.start..part.end).contains(&position) && has(position))
            );
            for window in [part.start..part.end, 0..u64::MAX, 20..30, part.end..part.start] {
                part.positions_in(&window).take(9).for_each(|position| assert!(window.contains(&position)));
            }
        }
        true
    });
}

/// Reads a call, writes it and reads it again. Returns whether the bytes are a call.
fn call<C: Call>(body: &[u8]) -> bool {
    let Ok(call) = decode_call::<C>(body) else { return false };
    let body = encode_call(&call).expect("a call that was read");
    let again: C = decode_call(&body).expect("a call that was written");
    assert_eq!(text(&encode_call(&again).expect("a call")), text(&body));
    true
}

/// Reads an answer, shows it, writes it and reads it again. Returns whether the bytes are an answer.
fn answer<T: Serialize + DeserializeOwned + Debug>(body: &[u8], show: fn(&T)) -> bool {
    let Ok(answer) = serde_json::from_slice::<T>(body) else { return false };
    show(&answer);
    let body = json(&answer);
    let again: T = serde_json::from_slice(&body).expect("an answer that was written");
    assert_eq!(text(&json(&again)), text(&body), "{answer:?}");
    true
}

/// Reads calls and answers. The first byte of an input is an index in this list.
const READERS: [fn(&[u8]) -> bool; 24] = [
    call::<GetVersion>,
    call::<GetStatus>,
    call::<ListStreams>,
    call::<ListTables>,
    call::<OpenTable>,
    call::<ListVersions>,
    call::<TagVersion>,
    call::<DescribeTable>,
    call::<ExamineTable>,
    call::<ExplainQuery>,
    call::<VerifyReceipts>,
    call::<ReadRunLog>,
    call::<LogBadRows>,
    call::<FindRows>,
    call::<FindNulls>,
    call::<ReadBeside>,
    call::<LogRun>,
    |body| answer::<ServerStatus>(body, |_| ()),
    |body| answer::<Vec<OpenStream>>(body, |_| ()),
    |body| answer::<TableAnswer>(body, |_| ()),
    |body| answer::<Diagnosis>(body, |found| found.findings.iter().for_each(|finding| drop(finding.to_string()))),
    |body| {
        answer::<Vec<EpochVerdict>>(body, |verdicts| {
            for verdict in verdicts {
                drop((verdict.is_exactly_once(), verdict.missing.to_string(), verdict.repeated.to_string()));
            }
        })
    },
    |body| {
        answer::<StreamStats>(body, |stats| {
            stats.last_step.scaled_to(stats.stalls.total());
        })
    },
    |body| answer::<ReadOptions>(body, |options| assert!(options.max_bad_share.rows_of(u64::MAX) >= 16)),
];

/// A call or an answer for each reader.
fn documents() -> Vec<Vec<u8>> {
    let table = TableAt::new("digits", &SnapshotRef::Version(3));
    let run_id = RunId::try_new("run-1").expect("a name");
    let write_key = Some(WriteKey { key: "k".into(), since_version: 3 });
    let bad_row = BadRowEntry {
        run_id: run_id.clone(),
        stream_id: Digest::of(b"stream"),
        epoch: 0,
        position: 1,
        table: TableName::try_new("digits").expect("a name"),
        version: 2,
        row_addr: 1 << 32,
        reason: "a checksum".into(),
    };
    let entry = RunEntry {
        run_id: run_id.clone(),
        event: RunEvent::Resume,
        stream_id: Digest::of(b"stream"),
        step: 1,
        epoch: 2,
        position: 3,
        global_batch: 4,
        last_batch: LastBatch::Uneven,
        world_size: 5,
        time_micros: -6,
    };
    let stream_id = Digest::of(b"stream");
    let beside = ReadBeside {
        spec: Some(String::from_utf8(spec(10).to_json()).expect("text")),
        epoch: Some(1),
        beside: vec![Beside { position: 4, offset: 2 }],
        unverified: true,
        retry_budget_millis: Some(5),
        clips: vec![ColumnClip {
            column: "video".into(),
            frames: 8,
            stride: 1,
            start: ClipStart::Seconds(0.5),
            offsets: Some(vec![-0.5; 8]),
            within: Some(("from".into(), "to".into())),
        }],
        ..ReadBeside::default()
    };
    let column = ColumnLayout {
        name: "image".into(),
        data_type: "Binary".into(),
        kind: "encoded image".into(),
        heavy: true,
        bytes_per_row: Some(100),
        num_chunks: 1,
        chunk_bytes_max: 2,
        bytes: 3,
        dense: false,
        why_not_dense: Some("nulls".into()),
        compression: "none".into(),
        unchecked_fragments: 4,
        codec: Some("pco:8".into()),
        plain_bytes: Some(9),
        decode_bytes_per_sec: Some(1 << 30),
        max_abs_error: Some(0.5),
        has_nulls: Some(true),
        indexes: vec!["image_idx (BTree)".into()],
    };
    let finding = Finding {
        column: Some("image".into()),
        code: "nulls".into(),
        what: "nulls".into(),
        cost: "speed".into(),
        remedy: "none".into(),
        example: Some("a\nb".into()),
    };
    let mut missing = Positions::default();
    [3..7, 9..10].into_iter().for_each(|run| missing.push(run));
    let verdict = EpochVerdict { missing, wrong: receipt().parts, num_rows: 70, ..EpochVerdict::default() };
    let open = OpenStream {
        stream_id,
        client: "trainer (127.0.0.1:5)".into(),
        epoch: 1,
        rank: 2,
        world_size: 3,
        first_step: 4,
        rows: 5,
        bytes: 6,
        held_bytes: 7,
        secs: 0.1,
    };
    let schema = SchemaText(Schema::new(vec![Field::new("id", DataType::Int64, false)]).into());
    let size = Some(TableSize { bytes: 3, num_fragments: 4, num_deleted_rows: 5 });
    let tags = [("t".into(), 1)].into();
    let answer = TableAnswer { name: "digits".into(), version: 1, num_rows: 2, schema, tags, size };
    let stats = StreamStats { first_batch_nanos: Some(7), ..StreamStats::default() };
    let new_tag = TagVersion { table: Some("digits".into()), new_tag: "best".into(), ..TagVersion::default() };
    let params = with_params().sources.remove(0).params;
    let bodies = [
        json(&GetVersion {}),
        json(&GetStatus {}),
        json(&ListStreams {}),
        json(&ListTables {}),
        json(&OpenTable(table.clone())),
        json(&ListVersions(table.clone())),
        json(&new_tag),
        json(&DescribeTable(TableAt::new("digits", &SnapshotRef::Tag("best".into())))),
        json(&ExamineTable(table)),
        json(&ExplainQuery { sql: "SELECT 1".into(), params, approximate: true }),
        json(&VerifyReceipts { receipts: vec![receipt()] }),
        json(&ReadRunLog { run_id }),
        json(&LogBadRows { bad_rows: vec![bad_row], write_key: write_key.clone() }),
        json(&FindRows { stream_id, epoch: 1, positions: 3..7 }),
        json(&FindNulls { stream_id, columns: vec!["image".into()] }),
        json(&beside),
        json(&LogRun { entry, write_key }),
        json(&ServerStatus { storage_secs: 0.1, ..ServerStatus::default() }),
        json(&vec![open]),
        json(&answer),
        json(&Diagnosis { columns: vec![column], findings: vec![finding] }),
        json(&vec![verdict]),
        json(&stats),
        json(&ReadOptions::default()),
    ];
    let with_index = |(index, body): (usize, &Vec<u8>)| [&[index as u8][..], body].concat();
    assert_eq!(bodies.len(), READERS.len());
    assert!(CALLS.len() < READERS.len());
    bodies.iter().enumerate().map(with_index).collect()
}

#[test]
fn calls_and_answers_are_refused_or_the_same_again() {
    Target::new("calls").seeds(documents()).tokens(TOKENS).run(|input| {
        let Some((index, body)) = input.split_first() else { return false };
        READERS.get(usize::from(*index)).is_some_and(|read| read(body))
    });
}

#[test]
fn arrow_parameters_are_refused_or_the_same_again() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None])]);
    let values: [ArrayRef; 4] = [
        Arc::new(Date32Array::from(vec![20_000])),
        Arc::new(StringArray::from(vec!["a text"])),
        Arc::new(Int64Array::from(vec![None])),
        Arc::new(list),
    ];
    let stored = |value| ArrowParam::try_new(value).expect("one value").to_base64();
    let seeds = values.map(|value| STANDARD.decode(stored(value)).expect("base64"));
    Target::new("arrow parameters").seeds(seeds).run(|input| {
        let text = STANDARD.encode(input);
        let Ok(param) = ArrowParam::from_base64(&text) else { return false };
        assert_eq!((param.value().len(), param.to_base64()), (1, text));
        assert!(!format!("{param:?}").is_empty());
        let rewritten = ArrowParam::try_new(param.value().clone()).expect("one value");
        let again = ArrowParam::from_base64(&rewritten.to_base64()).expect("a parameter that was written");
        assert_eq!(again.value().data_type(), param.value().data_type());
        true
    });
}
