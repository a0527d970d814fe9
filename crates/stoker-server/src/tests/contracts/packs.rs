//! Packs hold each token of the selected rows once.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_schema::DataType;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use stoker::{Connection, StreamHandle};
use stoker_batch::Batch;
use stoker_types::{LastBatch, PackOptions, StreamOptions};

use crate::tests::contracts::case::{Case, Job, case, job};
use crate::tests::contracts::delivery::deliver;
use crate::tests::contracts::kinds::check_values;
use crate::tests::contracts::lab::{Lab, tokens};
use crate::tests::contracts::{Transport, check_few};

#[test]
fn packs_have_each_token_once_in_process() {
    check_few(Transport::InProcess, packed(), packs_have_each_token_once);
}

#[test]
fn packs_have_each_token_once_over_flight() {
    check_few(Transport::OverFlight, packed(), packs_have_each_token_once);
}

/// A query and the ranks that read its packs, and other ranks that resume at a position.
#[derive(Clone, Debug)]
struct Packed {
    case: Case,
    length: u64,
    resumed: Job,
    position: Index,
}

fn packed() -> impl Strategy<Value = Packed> {
    let parts = case().prop_flat_map(|case| {
        let resumed = job(case.query.table_rows as u64);
        (Just(case), 2..400u64, resumed, any::<Index>())
    });
    parts.prop_map(|(case, length, resumed, position)| Packed { case, length, resumed, position })
}

/// Each token is in one pack, beside the other tokens of its row unless these do not fit one pack, and each pack has
/// the other values of its rows. All ranks, transports and resumes get the same packs at the same positions.
async fn packs_have_each_token_once(lab: &Lab, packed: &Packed) -> TestCaseResult {
    let Packed { case, length, resumed, position } = packed;
    let handle = plan(lab.connection(case.num_endpoints), case, *length).await?;
    let local = plan(lab.local(), case, *length).await?;
    prop_assert!(handle.spec() == local.spec(), "{:?} is planned as {:?}", local.spec(), handle.spec());
    let whole = |job: Job| Job { batching: stoker_types::Batching { last: LastBatch::Uneven, ..job.batching }, ..job };
    let packs = packs_of(&local, &whole(case.job.alone())).await?;
    prop_assert_eq!(packs.len() as u64, handle.num_rows());
    let has = |name: &str| handle.schema().field_with_name(name).is_ok();
    prop_assert!(case.query.kinds.iter().all(|column| has(column.name)), "{:?} lacks a column", handle.schema());
    prop_assert!(packs_of(&handle, &whole(case.job)).await? == packs, "other packs on other ranks");
    if !packs.is_empty() {
        let origin = position.index(packs.len()) as u64;
        let rest = packs_of(&handle, &whole(Job { epoch: case.job.epoch, origin, ..*resumed })).await?;
        prop_assert!(rest == packs[origin as usize..], "other packs after a resume at {origin}");
    }
    let mut found: BTreeMap<i64, Vec<Vec<i32>>> = BTreeMap::new();
    for (id, piece) in packs.into_iter().flatten() {
        found.entry(id).or_default().push(piece);
    }
    for id in case.query.ids() {
        let mut pieces = found.remove(&id).unwrap_or_default();
        let expected = tokens(id);
        prop_assert!(pieces.len() <= 1 || expected.len() as u64 > *length, "row {id} is cut");
        pieces.sort_unstable();
        prop_assert!(pieces.concat() == expected, "row {id} has the tokens {pieces:?}");
    }
    prop_assert!(found.is_empty(), "other rows: {found:?}");
    Ok(())
}

async fn plan(connection: &Connection, case: &Case, length: u64) -> stoker::Result<StreamHandle> {
    let pack = PackOptions { columns: vec!["tokens".into()], length, lengths: None, pad: -1 };
    let options = StreamOptions { pack: Some(pack), ..case.options.clone() };
    connection.plan_stream(&case.query.sql_of("id, tokens"), &[], &options).await
}

/// Returns the packs that the ranks of a job got, in order of position: the ids and the tokens of their documents.
async fn packs_of(handle: &StreamHandle, job: &Job) -> Result<Vec<Vec<(i64, Vec<i32>)>>, TestCaseError> {
    let mut packs = BTreeMap::new();
    for (rank, delivered) in deliver(handle, job).await?.into_iter().enumerate() {
        let mut position = rank;
        for batch in &delivered.batches {
            check_documents(batch)?;
            for pack in 0..batch.num_valid {
                let list = |name: &str| batch.data[name].as_list::<i32>().value(pack);
                let (ids, ends) = (list("id"), list("cu_seqlens"));
                let (ids, ends) = (ids.as_primitive::<Int64Type>().values(), ends.as_primitive::<Int32Type>().values());
                let tokens = batch.data["tokens"].as_fixed_size_list().value(pack);
                let tokens = tokens.as_primitive::<Int32Type>().values();
                let piece = |(id, ends): (&i64, &[i32])| (*id, tokens[ends[0] as usize..ends[1] as usize].to_vec());
                packs.insert(position, ids.iter().zip(ends.windows(2)).map(piece).collect());
                position += delivered.slice.topology.world_size as usize;
            }
        }
    }
    Ok(packs.into_values().collect())
}

/// Checks the values of the documents of a batch of packs, padding included.
fn check_documents(batch: &Batch) -> TestCaseResult {
    let ids = batch.data["id"].as_list::<i32>().values().as_primitive::<Int64Type>().values().to_vec();
    for (field, lists) in batch.data.schema_ref().fields().iter().zip(batch.data.columns()) {
        if let DataType::List(item) = field.data_type()
            && !["id", "cu_seqlens", "document_row_ids"].contains(&field.name().as_str())
        {
            check_values(field.name(), item, lists.as_list::<i32>().values(), &ids)?;
        }
    }
    Ok(())
}
