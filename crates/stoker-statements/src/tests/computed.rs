//! Columns that are computed in units: what is left after interruptions, and after changes of others.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use stoker_clock::Environment;
use stoker_types::{ErrorKind, TableName};

use super::fixture::Fixture;
use super::writes::{shown, table};
use crate::{ColumnJob, ColumnMode, ColumnPlan, ComputedColumn, Result};

fn column(mode: ColumnMode) -> ComputedColumn {
    ComputedColumn {
        table: TableName::try_new("t").expect("a name"),
        name: "c".into(),
        mode,
        inputs: vec!["id".into()],
        has_predicate: false,
        data_type: None,
        key: "double".into(),
        page_bytes: None,
        checkpoint: Duration::ZERO,
    }
}

/// A lake with a table `t` of three fragments, with the ids 0 to 3, 10 to 13 and 20 to 23.
async fn lake() -> Fixture {
    let fixture = Fixture::new(1).await;
    fixture.done("CREATE TABLE t (id BIGINT NOT NULL, name TEXT)").await;
    for first in [0, 10, 20] {
        let rows: Vec<String> = (first..first + 4).map(|id| format!("({id}, 'row {id}')")).collect();
        fixture.done(&format!("INSERT INTO t VALUES {}", rows.join(", "))).await;
    }
    fixture
}

async fn begin(lake: &Fixture, column: ComputedColumn) -> Result<ColumnJob> {
    ColumnJob::begin(lake.engine.lake(), &Environment::default(), column).await
}

async fn plan(job: &mut ColumnJob) -> ColumnPlan {
    job.plan().await.expect("a plan").expect("a column that is not committed")
}

/// Writes twice the ids as values of rows of a fragment.
async fn write(job: &mut ColumnJob, fragment: u64, offsets: std::ops::Range<u64>) -> Result<()> {
    let addrs: Vec<u64> = offsets.clone().map(|offset| fragment << 32 | offset).collect();
    let values = offsets.map(|offset| ((fragment * 10 + offset) * 2) as i64);
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    let schema = Schema::new(vec![Field::new("c", DataType::Int64, true)]);
    job.write(&addrs, &RecordBatch::try_new(schema.into(), vec![values]).expect("one column")).await
}

const WRONG: &str = "SELECT count(*) FROM t WHERE c IS NULL OR c <> id * 2";

#[tokio::test]
async fn a_job_goes_on_where_another_one_stopped() {
    let lake = lake().await;
    let before = table(&lake, "t").await.version();
    let mut first = begin(&lake, column(ColumnMode::Add)).await.expect("a job");
    let whole = ColumnPlan { version: before, num_rows: 12, num_done: 0, ranges: vec![(0, 3 << 32)] };
    assert_eq!(plan(&mut first).await, whole);
    write(&mut first, 0, 0..4).await.expect("rows");
    write(&mut first, 1, 0..2).await.expect("rows");
    write(&mut first, 1, 2..3).await.expect("rows");
    // The process ends here.
    drop(first);
    let mut second = begin(&lake, column(ColumnMode::Add)).await.expect("a job");
    let found = plan(&mut second).await;
    assert_eq!((found.num_done, found.ranges), (7, vec![((1 << 32) + 3, 3 << 32)]));
    write(&mut second, 1, 3..4).await.expect("rows");
    drop(second);
    // All rows of the second fragment are recorded, but it is not complete.
    let mut third = begin(&lake, column(ColumnMode::Add)).await.expect("a job");
    let found = plan(&mut third).await;
    assert_eq!((found.num_done, found.ranges), (8, vec![((1 << 32) + 4, 3 << 32)]));
    write(&mut third, 2, 0..4).await.expect("rows");
    assert_eq!(third.commit().await.expect("a commit"), Some(before + 1));
    assert_eq!(shown(&lake, WRONG).await, ["0"]);
    let left = lake.engine.lake().objects().list("columns").await.expect("a listing");
    assert_eq!(left, Vec::<String>::new());
    let error = begin(&lake, column(ColumnMode::Add)).await.err().expect("the column exists");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

#[tokio::test]
async fn what_others_change_is_planned_again() {
    let lake = lake().await;
    let mut job = begin(&lake, column(ColumnMode::Add)).await.expect("a job");
    plan(&mut job).await;
    for fragment in 0..3 {
        write(&mut job, fragment, 0..4).await.expect("rows");
    }
    lake.done("DELETE FROM t WHERE id = 11").await;
    lake.done("UPDATE t SET id = 5 WHERE id = 3").await;
    lake.done("INSERT INTO t VALUES (30, 'more')").await;
    assert_eq!(job.commit().await.expect("no commit"), None);
    let found = plan(&mut job).await;
    assert_eq!((found.num_rows, found.num_done), (12, 7));
    assert_eq!(found.ranges, [(0, 1 << 32), (3 << 32, 4 << 32)]);
    write(&mut job, 0, 0..4).await.expect("rows");
    write(&mut job, 3, 0..1).await.expect("rows");
    assert!(job.commit().await.expect("a commit").is_some());
    assert_eq!(
        shown(&lake, "SELECT id, c FROM t WHERE c <> id * 2").await,
        ["5 6"],
        "the row that was written as id 3"
    );
    assert_eq!(shown(&lake, "SELECT count(*) FROM t").await, ["12"]);

    // Of two jobs that add a column, one wins; the same job in two processes is one commit.
    let other = ComputedColumn { name: "d".into(), key: "other".into(), ..column(ColumnMode::Add) };
    let own = ComputedColumn { name: "d".into(), ..column(ColumnMode::Add) };
    let mut jobs: Vec<(ColumnPlan, ColumnJob)> = Vec::new();
    for column in [own.clone(), own, other] {
        let mut job = begin(&lake, column).await.expect("a job");
        jobs.push((plan(&mut job).await, job));
    }
    for (plan, job) in &mut jobs {
        assert_eq!((plan.num_done, plan.ranges.as_slice()), (0, &[(0, 4 << 32)][..]));
        for (fragment, rows) in [(0, 0..4), (1, 0..4), (2, 0..4), (3, 0..1)] {
            write(job, fragment, rows).await.expect("rows");
        }
    }
    let version = jobs[0].1.commit().await.expect("a commit").expect("a version");
    assert_eq!(jobs[1].1.commit().await.expect("the same commit"), Some(version));
    assert_eq!(jobs[2].1.commit().await.expect("no commit"), None);
    let error = jobs[2].1.plan().await.expect_err("the column exists");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("which others changed meanwhile"), "{error}");
}

#[tokio::test]
async fn columns_are_replaced_and_filled() {
    let lake = lake().await;
    lake.done("ALTER TABLE t ADD COLUMN c AS (id * 7)").await;
    let some = ComputedColumn { has_predicate: true, ..column(ColumnMode::Fill) };
    let mut job = begin(&lake, some).await.expect("a job");
    plan(&mut job).await;
    write(&mut job, 1, 1..3).await.expect("rows");
    assert!(job.commit().await.expect("a commit").is_some());
    assert_eq!(shown(&lake, "SELECT id, c FROM t WHERE c <> id * 7 ORDER BY id").await, ["11 22", "12 24"]);
    let mut job = begin(&lake, column(ColumnMode::Replace)).await.expect("a job");
    plan(&mut job).await;
    for fragment in 0..3 {
        write(&mut job, fragment, 0..4).await.expect("rows");
    }
    assert!(job.commit().await.expect("a commit").is_some());
    assert_eq!(shown(&lake, WRONG).await, ["0"]);
    let missing = ComputedColumn { name: "d".into(), ..column(ColumnMode::Replace) };
    assert_eq!(begin(&lake, missing).await.err().expect("no such column").kind(), ErrorKind::InvalidRequest);
    let unknown = ComputedColumn { name: "d".into(), inputs: vec!["nothing".into()], ..column(ColumnMode::Add) };
    let error = begin(&lake, unknown).await.err().expect("no such input");
    assert!(error.to_string().contains("has no column nothing: its columns are: id, name, c"), "{error}");
}
