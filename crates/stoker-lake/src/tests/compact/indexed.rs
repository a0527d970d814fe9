//! Indexes follow the rows of a compaction.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, ListArray, RecordBatch, StringArray};
use datafusion::functions::expr_fn::contains;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{col, lit};
use futures::TryStreamExt;
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::{BuiltinIndexType, ScalarIndexParams};
use stoker_types::ErrorKind;

use super::{compact, delete, ids, options, read};
use crate::tests::data::{TestResult, latest, memory_lake, table_name};
use crate::{CommitMode, IfExists, IndexKind, LakeStore, Metric, Nearest, NewIndex, ScanRequest, Table, WriteOptions};

const INDEXES: [(&str, &str, IndexKind); 5] = [
    ("numbers", "id", IndexKind::BTree),
    ("kinds", "kind", IndexKind::Bitmap),
    ("tags", "tags", IndexKind::LabelList),
    ("parts", "text", IndexKind::NGram),
    ("near", "v", IndexKind::IvfFlat { num_partitions: 2, metric: Metric::L2 }),
];

/// Appends rows to table `t`.
async fn write(lake: &LakeStore, numbers: Range<i64>) -> TestResult {
    let tags = |id: i64| Some((0..id % 3).map(|tag| Some(format!("tag {tag}"))).collect::<Vec<_>>());
    let mut lists = arrow_array::builder::ListBuilder::new(arrow_array::builder::StringBuilder::new());
    numbers.clone().for_each(|id| lists.append_option(tags(id)));
    let lists: ListArray = lists.finish();
    let vector = |id: i64| Some((0..8).map(|item| Some(((id * 37 + item * 101) % 1_009) as f32)).collect::<Vec<_>>());
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(Int64Array::from_iter_values(numbers.clone()))),
        ("kind", Arc::new(StringArray::from_iter_values(numbers.clone().map(|id| format!("kind {}", id % 4))))),
        ("tags", Arc::new(lists)),
        ("text", Arc::new(StringArray::from_iter_values(numbers.clone().map(|id| format!("number{id}x"))))),
        ("v", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(numbers.map(vector), 8))),
    ];
    let (name, rows) = (table_name("t"), RecordBatch::try_from_iter(columns)?);
    let mut writer = lake.writer(&name, &rows.schema(), true, WriteOptions::default()).await?;
    writer.write(&rows).await?;
    let (schema, drafts) = (writer.schema(), writer.finish().await?);
    lake.commit(&name, &schema, CommitMode::CreateOrAppend, drafts, None).await?;
    Ok(())
}

/// The ids that filters and a search find, by what is sought.
async fn found(table: &Table) -> Result<BTreeMap<String, Vec<i64>>, Box<dyn std::error::Error>> {
    let mut found = BTreeMap::new();
    let filters: [(&str, Expr); 3] = [
        ("id", col("id").gt_eq(lit(95i64)).and(col("id").lt(lit(130i64)))),
        ("kind", col("kind").eq(lit("kind 2"))),
        ("text", contains(col("text"), lit("number11"))),
    ];
    for (what, filter) in filters {
        let request = ScanRequest { columns: vec!["id".into()], filter: Some(filter), ..ScanRequest::default() };
        let batches: Vec<RecordBatch> = table.scan(&request).await?.try_collect().await?;
        found.insert(what.to_string(), batches.iter().flat_map(ids).collect());
    }
    let query: ArrayRef = Arc::new(Float32Array::from_iter_values((0..8).map(|item| (item * 90) as f32)));
    let nearest = Nearest {
        column: "v".into(),
        query,
        k: 20,
        metric: Metric::L2,
        use_index: true,
        nprobes: Some(2),
        nprobes_min: None,
        num_candidates: 0,
    };
    let request = ScanRequest { columns: vec!["id".into()], nearest: Some(nearest), ..ScanRequest::default() };
    let batches: Vec<RecordBatch> = table.scan(&request).await?.try_collect().await?;
    found.insert("v".into(), batches.iter().flat_map(ids).collect());
    Ok(found)
}

async fn create(lake: &LakeStore, name: &str, column: &str, kind: IndexKind) -> crate::Result<()> {
    let new = NewIndex { name: Some(name.to_string()), column: column.to_string(), kind, if_exists: IfExists::Replace };
    lake.create_index(&table_name("t"), &new, &|_| {}).await.map(|_| ())
}

#[tokio::test]
async fn indexes_find_rows_at_their_new_addresses() -> TestResult {
    let lake = memory_lake().await;
    for number in 0..6 {
        write(&lake, number * 50..(number + 1) * 50).await?;
    }
    for (name, column, kind) in INDEXES {
        create(&lake, name, column, kind).await?;
    }
    assert_eq!(latest(&lake, &table_name("t")).await?.measure_recall("near", &|_| {}).await?, Some(1.0));
    delete(&lake, &[2 << 32, 2 << 32 | 1, 2 << 32 | 20]).await?;
    // The indexes do not cover the last rows.
    write(&lake, 300..310).await?;
    write(&lake, 310..320).await?;
    let before = latest(&lake, &table_name("t")).await?;
    let expected = found(&before).await?;
    assert!(expected.values().all(|found| found.len() >= 10), "{expected:?}");

    let done = compact(&lake, &options(10_000)).await?;
    assert_eq!(done.version, before.version() + 1, "one version has the rows and the indexes");
    assert_eq!((done.num_fragments, done.num_new_fragments), (8, 2), "rows with and without indexes stay apart");
    assert_eq!(done.indexes, ["kinds", "near", "numbers", "parts", "tags"]);
    let after = latest(&lake, &table_name("t")).await?;
    assert_eq!(found(&after).await?, expected);
    after.dataset().validate().await?;
    let mut indexes = after.indexes().await?;
    indexes.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(indexes.len(), INDEXES.len());
    for index in &indexes {
        assert_eq!((index.num_rows_covered, index.num_rows_not_covered), (297, 20), "{}", index.name);
        assert_eq!(index.recall, (index.name == "near").then_some(1.0), "{}", index.name);
    }
    // The new addresses are in the index: a search that sees only it finds its rows.
    lake.optimize_indexes(&table_name("t"), None, &|_| {}).await?;
    let covered = latest(&lake, &table_name("t")).await?;
    assert_eq!(found(&covered).await?, expected);
    assert_eq!(compact(&lake, &options(10_000)).await?.num_fragments, 2);
    assert_eq!(found(&latest(&lake, &table_name("t")).await?).await?, expected);
    assert_eq!(found(&before).await?, expected, "an older version has its own indexes");
    Ok(())
}

#[tokio::test]
async fn an_index_that_cannot_follow_is_named_before_anything_changes() -> TestResult {
    let lake = memory_lake().await;
    write(&lake, 0..50).await?;
    write(&lake, 50..100).await?;
    let mut dataset = latest(&lake, &table_name("t")).await?.dataset().as_ref().clone();
    let zones = ScalarIndexParams::for_builtin(BuiltinIndexType::ZoneMap);
    dataset.create_index(&["id"], IndexType::Scalar, Some("zones".into()), &zones, true).await?;
    let before = latest(&lake, &table_name("t")).await?;
    for planned in [
        lake.plan_compaction(before.name(), &options(10_000)).await.map(|_| ()),
        compact(&lake, &options(10_000)).await.map(|_| ()),
    ] {
        let error = planned.expect_err("the index cannot follow");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        let told = "index zones cannot follow the rows, because indexes of its kind, ZoneMap, cannot be given new";
        assert!(error.to_string().contains(told), "{error}");
    }
    let now = latest(&lake, &table_name("t")).await?;
    assert_eq!((now.version(), read(&now).await?.0), (before.version(), read(&before).await?.0));
    lake.drop_index(before.name(), "zones", false).await?;
    assert_eq!(compact(&lake, &options(10_000)).await?.num_rows, 100);
    Ok(())
}
