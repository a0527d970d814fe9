//! Tests of rows that are packed into sequences.

use std::collections::BTreeMap;

use arrow_array::ListArray;
use arrow_array::types::{Int32Type, UInt64Type};
use stoker_batch::PackColumns;
use stoker_types::{ErrorKind, MixOptions, MixtureStop, PackOptions, PlanRequest, Query, RunId};

use super::*;

/// The number of tokens of a document. Some have none, and a few are longer than a pack.
fn length(document: i64) -> usize {
    match document % 10 {
        0 => 0,
        9 => 100 + document as usize % 77,
        other => 1 + (document as usize * 7 + other as usize) % 40,
    }
}

/// Makes a lake with table `docs`: ids, tokens that name their document and their place in it, a mask as long, and the
/// number of tokens.
async fn documents(uri: &str, num_rows: i64) -> Engine {
    let lake = LakeStore::open(uri, &StorageOptions::default()).await.expect("a lake");
    let lists = |value: fn(i64, usize) -> i32| {
        let rows = (0..num_rows).map(|id| Some((0..length(id)).map(|at| Some(value(id, at))).collect::<Vec<_>>()));
        ListArray::from_iter_primitive::<Int32Type, _, _>(rows)
    };
    let (tokens, mask) = (lists(|id, at| (id * 1_000) as i32 + at as i32), lists(|_, at| (at % 2) as i32));
    let columns: Vec<(&str, arrow_array::ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..num_rows))),
        ("tokens", Arc::new(tokens)),
        ("mask", Arc::new(mask)),
        ("source", Arc::new(StringArray::from_iter_values((0..num_rows).map(|id| format!("site {}", id % 7))))),
        ("n", Arc::new(Int64Array::from_iter_values((0..num_rows).map(|id| length(id) as i64)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    let options = WriteOptions { rows_per_fragment_max: 450, ..WriteOptions::default() };
    create(&lake, "docs", &batch, options).await;
    Engine::new(lake, EngineOptions::default())
}

const DOCUMENTS: &str = "SELECT id, tokens, mask, source, n FROM docs";
const LENGTH: usize = 64;

fn pack(lengths: Option<&str>) -> PackOptions {
    let columns = vec!["tokens".to_string(), "mask".to_string()];
    PackOptions { columns, length: LENGTH as u64, lengths: lengths.map(String::from), pad: -1 }
}

fn options(shuffle: ShuffleMode, pack: PackOptions) -> StreamOptions {
    StreamOptions {
        seed: 7,
        shuffle,
        shuffle_window_bytes: Some(200 << 10),
        block_bytes: 8 << 10,
        num_lanes: 12,
        pack: Some(pack),
        ..StreamOptions::default()
    }
}

/// Checks a batch of packs. Returns the documents of each pack with their pieces: the first token, and the number of tokens.
fn checked(batch: &Batch) -> Vec<Vec<(i64, usize, usize)>> {
    let columns = PackColumns::of(&batch.data.schema(), LENGTH as u64).expect("the columns of packs");
    let data = columns.complete(&batch.data, None).expect("all columns");
    let sequences = |name: &str, pack: usize| {
        data[name].as_fixed_size_list().value(pack).as_primitive::<Int32Type>().values().to_vec()
    };
    let mut packs = Vec::new();
    for pack in 0..data.num_rows() {
        let (tokens, mask) = (sequences("tokens", pack), sequences("mask", pack));
        let (positions, documents) = (sequences("position_ids", pack), sequences("document_ids", pack));
        let list = |name: &str| data[name].as_list::<i32>().value(pack);
        let (ids, sources, ends, row_ids) = (list("id"), list("source"), list("cu_seqlens"), list("document_row_ids"));
        let ids = ids.as_primitive::<Int64Type>().values();
        let ends = ends.as_primitive::<Int32Type>().values();
        let row_ids = row_ids.as_primitive::<UInt64Type>().values();
        let mut pieces = Vec::new();
        for (index, id) in ids.iter().enumerate() {
            let (start, end) = (ends[index] as usize, ends[index + 1] as usize);
            let first = (i64::from(tokens[start]) - id * 1_000) as usize;
            for at in start..end {
                assert_eq!(i64::from(tokens[at]), id * 1_000 + (first + at - start) as i64);
                assert_eq!(mask[at], ((first + at - start) % 2) as i32);
                assert_eq!((positions[at], documents[at]), ((at - start) as i32, index as i32 + 1));
            }
            assert_eq!(sources.as_string::<i32>().value(index), format!("site {}", id % 7));
            assert_eq!(row_ids[index], (((id / 450) as u64) << 32) | (id % 450) as u64);
            pieces.push((*id, first, end - start));
        }
        let used = ends[ids.len()] as usize;
        assert_eq!(ends.len(), ids.len() + 1 + usize::from(used < LENGTH), "padding is the last document");
        assert_eq!(ends.last(), Some(&(LENGTH as i32)));
        assert!(tokens[used..].iter().chain(&mask[used..]).all(|value| *value == -1));
        assert!(positions[used..].iter().chain(&documents[used..]).all(|value| *value == 0));
        assert_eq!(batch.row_addrs[0][pack], row_ids[0]);
        packs.push(pieces);
    }
    packs
}

/// Returns the packs of the ranks of an epoch, by position.
async fn epoch(plan: &StreamPlan, epoch: u64, world_size: u32, origin: u64) -> Vec<Vec<(i64, usize, usize)>> {
    let mut packs = BTreeMap::new();
    for rank in 0..world_size {
        let slice = Slice { epoch, origin, ..slice(rank, world_size, BatchSize::Global(12), LastBatch::Uneven) };
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        while let Some(batch) = stream.next().await.expect("a batch") {
            let share = slice.share(batch.step, plan.num_rows());
            for (row, pack) in checked(&batch).into_iter().enumerate() {
                packs.insert(share.position(row as u64), pack);
            }
        }
    }
    assert!(packs.keys().copied().eq(origin..plan.num_rows()));
    packs.into_values().collect()
}

/// Checks that packs have each token of each document once.
fn check_tokens(packs: &[Vec<(i64, usize, usize)>], ids: impl Iterator<Item = i64>) {
    let mut pieces: BTreeMap<i64, Vec<(usize, usize)>> = BTreeMap::new();
    for (id, first, num) in packs.iter().flatten() {
        pieces.entry(*id).or_default().push((*first, *num));
    }
    for id in ids {
        let mut found = pieces.remove(&id).unwrap_or_default();
        found.sort_unstable();
        let is_cut = length(id) > LENGTH;
        assert!(found.len() == 1 || is_cut || length(id) == 0, "document {id} is cut: {found:?}");
        let next = found.into_iter().fold(0, |next, (first, num)| {
            assert_eq!(first, next, "document {id}");
            next + num
        });
        assert_eq!(next, length(id), "document {id}");
    }
    assert!(pieces.is_empty(), "other documents");
}

#[test]
fn each_token_of_each_document_is_in_one_pack() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = documents(folder.path().to_str().expect("UTF-8"), 2_000).await;
        for (shuffle, version) in ORDERS {
            let options = options(shuffle, pack(Some("n")));
            let plan = StreamPlan::create(&engine, DOCUMENTS, &[], &options).await.expect("a plan");
            let plan = of_version(&engine, plan, version).await;
            let num_tokens: usize = (0..2_000).map(length).sum();
            let filled = num_tokens as f64 / (plan.num_rows() as f64 * LENGTH as f64);
            assert!(filled > 0.98, "{filled}");
            let first = epoch(&plan, 0, 1, 0).await;
            check_tokens(&first, 0..2_000);
            // The same packs come at the same positions on any number of ranks, from any position on.
            assert_eq!(epoch(&plan, 0, 5, 0).await, first, "{shuffle:?} {version}");
            assert_eq!(epoch(&plan, 0, 3, 100).await, first[100..], "{shuffle:?} {version}");
            let second = epoch(&plan, 1, 2, 0).await;
            check_tokens(&second, 0..2_000);
            assert_ne!(second, first, "documents change places from epoch to epoch");
            let selected = "SELECT id, tokens, mask, source, n FROM docs WHERE id % 3 = 1";
            let plan = StreamPlan::create(&engine, selected, &[], &options).await.expect("a plan");
            check_tokens(&epoch(&plan, 0, 2, 0).await, (0..2_000).filter(|id| id % 3 == 1));
        }
        // Tokens are counted where no column has their number.
        let counted = options(ShuffleMode::Block, pack(None));
        let counted = StreamPlan::create(&engine, DOCUMENTS, &[], &counted).await.expect("a plan");
        check_tokens(&epoch(&counted, 0, 1, 0).await, 0..2_000);
        let empty = options(ShuffleMode::Block, pack(None));
        let empty = StreamPlan::create(&engine, &format!("{DOCUMENTS} WHERE id % 10 = 0"), &[], &empty).await;
        assert_eq!(empty.expect("documents without tokens").num_rows(), 0);
    });
}

#[test]
fn receipts_and_runs_know_packs() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = documents(folder.path().to_str().expect("UTF-8"), 500).await;
        let request = |pack: Option<PackOptions>| PlanRequest {
            run_id: Some(RunId::try_new("exp").expect("a name")),
            ..PlanRequest::new(
                Query::new(DOCUMENTS, &[]),
                StreamOptions { pack: pack.clone(), ..options(ShuffleMode::Block, self::pack(None)) },
            )
        };
        let plan = StreamPlan::plan(&engine, &request(Some(pack(Some("n"))))).await.expect("a run");
        let mut receipts = Vec::new();
        for rank in 0..3 {
            let slice = slice(rank, 3, BatchSize::PerRank(4), LastBatch::Uneven);
            receipts.push(receipt(&plan, slice, slice.num_steps(plan.num_rows())).await);
        }
        let verdict = plan.verify(&receipts).await.expect("verdicts").remove(0);
        assert_eq!((verdict.num_rows, verdict.missing.count, verdict.repeated.count), (plan.num_rows(), 0, 0));
        assert!(verdict.wrong.is_empty());
        let again = StreamPlan::plan(&engine, &request(Some(pack(Some("n"))))).await.expect("the same run");
        assert_eq!(again.stream_id(), plan.stream_id());
        let longer = PackOptions { length: 65, ..pack(Some("n")) };
        for (other, wanted) in [
            (None, "pack: the run has tokens, mask in 64"),
            (Some(pack(None)), "pack lengths: the run has n, this process has none"),
            (Some(longer), "pack length: the run has 64, this process has 65"),
        ] {
            let error = StreamPlan::plan(&engine, &request(other)).await.map(|_| ()).expect_err("another packing");
            let text = error.to_string();
            assert!(error.kind() == ErrorKind::StateMismatch && text.contains(wanted), "{text}");
            assert!(!text.contains("rows") && text.contains("or another run_id"), "{text}");
        }
    });
}

#[test]
fn columns_that_cannot_be_packed_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = documents(folder.path().to_str().expect("UTF-8"), 500).await;
        let refused = async |columns: &str, pack: PackOptions, parts: &[&str]| {
            let (sql, options) = (format!("SELECT {columns} FROM docs"), options(ShuffleMode::Block, pack));
            let text = match StreamPlan::create(&engine, &sql, &[], &options).await {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
                    error.to_string()
                }
                Ok(plan) => {
                    let slice = slice(0, 1, BatchSize::PerRank(500), LastBatch::Uneven);
                    let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
                    stream.next().await.map(|_| ()).expect_err(&sql).to_string()
                }
            };
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        };
        let of = |columns: &[&str], lengths: Option<&str>| PackOptions {
            columns: columns.iter().map(|name| (*name).to_string()).collect(),
            ..pack(lengths)
        };
        refused("id, tokens", of(&["words"], None), &["\"words\"", "no such column; it has id, tokens"]).await;
        refused("id, tokens", of(&["id"], None), &["\"id\"", "it is Int64", "lists of numbers"]).await;
        refused("id, tokens", of(&["tokens"], Some("m")), &["\"m\"", "no such column"]).await;
        refused("source, tokens", of(&["tokens"], Some("source")), &["it is Utf8", "whole numbers"]).await;
        refused("n - 30 AS n, tokens", of(&["tokens"], Some("n")), &["row 0x0 of docs", "-30", "lengths are numbers"])
            .await;
        refused("n + 1 AS n, tokens", of(&["tokens"], Some("n")), &["row 0x", "of docs", "its length says"]).await;
        refused("tokens, id AS position_ids", of(&["tokens"], None), &["\"position_ids\"", "another name"]).await;
        let wide = PackOptions { pad: 1 << 40, ..of(&["tokens"], None) };
        refused("tokens", wide, &["the padding 1099511627776 is no Int32"]).await;
        refused("tokens", of(&[], None), &["it names no column"]).await;
        refused("tokens", of(&["tokens", "tokens"], None), &["it names column tokens twice"]).await;
        refused("tokens", PackOptions { length: 1, ..of(&["tokens"], None) }, &["its length is 1", "between 2 and"])
            .await;
        let weighted = StreamOptions { weight: Some("n".into()), ..options(ShuffleMode::Block, pack(None)) };
        let error = StreamPlan::create(&engine, DOCUMENTS, &[], &weighted).await.map(|_| ()).expect_err("both");
        assert!(error.to_string().contains("leave weight or pack out"), "{error}");
    });
}

#[test]
fn queries_of_mixtures_are_packed_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = documents(folder.path().to_str().expect("UTF-8"), 2_000).await;
        let query = |condition: &str| Query::new(format!("{DOCUMENTS} WHERE {condition}"), &[]);
        let request = PlanRequest {
            queries: vec![query("id < 1000"), query("id >= 1000")],
            mix: Some(MixOptions { weights: vec![0.9, 0.1], stop: MixtureStop::First, epoch_rows: 0 }),
            options: options(ShuffleMode::Block, pack(Some("n"))),
            run_id: None,
        };
        let plan = StreamPlan::plan(&engine, &request).await.expect("a mixture");
        let slice = slice(0, 1, BatchSize::PerRank(3), LastBatch::Uneven);
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        let mut documents = Vec::new();
        while let Some(batch) = stream.next().await.expect("a batch") {
            for pack in 0..batch.data.num_rows() {
                let ids = batch.data["id"].as_list::<i32>().value(pack);
                let ids = ids.as_primitive::<Int64Type>().values().to_vec();
                assert!(ids.iter().all(|id| *id < 1_000) || ids.iter().all(|id| *id >= 1_000), "{ids:?}");
                documents.extend(ids);
            }
        }
        documents.retain(|id| *id < 1_000);
        documents.sort_unstable();
        documents.dedup();
        assert!(documents.len() > 890, "{} documents of the first query", documents.len());
    });
}
