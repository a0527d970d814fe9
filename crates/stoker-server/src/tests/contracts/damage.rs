//! Damages stored rows.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use proptest::sample::subsequence;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use stoker_lake::{DenseProbe, LakeStore};
use stoker_types::{SnapshotRef, TableName};

use crate::tests::contracts::lab::{WIDTH, address};

/// The largest percentage of damaged rows.
const PERCENT_MAX: usize = 10;

/// Draws the damaged rows of a table: 1 to 10 % of its rows, at least one.
pub fn draw_damage(num_rows: i64) -> Vec<i64> {
    let ids: Vec<i64> = (0..num_rows).collect();
    let some = (1..=PERCENT_MAX).prop_flat_map(|percent| {
        let num_damaged = (ids.len() * percent / 100).max(1);
        subsequence(ids.clone(), num_damaged)
    });
    let mut runner = TestRunner::new(ProptestConfig::default());
    some.new_tree(&mut runner).expect("some rows").current()
}

/// Flips a bit in the stored tensor of each of these rows.
pub async fn damage(lake: &LakeStore, table: &str, ids: &[i64]) {
    let name = TableName::try_new(table).expect("a name");
    let table = lake.table(&name, &SnapshotRef::Latest).await.expect("the table");
    let DenseProbe::Dense(dense) = table.dense_column("x").await.expect("a probe") else {
        unreachable!("tensors are dense")
    };
    for id in ids {
        let (fragment, row) = ((address(*id) >> 32) as u32, address(*id) & u64::from(u32::MAX));
        let part = dense.file(fragment).expect("a fragment");
        let file = part.reader.local().expect("a local file");
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("a path");
        let file = fs::File::options().read(true).write(true).open(path).expect("the data file");
        // The flipped bit can be in any byte of the row.
        let at = part.locate(row).expect("a row").0 + (*id as u64 * 31) % WIDTH as u64;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[byte[0] ^ 0x10], at).expect("another byte");
    }
}
