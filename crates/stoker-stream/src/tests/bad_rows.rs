//! Tests of rows whose stored bytes were damaged.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use stoker_lake::DenseProbe;
use stoker_types::{BadRows, BadShare, ReadOptions, Receipt, SnapshotRef, SubstitutedRow};

use super::*;

/// Flips a bit in the stored tensors of these ids.
pub async fn damage(engine: &Engine, ids: &[i64]) {
    let table = engine.lake().table(&TableName::try_new("t").expect("a name"), &SnapshotRef::Latest).await;
    let DenseProbe::Dense(dense) = table.expect("the table").dense_column("x").await.expect("a probe") else {
        unreachable!("tensors are dense")
    };
    for id in ids {
        let (fragment, row) = ((id / 450) as u32, (id % 450) as u64);
        let part = dense.file(fragment).expect("a fragment");
        let file = part.reader.local().expect("a local file");
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a path");
        let file = fs::File::options().read(true).write(true).open(path).expect("the data file");
        let at = part.locate(row).expect("a row").0 + 5;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[byte[0] ^ 0x10], at).expect("another byte");
    }
}

fn address(id: i64) -> u64 {
    (((id / 450) as u64) << 32) | (id % 450) as u64
}

/// The rows of a rank: the id and validity of each row, and the substituted rows by position.
struct Share {
    ids: Vec<(i64, bool)>,
    bad: Vec<SubstitutedRow>,
    receipt: Receipt,
    steps: u64,
}

async fn share(plan: &StreamPlan, slice: Slice) -> Share {
    let options = ReadOptions { bad_rows: BadRows::Substitute, ..ReadOptions::default() };
    let mut stream = plan.open(&slice, &options).expect("a stream");
    let mut receipt = ReceiptBuilder::new(plan.stream_id(), &slice, plan.num_rows());
    let (mut ids, mut steps) = (Vec::new(), 0);
    while let Some(batch) = stream.next().await.expect("a batch") {
        receipt.add(&batch);
        steps += 1;
        let found = batch.data["id"].as_primitive::<Int64Type>().values().to_vec();
        let tensors = batch.data["x"].as_fixed_size_list();
        for (row, id) in found.into_iter().enumerate() {
            assert_eq!(tensors.value(row).as_primitive::<UInt8Type>().values().to_vec(), tensor(id), "row {id}");
            assert_eq!(batch.row_addrs[0][row], address(id));
            ids.push((id, row < batch.num_valid));
        }
    }
    let bad = receipt.receipt().parts.iter().flat_map(|part| part.substituted.clone()).collect();
    Share { ids, bad, receipt: receipt.receipt().clone(), steps }
}

#[test]
fn a_damaged_row_fails_the_stream_and_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        damage(&engine, &[777]).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let slice = slice(0, 1, BatchSize::PerRank(64), LastBatch::Pad);
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        let error = loop {
            match stream.next().await {
                Ok(Some(_)) => {}
                Ok(None) => unreachable!("the row was delivered"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), stoker_types::ErrorKind::DataCorrupt);
        let text = error.to_string();
        for part in [&format!("{:#x}", address(777)), "t@", "column x", "substitute", "quarantine"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        assert!(stream.next().await.expect("the end").is_none());
        let unverified = ReadOptions { verify: false, ..ReadOptions::default() };
        let mut stream = plan.open(&slice, &unverified).expect("a stream");
        while stream.next().await.expect("a batch").is_some() {}
        assert_eq!(stream.stats().verified_bytes, 0);
    });
}

#[test]
fn all_ranks_substitute_the_same_rows_and_see_equal_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let damaged: Vec<i64> = (0..10).map(|number| number * 97 + 3).chain([500, 501, 502]).collect();
        damage(&engine, &damaged).await;
        for (shuffle, version) in ORDERS {
            let plan = plan_of_version(&engine, ALL, shuffle, version).await;
            let mut decisions = Vec::new();
            for world in [1, 3, 8] {
                let (mut bad, mut delivered, mut receipts) = (Vec::new(), Vec::new(), Vec::new());
                for rank in 0..world {
                    let slice = slice(rank, world, BatchSize::Global(48), LastBatch::Pad);
                    let share = share(&plan, slice).await;
                    assert_eq!(share.steps, slice.num_steps(1_000));
                    bad.extend(share.bad);
                    delivered.extend(share.ids.into_iter().filter(|(_, valid)| *valid).map(|(id, _)| id));
                    receipts.push(share.receipt);
                }
                bad.sort();
                delivered.sort_unstable();
                let mut named: Vec<u64> = bad.iter().map(|row| row.row_addrs[0]).collect();
                named.sort_unstable();
                let mut expected: Vec<u64> = damaged.iter().map(|id| address(*id)).collect();
                expected.sort_unstable();
                assert_eq!(named, expected, "{shuffle:?} {version}, {world} ranks");
                let verdict = plan.verify(&receipts).await.expect("a verdict").remove(0);
                assert!(verdict.is_exactly_once(), "{verdict:?}");
                assert_eq!(verdict.substituted, bad);
                decisions.push((bad, delivered));
            }
            assert!(decisions.windows(2).all(|pair| pair[0] == pair[1]), "{shuffle:?} {version}");
            let (_, delivered) = &decisions[0];
            assert!(delivered.len() == 1_000 && damaged.iter().all(|id| !delivered.contains(id)));
        }
    });
}

#[test]
fn a_window_without_a_good_row_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 20).await;
        damage(&engine, &(0..20).collect::<Vec<_>>()).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let max_bad_share = BadShare::ALL;
        let options = ReadOptions { bad_rows: BadRows::Substitute, max_bad_share, ..ReadOptions::default() };
        let slice = slice(0, 1, BatchSize::PerRank(5), LastBatch::Pad);
        let error = plan.open(&slice, &options).expect("a stream").next().await.expect_err("no good row");
        assert!(error.to_string().contains("all 20 rows of its window are bad"), "{error}");
    });
}

#[test]
fn a_window_with_too_many_bad_rows_ends_the_stream_early() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        damage(&engine, &(0..900).collect::<Vec<_>>()).await;
        for (shuffle, version) in ORDERS {
            let plan = plan_of_version(&engine, ALL, shuffle, version).await;
            for share in [0.01, 0.5] {
                let max_bad_share = BadShare::try_new(share).expect("a share");
                let options = ReadOptions { bad_rows: BadRows::Substitute, max_bad_share, ..ReadOptions::default() };
                let slice = slice(0, 1, BatchSize::PerRank(10), LastBatch::Pad);
                let mut stream = plan.open(&slice, &options).expect("a stream");
                let error = loop {
                    match stream.next().await {
                        Ok(batch) => assert!(batch.is_some(), "all rows were delivered"),
                        Err(error) => break error,
                    }
                };
                assert_eq!(error.kind(), stoker_types::ErrorKind::DataCorrupt);
                let text = error.to_string();
                for part in ["rows of a window are bad", "column x", "max_bad_share"] {
                    assert!(text.contains(part), "{part} is not in: {text}");
                }
                let Error::Batch(stoker_batch::Error::TooManyBadRows { num_bad, num_rows, num_max, .. }) = error else {
                    unreachable!("{text}")
                };
                assert_eq!(
                    (num_bad, num_max),
                    (num_max + 1, ((num_rows as f64 * share) as u64).max(16)),
                    "{shuffle:?} {version}"
                );
            }
        }
    });
}
