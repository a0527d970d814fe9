//! Tests of building, dropping, optimising and listing indexes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch};
use datafusion::prelude::{col, lit};
use futures::TryStreamExt;
use lance::index::DatasetIndexExt;
use lance::index::scalar::fetch_index_details;
use stoker_types::{ErrorKind, StatementProgress};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::data::{TestResult, append, latest, memory_lake, schema, small, table_name, test_lake};
use super::reading::vector_table;
use crate::recall::Measured;
use crate::{
    BuiltIndex, ChangeNote, CommitMode, Error, IfExists, IndexKind, LakeStore, Metric, NewIndex, ScanRequest,
    WriteOptions,
};

/// An index of table `t`, of this name.
fn named(name: &str, column: &str, kind: IndexKind, if_exists: IfExists) -> NewIndex {
    NewIndex { name: Some(name.to_string()), column: column.to_string(), kind, if_exists }
}

fn flat(num_partitions: usize) -> IndexKind {
    IndexKind::IvfFlat { num_partitions, metric: Metric::L2 }
}

fn ignored(_: StatementProgress) {}

/// Appends rows to table `t`: ids, and vectors of 8 elements that follow from them.
async fn write_vectors(lake: &LakeStore, ids: Range<i64>) -> TestResult {
    let vector =
        |id: i64| Some((0..8).map(|element| Some(((id * 37 + element * 101) % 1_009) as f32)).collect::<Vec<_>>());
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
        ("v", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(ids.map(vector), 8))),
    ];
    let (name, rows) = (table_name("t"), RecordBatch::try_from_iter(columns)?);
    let mut writer = lake.writer(&name, &rows.schema(), true, WriteOptions::default()).await?;
    writer.write(&rows).await?;
    let (schema, drafts) = (writer.schema(), writer.finish().await?);
    lake.commit(&name, &schema, CommitMode::CreateOrAppend, drafts, None).await?;
    Ok(())
}

#[tokio::test]
async fn scalar_and_text_indexes_are_listed() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..50, small(20, 1000)).await?;
    for (column, kind) in [("id", IndexKind::BTree), ("name", IndexKind::Inverted)] {
        let before = latest(&lake, &name).await?;
        assert!(before.create_index(column, kind).await? > before.version());
    }
    let mut indexes = latest(&lake, &name).await?.indexes().await?;
    indexes.sort_by(|a, b| a.columns.cmp(&b.columns));
    let found: Vec<_> = indexes.iter().map(|index| (index.columns[0].as_str(), index.kind.as_str())).collect();
    assert_eq!(found, [("id", "BTree"), ("name", "Inverted")]);
    let error = latest(&lake, &name).await?.create_index("nope", IndexKind::BTree).await.expect_err("no such column");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    Ok(())
}

#[tokio::test]
async fn vector_indexes_are_listed() -> TestResult {
    let lake = memory_lake().await;
    let table = vector_table(&lake).await?;
    let version = table.create_index("v", IndexKind::IvfFlat { num_partitions: 2, metric: Metric::L2 }).await?;
    let table = latest(&lake, table.name()).await?;
    assert_eq!(table.version(), version);
    let indexes = table.indexes().await?;
    assert_eq!(indexes.len(), 1, "{indexes:?}");
    assert_eq!((indexes[0].columns.as_slice(), indexes[0].kind.as_str()), (["v".to_string()].as_slice(), "IVF_FLAT"));
    Ok(())
}

#[tokio::test]
async fn damaged_details_of_a_text_index_are_damage() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..50, small(20, 1000)).await?;
    latest(&lake, &name).await?.create_index("name", IndexKind::Inverted).await?;
    let table = latest(&lake, &name).await?;
    let mut index = table.dataset().load_indices().await?[0].clone();
    fetch_index_details(table.dataset(), "name", &index).await?;
    // These bytes begin with an invalid wire type.
    Arc::make_mut(index.index_details.as_mut().ok_or("details")?).value = vec![0xff; 3];
    let error = fetch_index_details(table.dataset(), "name", &index).await.expect_err("no details");
    assert!(matches!(error, lance_core::Error::IO { .. }), "{error}");
    let error = Error::storage("opening the index", error);
    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
    Ok(())
}

#[tokio::test]
async fn indexes_have_names_and_are_kept_replaced_and_dropped() -> TestResult {
    let lake = memory_lake().await;
    write_vectors(&lake, 0..300).await?;
    let name = table_name("t");
    let new = |if_exists| named("a", "v", flat(2), if_exists);
    let built = lake.create_index(&name, &new(IfExists::Fail), &ignored).await?;
    assert_eq!(built, BuiltIndex { name: "a".into(), version: 2, is_new: true });
    let error = lake.create_index(&name, &new(IfExists::Fail), &ignored).await.expect_err("a name that is taken");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    let kept = lake.create_index(&name, &new(IfExists::Keep), &ignored).await?;
    assert_eq!((kept.version, kept.is_new), (2, false));
    let replaced = lake.create_index(&name, &named("a", "v", flat(3), IfExists::Replace), &ignored).await?;
    assert_eq!((replaced.version, replaced.is_new), (3, true));
    let table = latest(&lake, &name).await?;
    let searched = table.searched_index("v", Metric::L2).await?;
    assert_eq!(searched.map(|index| index.num_partitions), Some(3));
    let error = lake.create_index(&name, &named("a", "id", IndexKind::BTree, IfExists::Replace), &ignored).await;
    assert!(error.expect_err("another column").to_string().contains("index of another column"));
    // Without a name, each kind of a column has one of its own.
    for (kind, expected) in
        [(IndexKind::BTree, "id_idx"), (IndexKind::Bitmap, "id_idx_2"), (IndexKind::BTree, "id_idx")]
    {
        let new = NewIndex { name: None, column: "id".into(), kind, if_exists: IfExists::Replace };
        assert_eq!(lake.create_index(&name, &new, &ignored).await?.name, expected);
    }
    assert_eq!(lake.drop_index(&name, "a", false).await?, (7, true));
    assert_eq!(lake.drop_index(&name, "a", true).await?, (7, false));
    let error = lake.drop_index(&name, "a", false).await.expect_err("it is gone").to_string();
    assert!(error.contains("index a of table t") && error.contains("indexes: id_idx, id_idx_2"), "{error}");
    let names = |indexes: Vec<stoker_types::IndexInfo>| indexes.into_iter().map(|index| index.name).collect::<Vec<_>>();
    assert_eq!(names(table.indexes().await?), ["a"], "an older version keeps its index");
    Ok(())
}

#[tokio::test]
async fn the_recall_of_vector_indexes_is_kept_until_the_index_is_gone() -> TestResult {
    let folder = test_lake().await;
    let (lake, name) = (&folder.lake, table_name("t"));
    write_vectors(lake, 0..600).await?;
    lake.create_index(&name, &named("a", "v", flat(2), IfExists::Fail), &ignored).await?;
    lake.create_index(&name, &named("b", "id", IndexKind::BTree, IfExists::Fail), &ignored).await?;
    let table = latest(lake, &name).await?;
    assert_eq!(table.indexes().await?.iter().map(|index| index.recall).collect::<Vec<_>>(), [None, None]);
    // All partitions are searched by default, and their vectors are not compressed.
    assert_eq!(table.indexed_vector_bytes("a").await?, Some(600 * 32));
    assert_eq!(table.indexed_vector_bytes("b").await?, None);
    assert_eq!(table.measure_recall("a", &ignored).await?, Some(1.0));
    assert_eq!(table.measure_recall("b", &ignored).await?, None);
    assert_eq!(table.measure_recall("c", &ignored).await?, None);
    let recalls = |indexes: Vec<stoker_types::IndexInfo>| {
        indexes.into_iter().filter_map(|index| Some((index.name, index.recall?))).collect::<Vec<_>>()
    };
    assert_eq!(recalls(table.indexes().await?), [("a".to_string(), 1.0)]);
    lake.clean_measured(&name).await?;
    let measured = lake.objects().list("indexes/t").await?;
    assert_eq!(measured.len(), 1);
    let json = lake.objects().get(&measured[0]).await?.ok_or("what was measured")?;
    let Measured { probes, candidates, .. } = serde_json::from_slice(&json)?;
    assert_eq!(candidates, 1_088, "one search of the index finds all rows");
    assert_eq!(probes.iter().map(|of| of.rank).collect::<Vec<_>>(), [10, 100, 1_000]);
    assert!(probes.iter().all(|of| (1..=2).contains(&of.probes)), "{probes:?}");
    let searched = table.searched_index("v", Metric::L2).await?.ok_or("an index")?;
    assert_eq!(searched.default_probes(10, 600, 600), 2, "at least the root of the number of partitions");
    // Rows that are not covered, and the index over all rows, which is another one.
    write_vectors(lake, 600..700).await?;
    let optimized = lake.optimize_indexes(&name, None, &ignored).await?;
    assert_eq!((optimized.version, optimized.num_rows, optimized.names.len()), (5, 100, 2));
    let table = latest(lake, &name).await?;
    assert!(recalls(table.indexes().await?).is_empty(), "nothing was measured of the new index");
    assert!(table.indexes().await?.iter().all(|index| index.num_rows_not_covered == 0));
    assert_eq!(table.keep_recall("a").await?, Some(1.0));
    assert_eq!(recalls(table.indexes().await?), [("a".to_string(), 1.0)]);
    let unchanged = lake.optimize_indexes(&name, Some("a"), &ignored).await?;
    assert_eq!((unchanged.version, unchanged.names.is_empty()), (5, true));
    for path in lake.objects().list("indexes/t").await? {
        let uuid = path.trim_start_matches("indexes/t/").trim_end_matches(".json");
        std::fs::remove_dir_all(folder.folder.path().join("t.lance/_indices").join(uuid))?;
    }
    lake.clean_measured(&name).await?;
    assert_eq!(lake.objects().list("indexes/t").await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_build_that_ends_early_leaves_the_table_as_it_was() -> TestResult {
    let lake = memory_lake().await;
    write_vectors(&lake, 0..2_000).await?;
    let (name, begun) = (table_name("t"), Notify::new());
    let new =
        named("a", "v", IndexKind::IvfPq { num_partitions: 8, num_sub_vectors: 4, metric: Metric::L2 }, IfExists::Fail);
    let report = |_: StatementProgress| begun.notify_one();
    tokio::select! {
        biased;
        () = begun.notified() => {}
        built = lake.create_index(&name, &new, &report) => panic!("it ended before it began: {built:?}"),
    }
    let table = latest(&lake, &name).await?;
    assert_eq!((table.version(), table.indexes().await?.len()), (1, 0));
    assert_eq!(lake.create_index(&name, &new, &ignored).await?.version, 2);
    Ok(())
}

#[tokio::test]
async fn builds_at_the_same_time_do_not_disturb_each_other() -> TestResult {
    let lake = memory_lake().await;
    write_vectors(&lake, 0..600).await?;
    let name = table_name("t");
    let (vectors, numbers) =
        (named("a", "v", flat(2), IfExists::Fail), named("b", "id", IndexKind::BTree, IfExists::Fail));
    let (one, other) =
        tokio::join!(lake.create_index(&name, &vectors, &ignored), lake.create_index(&name, &numbers, &ignored));
    let mut versions = [one?.version, other?.version];
    versions.sort_unstable();
    assert_eq!(versions, [2, 3]);
    // Of two with the same name, one is built.
    let same = named("c", "id", IndexKind::Bitmap, IfExists::Fail);
    let built = tokio::join!(lake.create_index(&name, &same, &ignored), lake.create_index(&name, &same, &ignored));
    let errors: Vec<Error> = [built.0, built.1].into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.iter().map(Error::kind).collect::<Vec<_>>(), [ErrorKind::AlreadyExists], "{errors:?}");
    let table = latest(&lake, &name).await?;
    assert_eq!((table.version(), table.indexes().await?.len()), (4, 3));
    Ok(())
}

/// Lance commits an index of a column that was dropped while the index was built.
#[tokio::test(flavor = "multi_thread")]
async fn an_index_whose_column_is_dropped_meanwhile_does_not_stay() -> TestResult {
    let lake = memory_lake().await;
    write_vectors(&lake, 0..2_000).await?;
    let (name, is_first) = (table_name("t"), AtomicBool::new(true));
    let table = latest(&lake, &name).await?;
    let drop_column = |_: StatementProgress| {
        if is_first.swap(false, Ordering::Relaxed) {
            let columns = ["v".to_string()];
            let dropping = async { lake.drop_columns(&table, &columns, &ChangeNote::default()).await };
            tokio::task::block_in_place(|| Handle::current().block_on(dropping)).expect("dropped");
        }
    };
    let new =
        named("a", "v", IndexKind::IvfPq { num_partitions: 8, num_sub_vectors: 4, metric: Metric::L2 }, IfExists::Fail);
    let error = lake.create_index(&name, &new, &drop_column).await.expect_err("the column is gone");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains("column v"), "{error}");
    let table = latest(&lake, &name).await?;
    assert!(table.indexes().await?.is_empty());
    let filter = Some(col("id").lt(lit(5i64)));
    let request = ScanRequest { columns: vec!["id".into()], filter, ..ScanRequest::default() };
    let batches: Vec<RecordBatch> = table.scan(&request).await?.try_collect().await?;
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
    Ok(())
}
