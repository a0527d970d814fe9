//! Tests of order options.

use proptest::prelude::*;

use crate::*;

/// A specification of version 1 of the order as it is stored, and its stream id.
const STORED: &str = r#"{"version":2,"sources":[{"sql":"SELECT id, vector FROM samples WHERE id < $1","params":[40],"snapshots":[{"table":"samples","version":1}],"tables":[{"table":"samples","version":1}],"row_set":"e65baf8f968077c39799790edcf6cb0480289da99098b63cbc7bcf71a4efcdb5","num_rows":40,"order":{"version":1,"mode":"block","num_lanes":48,"rows_per_block":1,"rows_per_window":699050}}],"num_rows":40,"seed":11}"#;
const STORED_ID: &str = "90e612d80bd1c2649df30e2b325374e9ee8f3a54503f44f057a993207f90190f";

const DELAY_LINE: &str =
    r#"{"version":2,"mode":"block","num_lanes":48,"rows_per_block":3,"super_strides_per_block":29}"#;

#[test]
fn stored_specifications_keep_their_digests() {
    let spec = StreamSpec::from_json(STORED.as_bytes()).expect("a stored specification");
    assert_eq!(spec.sources[0].order.mixing, Mixing::Windows { rows_per_window: 699_050 });
    assert_eq!(spec.to_json(), STORED.as_bytes());
    assert_eq!(spec.stream_id().to_string(), STORED_ID);
}

#[test]
fn version_2_has_a_document_and_a_digest_of_its_own() {
    let order: OrderOptions = serde_json::from_str(DELAY_LINE).expect("a document");
    assert_eq!(order.mixing, Mixing::DelayLine { super_strides_per_block: 29 });
    assert_eq!((order.version(), order.rows_per_window()), (2, None));
    assert_eq!(serde_json::to_string(&order).expect("json"), DELAY_LINE);
    assert_eq!(order.to_string(), "shuffle block, 48 lanes, 3 rows per block, 29 super-strides per block, version 2");
    let mut spec = StreamSpec::from_json(STORED.as_bytes()).expect("a stored specification");
    spec.sources[0].order = order;
    assert_eq!(StreamSpec::from_json(&spec.to_json()).expect("own json"), spec);
    assert_ne!(spec.stream_id().to_string(), STORED_ID);
}

#[test]
fn documents_of_other_versions_are_refused() {
    let refused = |from: &str, to: &str, reason: &str| {
        let error = serde_json::from_str::<OrderOptions>(&DELAY_LINE.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains(reason), "{error}");
    };
    refused("\"version\":2", "\"version\":3", "reads the order versions 1 and 2, not 3");
    refused("\"version\":2", "\"version\":1", "order version 1 has rows_per_window");
    refused("super_strides_per_block", "rows_per_window", "order version 2 has super_strides_per_block");
    refused("29}", "29,\"rows_per_window\":5}", "order version 2 has super_strides_per_block");
    refused("29}", "29,\"pieces\":5}", "unknown field");
    refused("29}", "-1}", "invalid value");
    refused("29}", "18446744073709551616}", "invalid type");
}

#[test]
fn options_outside_their_ranges_are_named() {
    let good: OrderOptions = serde_json::from_str(DELAY_LINE).expect("a document");
    good.validate().expect("valid");
    let refused = |options: OrderOptions, what: &str| {
        let error = options.validate().expect_err(what);
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains(what), "{error}");
    };
    for num_lanes in [0, 65_537, u32::MAX] {
        refused(OrderOptions { num_lanes, ..good.clone() }, "num_lanes");
    }
    for rows_per_block in [0, (1 << 40) + 1, u64::MAX] {
        refused(OrderOptions { rows_per_block, ..good.clone() }, "rows_per_block");
    }
    for super_strides_per_block in [0, (1 << 32) + 1, u64::MAX] {
        let mixing = Mixing::DelayLine { super_strides_per_block };
        refused(OrderOptions { mixing, ..good.clone() }, "super_strides_per_block");
    }
    refused(OrderOptions { mixing: Mixing::Windows { rows_per_window: 0 }, ..good.clone() }, "rows_per_window");
    // Version 1 has no largest block.
    let mixing = Mixing::Windows { rows_per_window: u64::MAX };
    let widest = OrderOptions { rows_per_block: u64::MAX, num_lanes: 65_536, mixing, ..good };
    widest.validate().expect("valid");
    assert_eq!(widest.resident_rows(7), 7);
}

/// The bytes of the defaults and of small budgets, as options of a delay line.
#[test]
fn bytes_become_blocks_and_super_strides() {
    let planned = |window_mib: u64, rows: u64, row_bytes: u64| {
        let options = StreamOptions { shuffle_window_bytes: Some(window_mib << 20), ..StreamOptions::default() };
        let planned = options.delay_line(rows, row_bytes);
        let Mixing::DelayLine { super_strides_per_block } = planned.mixing else { panic!("{planned}") };
        assert!(planned.resident_rows(rows) * row_bytes <= window_mib << 20, "{planned}");
        (planned.rows_per_block, super_strides_per_block)
    };
    // Images of 150 KB and tokens of 2 KB.
    assert_eq!(planned(256, 65_536, 150_528), (3, 29));
    assert_eq!(planned(512, 65_536, 150_528), (3, 65));
    assert_eq!(planned(768, 65_536, 150_528), (3, 103));
    assert_eq!(planned(256, 4_194_304, 2_048), (256, 16));
    assert_eq!(planned(512, 4_194_304, 2_048), (256, 37));
    assert_eq!(planned(2_048, 4_194_304, 2_048), (256, 166));
    // Small row sets have smaller blocks, and no more super-strides than there are.
    assert_eq!(planned(256, 65_536, 2_048), (43, 31));
    assert_eq!(planned(256, 10, 2_048), (1, 1));
    assert_eq!(planned(256, 0, 2_048), (1, 1));
    // No memory for more than one row of each lane.
    let options = StreamOptions { shuffle_window_bytes: Some(1), ..StreamOptions::default() };
    let planned = options.delay_line(1 << 20, 1 << 24);
    assert_eq!((planned.rows_per_block, planned.mixing.version()), (1, 2));
}

/// Packs of 32 KiB and of 512 KiB, in groups of 8.
#[test]
fn blocks_have_whole_groups_where_memory_allows_it() {
    let planned = |rows: u64, row_bytes: u64, group_rows: u64| {
        let planned = StreamOptions::default().order_of_groups(rows, row_bytes, group_rows);
        assert!(planned.resident_rows(rows) * row_bytes <= 160 << 20, "{planned}");
        assert_eq!(planned.version(), 2, "{planned}");
        planned.rows_per_block
    };
    assert_eq!([planned(1 << 20, 1 << 15, 1), planned(1 << 20, 1 << 15, 8)], [10, 8]);
    assert_eq!([planned(8_192, 1 << 16, 1), planned(8_192, 1 << 16, 8)], [5, 8]);
    assert_eq!([planned(1 << 20, 2_048, 1), planned(1 << 20, 2_048, 32)], [162, 160]);
    assert_eq!([planned(8_192, 1 << 19, 1), planned(8_192, 1 << 19, 8)], [1, 1]);
    assert_eq!(planned(1 << 20, 100_000, 12), 3, "a third of a group");
}

/// Streams of which a delay line would hold all rows have one window.
#[test]
fn the_default_is_a_delay_line_for_rows_that_it_does_not_hold() {
    let options = |shuffle, mib: Option<u64>, order_version| StreamOptions {
        shuffle,
        shuffle_window_bytes: mib.map(|mib| mib << 20),
        order_version,
        ..StreamOptions::default()
    };
    let (block, num_rows) = (ShuffleMode::Block, 48 << 9);
    for (mib, fits_bytes) in [(None, 160 << 20), (Some(64), 64 << 20), (Some(1_024), 1 << 30)] {
        let default = options(block, mib, None);
        for (row_bytes, version) in [(1, 1), (fits_bytes / num_rows, 1), (fits_bytes / num_rows + 1, 2)] {
            let planned = default.order(num_rows, row_bytes);
            assert_eq!(planned.version(), version, "{planned} for rows of {row_bytes} bytes");
            assert_eq!(planned, options(block, mib, Some(version)).order(num_rows, row_bytes));
            if let Some(rows) = planned.rows_per_window() {
                assert!(rows * u64::from(planned.num_lanes) >= num_rows, "{planned}");
            }
        }
    }
    for shuffle in [ShuffleMode::Full, ShuffleMode::Sequential] {
        assert_eq!(options(shuffle, None, None).order(1 << 40, 2_048).version(), 1);
    }
    let huge = options(block, None, None).order(u64::MAX, u64::MAX);
    assert_eq!((huge.version(), huge.rows_per_block), (2, 1));
    assert_eq!(options(block, None, None).order(0, 0).version(), 1);
}

proptest! {
    #[test]
    fn documents_round_trip(
        num_lanes in any::<u32>(), rows_per_block in any::<u64>(), number in any::<u64>(), is_line in any::<bool>(),
    ) {
        let mixing = match is_line {
            true => Mixing::DelayLine { super_strides_per_block: number },
            false => Mixing::Windows { rows_per_window: number },
        };
        let options = OrderOptions { mode: ShuffleMode::Block, num_lanes, rows_per_block, mixing };
        let json = serde_json::to_string(&options).expect("json");
        prop_assert_eq!(serde_json::from_str::<OrderOptions>(&json).expect("own json"), options);
    }
}
