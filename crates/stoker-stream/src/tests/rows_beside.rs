//! Tests of rows of windows, for consumers that look for substitutes themselves.

use stoker_types::calls::Beside;
use stoker_types::{BadRows, ErrorKind, MixtureStop, ReadOptions};

use super::bad_rows::damage;
use super::*;

fn substituting() -> ReadOptions {
    ReadOptions { bad_rows: BadRows::Substitute, ..ReadOptions::default() }
}

/// Returns the addresses, one for each table, of the first good row in the window of a position. Checks values and bad
/// rows.
async fn first_good(plan: &StreamPlan, epoch: u64, position: u64) -> Vec<u64> {
    let window = Windows::new(plan.spec(), epoch).of(position);
    let wanted: Vec<Beside> = (0..window.num_rows().min(6)).map(|offset| Beside { position, offset }).collect();
    let budget = Resources::default();
    let found = plan.rows_beside(&budget, epoch, &wanted, &ReadOptions::default()).await.expect("rows");
    assert_eq!((found.data.num_rows(), found.data.schema()), (wanted.len(), plan.schema()));
    assert!(budget.memory().held_bytes() > 0);
    assert!(found.bad.get(&0).expect("the row itself").contains("checksum of column x"), "{:?}", found.bad);
    let ids = found.data["id"].as_primitive::<Int64Type>();
    let tensors = found.data["x"].as_fixed_size_list();
    let good: Vec<usize> = (0..wanted.len()).filter(|row| !found.bad.contains_key(row)).collect();
    for row in &good {
        assert_eq!(tensors.value(*row).as_primitive::<UInt8Type>().values().to_vec(), tensor(ids.value(*row)));
    }
    found.row_addrs.iter().map(|addrs| addrs[good[0]]).collect()
}

/// Checks that bad rows were replaced by the first good rows of their windows. Returns the number of bad rows.
async fn check(plan: &StreamPlan, epoch: u64) -> usize {
    let slice = Slice { epoch, ..slice(0, 1, BatchSize::Global(50), LastBatch::Uneven) };
    let mut stream = plan.open(&slice, &substituting()).expect("a stream");
    let mut num_bad = 0;
    while let Some(batch) = stream.next().await.expect("a batch") {
        let share = slice.share(batch.step, plan.num_rows());
        for Substitution { row, .. } in &batch.substituted {
            let delivered: Vec<u64> = batch.row_addrs.iter().map(|addrs| addrs[*row]).collect();
            assert_eq!(first_good(plan, epoch, share.position(*row as u64)).await, delivered);
            num_bad += 1;
        }
    }
    num_bad
}

#[test]
fn rows_of_windows_are_those_that_stand_for_bad_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        damage(&engine, &[3, 100, 500, 502, 504]).await;
        for (shuffle, version) in ORDERS {
            assert_eq!(
                check(&plan_of_version(&engine, ALL, shuffle, version).await, 1).await,
                5,
                "{shuffle:?} {version}"
            );
        }
        let mixed = mixtures::request(&[0.75, 0.25], MixtureStop::All, 0);
        let mixed = StreamPlan::plan(&engine, &mixed).await.expect("a plan");
        // Later epochs of the mixture begin in the middle of a source's own epochs.
        for epoch in 0..2 {
            assert!(check(&mixed, epoch).await >= 5);
        }
    });
}

#[test]
fn one_call_reads_some_rows_and_refuses_those_that_are_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 100).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let (budget, options) = (Resources::default(), ReadOptions::default());
        let many = vec![Beside { position: 7, offset: 0 }; 1_500];
        let found = plan.rows_beside(&budget, 0, &many, &options).await.expect("rows");
        assert_eq!((found.data.num_rows(), found.row_addrs[0].len()), (1_024, 1_024));
        assert_eq!(found.row_addrs[0][1_023], plan.row_addrs(0, &[7]).await.expect("a row")[0][0]);
        drop(found);
        assert_eq!(budget.memory().held_bytes(), 0);
        let num_rows = Windows::new(plan.spec(), 0).of(7).num_rows();
        for wanted in [
            vec![],
            vec![Beside { position: 100, offset: 0 }],
            vec![Beside { position: 7, offset: 1 }, Beside { position: 7, offset: num_rows }],
            vec![Beside { position: 7, offset: u64::MAX }],
        ] {
            let error = plan.rows_beside(&budget, 0, &wanted, &options).await.expect_err("no such rows");
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        }
    });
}
