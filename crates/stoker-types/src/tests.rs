//! Tests of names, slices, states and tensor types.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::*;

#[test]
fn names_cannot_leave_the_lake() {
    for name in ["imagenet", "a.b-c_1", "_x", "9"] {
        assert_eq!(TableName::try_new(name).expect(name).as_str(), name);
    }
    for name in ["", "../x", "a/b", "a..b", ".hidden", "-x", "a b", "ä", "x.lance", &"a".repeat(129)] {
        let error = TableName::try_new(name).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
}

#[test]
fn kinds_round_trip_by_name() {
    for kind in ErrorKind::ALL {
        assert_eq!(ErrorKind::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(ErrorKind::parse("nope"), None);
}

fn spec(num_rows: u64) -> StreamSpec {
    StreamSpec {
        version: SPEC_VERSION,
        sql: "SELECT image, label FROM digits WHERE split = $1 ".repeat(20),
        params: vec![ParamValue::Text("train".into())],
        snapshots: (0..6)
            .map(|i| Snapshot {
                table: TableName::try_new(format!("a_rather_long_table_{i}")).expect("valid"),
                version: i,
            })
            .collect(),
        row_set: Digest::of(b"rows"),
        num_rows,
        seed: u64::MAX,
        order: OrderOptions {
            version: ORDER_VERSION,
            mode: ShuffleMode::Block,
            num_lanes: 48,
            rows_per_block: 3,
            rows_per_window: 70,
        },
    }
}

#[test]
fn states_stay_under_one_kibibyte() {
    let spec = spec(1 << 60);
    let log = vec![BatchLogEntry { position: u64::MAX, global_batch: 1 << 32 }; 100];
    let state = StreamState::new(&spec, u64::MAX, 1 << 59, &log, false);
    let json = state.to_json();
    assert!(json.len() < 1024, "{} bytes: {json}", json.len());
    assert_eq!(StreamState::from_json(&json).expect("own state"), state);
    assert!(state.check(&spec).is_ok());
}

#[test]
fn states_of_other_streams_are_refused_with_the_difference() {
    let mine = spec(10);
    let mut theirs = mine.clone();
    theirs.seed = 3;
    for embed in [true, false] {
        let error = StreamState::new(&mine, 0, 5, &[], embed).check(&theirs).expect_err("another seed");
        assert_eq!(error.kind(), ErrorKind::StateMismatch);
        assert!(error.to_string().contains("seed"), "{error}");
    }
    let mut theirs = mine.clone();
    theirs.order.num_lanes = 2;
    let error = StreamState::new(&mine, 0, 5, &[], false).check(&theirs).expect_err("other options");
    assert!(error.to_string().contains("48 lanes") && error.to_string().contains("2 lanes"), "{error}");
    assert!(StreamState::from_json("{}").is_err());
    assert!(
        StreamState::from_json(&StreamState::new(&mine, 0, 0, &[], false).to_json().replace(":1,", ":9,")).is_err()
    );
}

#[test]
fn specifications_round_trip_and_digest_every_field() {
    let one = spec(10);
    assert_eq!(StreamSpec::from_json(&one.to_json()).expect("own json"), one);
    let mut other = one.clone();
    other.params = vec![];
    assert_ne!(one.stream_id(), other.stream_id());
    assert!(StreamSpec::from_json(b"{\"version\":1}").is_err());
}

#[test]
fn tensor_fields_round_trip() {
    let tensor = TensorType { element: arrow_schema::DataType::UInt8, shape: vec![3, 224, 224] };
    let field = tensor.to_field("image");
    assert_eq!(TensorType::of(&field), Some(tensor));
    assert!(is_heavy(&field));
    assert_eq!(fixed_row_bytes(field.data_type()), Some(150_528));
    let light = field.with_metadata([(HEAVY_KEY.to_string(), "false".to_string())].into());
    assert!(!is_heavy(&light));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Over all ranks every position from the origin on occurs once, for any sizes, and padding only repeats rows of its batch.
    #[test]
    fn shares_partition_every_epoch(
        num_rows in 0u64..500, origin in 0u64..500, world in 1u32..9, size in 1u64..40, global in any::<bool>(),
        last in prop_oneof![Just(LastBatch::Pad), Just(LastBatch::Drop), Just(LastBatch::Uneven)],
    ) {
        let size = if global { BatchSize::Global(size) } else { BatchSize::PerRank(size) };
        let batching = Batching { size, last };
        let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
        let mut steps = None;
        for rank in 0..world {
            let slice = Slice { topology: Topology { rank, world_size: world }, batching, epoch: 0, origin, first_step: 0 };
            slice.validate().expect("in range");
            let count = slice.num_steps(num_rows);
            prop_assert_eq!(*steps.get_or_insert(count), count);
            for step in 0..count {
                let share = slice.share(step, num_rows);
                let range = slice.positions(step, num_rows);
                for index in 0..share.num_rows {
                    let position = share.position(index);
                    prop_assert!(range.contains(&position));
                    if index < share.num_valid {
                        prop_assert_eq!((position - origin) % u64::from(world), u64::from(rank));
                        *seen.entry(position).or_default() += 1;
                    }
                }
                let even = slice.global_batch() / u64::from(world);
                if last == LastBatch::Pad {
                    prop_assert!(share.num_rows == even || share.num_rows == even + 1);
                }
            }
        }
        prop_assert!(seen.values().all(|times| *times == 1));
        let left = num_rows.saturating_sub(origin);
        let expected = match last {
            LastBatch::Drop => left - left % batching.global(world),
            LastBatch::Pad | LastBatch::Uneven => left,
        };
        prop_assert_eq!(seen.len() as u64, expected);
    }
}
