//! Tests of names, slices, states and mixtures.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::*;

mod fuzz;
mod orders;
mod params;

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
fn a_branch_has_the_name_of_its_table() {
    let name = TableName::try_new("photos@v1.2-x").expect("a branch");
    assert_eq!((name.root().as_str(), name.branch()), ("photos", Some("v1.2-x")));
    let root = name.root();
    assert_eq!((root.root(), root.branch()), (root.clone(), None));
    assert_eq!(root.with_branch("v1.2-x").expect("a branch"), name);
    assert_eq!(name.with_branch("other").expect("a branch").as_str(), "photos@other");
    assert_eq!(name.with_branch("main").expect("the table"), root);
    for branch in ["", "a/b", "..", "a..b", ".a", "a@b", "@", "main@", &"b".repeat(129)] {
        assert!(root.with_branch(branch).is_err(), "{branch:?}");
        assert!(TableName::try_new(format!("photos@{branch}")).is_err(), "{branch:?}");
    }
    for name in ["@dev", "photos@", "photos@main", "a/b@dev", "../x@dev"] {
        assert!(TableName::try_new(name).is_err(), "{name:?}");
    }
    assert!(TagName::try_new("a@b").is_err() && RunId::try_new("a@b").is_err());
}

#[test]
fn kinds_round_trip_by_name() {
    for kind in ErrorKind::ALL {
        assert_eq!(ErrorKind::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(ErrorKind::parse("nope"), None);
}

fn spec(num_rows: u64) -> StreamSpec {
    let source = SourceSpec {
        sql: "SELECT image, label FROM digits WHERE split = $1 ".repeat(20),
        params: vec![ParamValue::Text("train".into())],
        snapshots: (0..6)
            .map(|i| Snapshot {
                table: TableName::try_new(format!("a_rather_long_table_{i}")).expect("valid"),
                version: i,
            })
            .collect(),
        tables: Vec::new(),
        row_set: Digest::of(b"rows"),
        num_rows,
        order: OrderOptions {
            mode: ShuffleMode::Block,
            num_lanes: 48,
            rows_per_block: 3,
            mixing: Mixing::Windows { rows_per_window: 70 },
        },
        weight: None,
        pack: None,
        bucket: None,
    };
    StreamSpec { version: SPEC_VERSION, sources: vec![source], mixture: None, num_rows, seed: u64::MAX }
}

fn at(epoch: u64, position: u64, step: u64) -> ResumePoint {
    ResumePoint { epoch, position, step }
}

/// Returns the specification of a mixture with a query like that of [`spec`] for each weight.
fn mixed(num_rows: u64, weights: &[f64]) -> StreamSpec {
    let mut spec = spec(num_rows);
    spec.sources = vec![spec.sources[0].clone(); weights.len()];
    let slots = slots_for(weights).expect("weights");
    let segments = vec![MixtureSegment { start: 0, drawn: vec![0; weights.len()], slots }];
    spec.mixture = Some(MixtureSpec { version: MIXTURE_VERSION, stop: MixtureStop::First, segments, earlier: None });
    spec
}

#[test]
fn states_stay_under_one_kibibyte() {
    for spec in [spec(1 << 60), mixed(1 << 60, &[0.123_456_789, 3.3, 1e-3])] {
        let log = vec![BatchLogEntry { step: u64::MAX, position: u64::MAX, global_batch: 1 << 32 }; 100];
        let state = StreamState::new(&spec, at(u64::MAX, 1 << 59, u64::MAX), &log, false);
        let json = state.to_json();
        assert!(json.len() < 1024, "{} bytes: {json}", json.len());
        assert_eq!(StreamState::from_json(&json).expect("own state"), state);
        // Epoch 14 is the last one that a mixture with 2^60 rows in an epoch has.
        let last = StreamState::new(&spec, at(14, 1 << 59, u64::MAX), &log, false);
        assert!(last.check(&spec).is_ok());
        assert_eq!(state.check(&spec).is_ok(), spec.mixture.is_none());
    }
}

#[test]
fn states_keep_the_first_and_the_last_entry_of_the_log() {
    let check = |begin: u64, num_entries: u64| {
        let entry = |at: u64| BatchLogEntry { step: begin + at, position: begin + 7 * at, global_batch: 7 + at };
        let log: Vec<BatchLogEntry> = (0..num_entries).map(entry).collect();
        let state = StreamState::new(&spec(1 << 60), at(0, 1 << 59, u64::MAX), &log, false);
        let kept = state.log.as_slice();
        assert!(state.to_json().len() < 1024 && kept.len() <= 8, "{}", state.to_json());
        assert_eq!((kept.first(), kept.last()), (log.first(), log.last()));
        if kept != log {
            // The entries between them are the latest ones, after a gap from the second one on.
            assert_eq!(kept[1], BatchLogEntry { global_batch: 0, ..log[1] });
            assert!(kept[1].is_gap() && log.ends_with(&kept[2..]), "{kept:?}");
        }
        kept.len()
    };
    assert_eq!([0, 1, 2].map(|num_entries| check(1 << 62, num_entries)), [0, 1, 2]);
    let num_kept = [3, 4, 8, 9, 100].map(|num_entries| check(1 << 62, num_entries));
    assert!(num_kept.iter().all(|number| (3..8).contains(number)), "{num_kept:?}");
    // A log that was shortened and grows is shortened again.
    let entry = |step| BatchLogEntry { step, position: step, global_batch: 1 };
    let mut log = Vec::new();
    for step in 0..30 {
        log.push(entry(step));
        log = StreamState::new(&spec(100), at(0, 50, 50), &log, false).log;
        assert_eq!((log.first(), log.last()), (Some(&entry(0)), Some(&entry(step))));
    }
    assert_eq!(log[1], BatchLogEntry { global_batch: 0, ..entry(1) });
    assert!(log[2..].iter().map(|entry| entry.step).eq(30 - log.len() as u64 + 2..30), "{log:?}");
}

#[test]
fn states_of_other_streams_are_refused_with_the_difference() {
    let mine = spec(10);
    let mut theirs = mine.clone();
    theirs.seed = 3;
    for embed in [true, false] {
        let error = StreamState::new(&mine, at(0, 5, 1), &[], embed).check(&theirs).expect_err("another seed");
        assert_eq!(error.kind(), ErrorKind::StateMismatch);
        assert!(error.to_string().contains("seed"), "{error}");
    }
    let mut theirs = mine.clone();
    theirs.sources[0].order.num_lanes = 2;
    let error = StreamState::new(&mine, at(0, 5, 1), &[], false).check(&theirs).expect_err("other options");
    assert!(error.to_string().contains("48 lanes") && error.to_string().contains("2 lanes"), "{error}");
    assert!(StreamState::from_json("{}").is_err());
    assert!(
        StreamState::from_json(&StreamState::new(&mine, at(0, 0, 0), &[], false).to_json().replace(":2,", ":9,"))
            .is_err()
    );
}

/// Returns the options of packs with columns of these names.
fn packs(columns: &[&str]) -> PackOptions {
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    PackOptions { columns, length: 128, lengths: Some("n".into()), pad: 0 }
}

fn buckets() -> BucketOptions {
    BucketOptions { column: "tokens".into(), max_tokens: 512, max_rows: None, multiple: 8, longer: LongerRows::Alone }
}

/// Returns the specification of a stream of `num_rows` rows, packs or buckets.
fn spec_with(num_rows: u64, options: &EpochOptions) -> StreamSpec {
    let mut spec = spec(num_rows);
    let (source, digest) = (&mut spec.sources[0], Digest::of(b"lengths"));
    source.weight =
        options.weight.clone().map(|column| WeightSpec { version: WEIGHT_VERSION, column, num_rows: 500, digest });
    source.pack = options.pack.clone().map(|options| {
        let group_packs = options.group_packs();
        PackSpec { version: PACK_VERSION, options, group_packs, num_rows: 500, digest }
    });
    source.bucket =
        options.bucket.clone().map(|options| BucketSpec { version: BUCKET_VERSION, options, num_rows: 500, digest });
    // Blocks have as many bytes, and so other numbers of packs than of rows.
    source.order.rows_per_block = num_rows;
    spec
}

#[test]
fn states_with_other_weights_packs_or_buckets_name_the_option() {
    let packed = |pack| EpochOptions { pack: Some(pack), ..EpochOptions::default() };
    let bucketed = |bucket| EpochOptions { bucket: Some(bucket), ..EpochOptions::default() };
    let weighted = |column: &str| EpochOptions { weight: Some(column.into()), ..EpochOptions::default() };
    let (plain, packs, buckets) = (EpochOptions::default(), packs(&["tokens", "mask"]), buckets());
    for (mine, theirs, lines) in [
        (
            packed(packs.clone()),
            plain.clone(),
            vec!["pack: the state has tokens, mask in 128 tokens, padded with 0, lengths in n, the stream has none"],
        ),
        (
            packed(PackOptions { length: 64, lengths: None, pad: -1, ..packs.clone() }),
            packed(packs.clone()),
            vec![
                "pack length: the state has 64, the stream has 128",
                "pack lengths: the state has none, the stream has n",
                "pack pad: the state has -1, the stream has 0",
            ],
        ),
        (
            packed(packs.clone()),
            packed(self::packs(&["tokens"])),
            vec!["pack columns: the state has tokens, mask, the stream has tokens"],
        ),
        (
            plain,
            bucketed(buckets.clone()),
            vec!["bucket: the state has none, the stream has 512 tokens by tokens, in multiples of 8"],
        ),
        (
            bucketed(BucketOptions { max_tokens: 500, max_rows: Some(7), ..buckets.clone() }),
            bucketed(BucketOptions { column: "n".into(), multiple: 1, longer: LongerRows::Error, ..buckets.clone() }),
            vec![
                "bucket column: the state has tokens, the stream has n",
                "bucket max_tokens: the state has 500, the stream has 512",
                "bucket max_rows: the state has 7, the stream has none",
                "bucket multiple: the state has 8, the stream has 1",
                "bucket longer: the state has alone, the stream has error",
            ],
        ),
        (weighted("w"), weighted("v"), vec!["weight: the state has w, the stream has v"]),
        (
            weighted("w"),
            packed(packs),
            vec![
                "weight: the state has w, the stream has none",
                "pack: the state has none, the stream has tokens, mask in 128 tokens, padded with 0, lengths in n",
            ],
        ),
    ] {
        let (mine, mut theirs) = (spec_with(400, &mine), spec_with(136, &theirs));
        for embed in [false, true] {
            let state = StreamState::new(&mine, at(0, 300, 1), &[], embed);
            let state = StreamState::from_json(&state.to_json()).expect("own state");
            let Err(Error::StateMismatch { differences }) = state.check(&theirs) else { panic!("no mismatch") };
            assert_eq!(differences, lines);
            let text = Error::StateMismatch { differences }.to_string();
            assert!(text.contains("plan the stream with the weight, pack and bucket that the state has"), "{text}");
        }
        // Options that were asked for as well are named too.
        theirs.sources[0].order.num_lanes = 2;
        let error = StreamState::new(&mine, at(0, 5, 1), &[], false).check(&theirs).expect_err("other lanes");
        assert!(error.to_string().contains("num_lanes: the state has 48, the stream has 2"), "{error}");
    }
}

#[test]
fn states_have_the_beginnings_of_long_names() {
    let name = "\u{1}ö".repeat(2_000);
    let columns: Vec<String> = (0..100).map(|at| format!("{name}{at}")).collect();
    let pack = PackOptions { columns, length: 1 << 24, lengths: Some(name.clone()), pad: i64::MIN };
    let bucket = BucketOptions {
        column: name.clone(),
        max_tokens: 1 << 40,
        max_rows: Some(u64::MAX),
        multiple: 1 << 40,
        longer: LongerRows::Error,
    };
    for options in [
        EpochOptions { pack: Some(pack), ..EpochOptions::default() },
        EpochOptions { bucket: Some(bucket), ..EpochOptions::default() },
        EpochOptions { weight: Some(name), ..EpochOptions::default() },
    ] {
        let spec = spec_with(1 << 60, &options);
        let log = [BatchLogEntry { step: u64::MAX, position: u64::MAX, global_batch: u64::MAX }; 9];
        let state = StreamState::new(&spec, at(u64::MAX, 1 << 59, u64::MAX), &log, false);
        assert!(state.to_json().len() < 1024, "{}", state.to_json());
        assert_eq!(StreamState::from_json(&state.to_json()).expect("own state"), state);
        let mut seeded = spec.clone();
        seeded.seed = 3;
        let error = state.check(&seeded).expect_err("another seed").to_string();
        assert!(error.contains("another stream: seed: the state has") && !error.contains("pack"), "{error}");
    }
}

#[test]
fn specifications_round_trip_and_digest_every_field() {
    let one = spec(10);
    assert_eq!(StreamSpec::from_json(&one.to_json()).expect("own json"), one);
    let mut other = one.clone();
    other.sources[0].params = vec![];
    assert_ne!(one.stream_id(), other.stream_id());
    assert!(StreamSpec::from_json(b"{\"version\":2}").is_err());
}

/// Streams of buckets that were planned before there was the option keep their ids.
#[test]
fn longer_rows_alone_are_no_part_of_the_specification() {
    let options =
        |longer| EpochOptions { bucket: Some(BucketOptions { longer, ..buckets() }), ..EpochOptions::default() };
    let [alone, refused] = [LongerRows::Alone, LongerRows::Error].map(|longer| spec_with(10, &options(longer)));
    let json = String::from_utf8(alone.to_json()).expect("JSON");
    assert!(json.contains(r#""options":{"column":"tokens","max_tokens":512,"multiple":8}"#), "{json}");
    for spec in [&alone, &refused] {
        assert_eq!(StreamSpec::from_json(&spec.to_json()).expect("own json"), *spec);
    }
    assert_ne!(alone.stream_id(), refused.stream_id());
    for longer in [LongerRows::Alone, LongerRows::Error] {
        assert_eq!(LongerRows::parse(longer.as_str()), Some(longer));
    }
    assert_eq!(LongerRows::parse("cut"), None);
}

#[test]
fn mixtures_are_checked() {
    let good = mixed(10, &[0.7, 0.3]);
    assert_eq!(StreamSpec::from_json(&good.to_json()).expect("own json"), good);
    let broken = |change: fn(&mut StreamSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        StreamSpec::from_json(&spec.to_json()).expect_err("broken").to_string()
    };
    assert!(broken(|spec| spec.mixture = None).contains("no mixture"));
    assert!(broken(|spec| spec.sources.clear()).contains("no query"));
    assert!(broken(|spec| spec.sources[1].num_rows = 0).contains("no rows"));
    let change = |spec: &mut StreamSpec, change: fn(&mut MixtureSegment)| {
        spec.mixture.iter_mut().for_each(|mixture| change(&mut mixture.segments[0]));
    };
    let all: [fn(&mut MixtureSegment); 5] = [
        |segment| segment.start = 1,
        |segment| segment.drawn[0] = 1,
        |segment| segment.slots[0] = 0,
        |segment| segment.slots.push(1),
        |segment| segment.slots[0] = u32::MAX,
    ];
    for edit in all {
        let mut spec = good.clone();
        change(&mut spec, edit);
        assert!(StreamSpec::from_json(&spec.to_json()).is_err(), "{:?}", spec.mixture);
    }
}

#[test]
fn weights_are_exact_where_they_can_be() {
    let exact = |weights: &[f64]| {
        let slots = slots_for(weights).expect("weights");
        let period: u32 = slots.iter().sum();
        assert!((1_024..=65_536).contains(&period), "{period}");
        let total: f64 = weights.iter().sum();
        let off = |(slots, weight): (&u32, &f64)| (f64::from(*slots) / f64::from(period) - weight / total).abs();
        slots.iter().zip(weights).map(off).fold(0.0, f64::max)
    };
    for weights in [&[0.7, 0.3][..], &[1.0], &[1.0, 1.0], &[3.0, 2.0, 5.0], &[0.125, 0.875], &[1.0 / 3.0, 2.0 / 3.0]] {
        assert!(exact(weights) < 1e-9, "{weights:?}");
    }
    assert!(exact(&[std::f64::consts::PI, std::f64::consts::E, 1.0]) <= 1.0 / 65_536.0);
    for bad in [&[][..], &[0.0], &[-1.0, 2.0], &[f64::NAN], &[f64::INFINITY, 1.0], &[1e-9, 1.0], &[1.0; 65]] {
        assert_eq!(slots_for(bad).expect_err("bad weights").kind(), ErrorKind::InvalidRequest, "{bad:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Over all ranks, every position from the origin on occurs exactly once for all sizes, and padding only repeats
    /// rows of its batch.
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
