//! Buckets hold each selected row once, within their budget.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use stoker::{Connection, StreamHandle};
use stoker_types::calls::VerifyReceipts;
use stoker_types::{Batching, BucketOptions, ErrorKind, LastBatch, LongerRows, Receipt, StreamOptions};

use crate::tests::contracts::case::{Case, Job, case, job};
use crate::tests::contracts::delivery::deliver;
use crate::tests::contracts::lab::{Lab, tokens};
use crate::tests::contracts::{Transport, check_few};

#[test]
fn buckets_have_each_row_once_in_process() {
    check_few(Transport::InProcess, bucketed(), buckets_have_each_row_once);
}

#[test]
fn buckets_have_each_row_once_over_flight() {
    check_few(Transport::OverFlight, bucketed(), buckets_have_each_row_once);
}

/// A query and the ranks that read its buckets, and other ranks that resume at a position.
#[derive(Clone, Debug)]
struct Bucketed {
    case: Case,
    options: BucketOptions,
    resumed: Job,
    position: Index,
}

fn bucketed() -> impl Strategy<Value = Bucketed> {
    let longer = prop_oneof![3 => Just(LongerRows::Alone), 1 => Just(LongerRows::Error)];
    let options = (1..2_000u64, prop::option::of(1..60u64), 1..9u64, longer);
    let options = options.prop_map(|(max_tokens, max_rows, multiple, longer)| {
        let multiple = multiple.min(max_tokens);
        BucketOptions { column: "tokens".into(), max_tokens, max_rows, multiple, longer }
    });
    let parts = (case(), options).prop_flat_map(|(case, options)| {
        let resumed = job(case.query.table_rows as u64);
        (Just(case), Just(options), resumed, any::<Index>())
    });
    parts.prop_map(|(case, options, resumed, position)| Bucketed { case, options, resumed, position })
}

/// Rows that are longer than a bucket are refused, if that is asked for. Otherwise each row is in one bucket, with its own
/// values and address, and a bucket of several rows keeps its budget. All ranks, transports and resumes get the same buckets
/// at the same positions, and their receipts prove that each came once.
async fn buckets_have_each_row_once(lab: &Lab, bucketed: &Bucketed) -> TestCaseResult {
    let Bucketed { case, options, resumed, position } = bucketed;
    let connection = lab.connection(case.num_endpoints);
    let padded = |id: &i64| (tokens(*id).len().max(1) as u64).next_multiple_of(options.multiple);
    if options.longer == LongerRows::Error && case.query.ids().iter().any(|id| padded(id) > options.max_tokens) {
        for place in [connection, lab.local()] {
            let refused = plan(place, case, options).await.map(|_| ());
            let is_named = |error: &stoker::Error| {
                error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("a bucket has at most")
            };
            prop_assert!(refused.as_ref().is_err_and(is_named), "{refused:?}");
        }
        return Ok(());
    }
    let handle = plan(connection, case, options).await?;
    let local = plan(lab.local(), case, options).await?;
    prop_assert!(handle.spec() == local.spec(), "{:?} is planned as {:?}", local.spec(), handle.spec());
    let whole = |job: Job| Job { batching: Batching { last: LastBatch::Uneven, ..job.batching }, ..job };
    let (buckets, receipts) = buckets_of(lab, &local, &whole(case.job.alone())).await?;
    prop_assert_eq!(buckets.len() as u64, handle.num_rows());
    prove(lab.local(), receipts, handle.num_rows()).await?;
    let (same, receipts) = buckets_of(lab, &handle, &whole(case.job)).await?;
    prop_assert!(same == buckets, "other buckets on other ranks");
    prove(connection, receipts, handle.num_rows()).await?;
    if !buckets.is_empty() {
        let origin = position.index(buckets.len()) as u64;
        let (rest, _) = buckets_of(lab, &handle, &Job { epoch: case.job.epoch, origin, ..whole(*resumed) }).await?;
        prop_assert!(rest == buckets[origin as usize..], "other buckets after a resume at {origin}");
    }
    for bucket in &buckets {
        let padded = bucket.iter().map(padded).max().unwrap_or(0) * bucket.len() as u64;
        prop_assert!(padded <= options.max_tokens || bucket.len() == 1, "{padded} tokens in {options}");
        prop_assert!(options.max_rows.is_none_or(|rows| bucket.len() as u64 <= rows), "{} rows", bucket.len());
    }
    let mut found = buckets.concat();
    let mut expected = case.query.ids();
    found.sort_unstable();
    expected.sort_unstable();
    prop_assert!(found == expected, "other rows: {found:?}");
    Ok(())
}

async fn plan(connection: &Connection, case: &Case, bucket: &BucketOptions) -> stoker::Result<StreamHandle> {
    let options = StreamOptions { bucket: Some(bucket.clone()), ..case.options.clone() };
    connection.plan_stream(&case.query.sql_of("x, id, label, tokens"), &[], &options).await
}

/// Checks that receipts prove that each bucket of an epoch came once.
async fn prove(connection: &Connection, receipts: Vec<Receipt>, num_buckets: u64) -> TestCaseResult {
    if num_buckets == 0 {
        return Ok(());
    }
    for verdict in connection.call(VerifyReceipts { receipts }).await? {
        prop_assert_eq!(verdict.num_rows, num_buckets);
        prop_assert_eq!((verdict.missing.count, verdict.repeated.count), (0, 0));
        prop_assert!(verdict.wrong.is_empty(), "{:?}", verdict.wrong);
    }
    Ok(())
}

/// Returns the buckets that the ranks of a job got, in order of position, as the ids of their rows, and the receipts of the
/// ranks. Checks that each row has its own values and address, and that all rows of the batches belong to buckets.
async fn buckets_of(
    lab: &Lab,
    handle: &StreamHandle,
    job: &Job,
) -> Result<(Vec<Vec<i64>>, Vec<Receipt>), TestCaseError> {
    let mut buckets = BTreeMap::new();
    let mut receipts = Vec::new();
    for (rank, delivered) in deliver(handle, job).await?.into_iter().enumerate() {
        let mut position = rank;
        for batch in &delivered.batches {
            prop_assert_eq!(batch.data.schema(), handle.schema());
            let rows = lab.rows(batch)?;
            let lists = batch.data["tokens"].as_list::<i32>();
            for (row, found) in rows.iter().enumerate() {
                let found_tokens = lists.value(row).as_primitive::<Int32Type>().values().to_vec();
                prop_assert!(found_tokens == tokens(found.id), "row {} has other tokens", found.id);
            }
            let Some(of_batch) = &batch.buckets else {
                return Err(TestCaseError::fail("a batch without buckets"));
            };
            prop_assert_eq!(of_batch.ends.last().copied().unwrap_or(0), rows.len());
            let mut start = 0;
            for end in &of_batch.ends[..of_batch.num_valid] {
                buckets.insert(position, rows[start..*end].iter().map(|row| row.id).collect());
                (start, position) = (*end, position + delivered.slice.topology.world_size as usize);
            }
            prop_assert_eq!(start, batch.num_valid);
        }
        receipts.push(delivered.receipt);
    }
    Ok((buckets.into_values().collect(), receipts))
}
