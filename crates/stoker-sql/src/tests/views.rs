//! Views, the rows of parameters, and the addresses of rows that statements change.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields};
use arrow_select::concat::concat_batches;
use futures::TryStreamExt as _;
use stoker_catalog::{create_view, replace_view};
use stoker_types::{ArrowParam, ErrorKind, ParamValue, SnapshotRef};

use super::fixture::{Fixture, ids, ints, table_name};
use crate::{ADDRESSED_ROWS, ROW_ADDRESS};

async fn view(fixture: &Fixture, name: &str, sql: &str) {
    create_view(fixture.engine.lake(), &table_name(name), sql).await.expect("a view");
}

#[tokio::test]
async fn views_are_read_as_their_queries() {
    let fixture = Fixture::new().await;
    view(&fixture, "train", "SELECT id, label, image FROM samples WHERE split = 'train'").await;
    view(&fixture, "rare", "SELECT t.id, l.title FROM train AS t JOIN labels AS l ON t.label = l.label").await;
    let same = [
        ("SELECT count(*) AS n FROM train", "SELECT count(*) AS n FROM samples WHERE split = 'train'"),
        (
            "SELECT id FROM train x WHERE x.label = 3 ORDER BY id",
            "SELECT id FROM samples WHERE split = 'train' AND label = 3 ORDER BY id",
        ),
        (
            "SELECT r.id FROM public.rare r WHERE r.title = 'title 2' ORDER BY r.id",
            "SELECT id FROM samples WHERE split = 'train' AND label = 2 ORDER BY id",
        ),
        (
            "WITH rare AS (SELECT id FROM samples WHERE id < 3) SELECT id FROM rare ORDER BY id",
            "SELECT id FROM samples WHERE id < 3 ORDER BY id",
        ),
        (
            "SELECT id FROM samples WHERE id IN (SELECT id FROM rare) AND label = 1 ORDER BY id",
            "SELECT id FROM samples WHERE split = 'train' AND label = 1 ORDER BY id",
        ),
    ];
    for (of_view, of_tables) in same {
        assert_eq!(fixture.collect(of_view).await.columns(), fixture.collect(of_tables).await.columns(), "{of_view}");
    }
    let listed = "SELECT table_name FROM information_schema.tables WHERE table_type = 'VIEW' AND table_schema = 'public' \
                  ORDER BY 1";
    let tables = fixture.collect(listed).await;
    let names: Vec<&str> = tables.column(0).as_string::<i32>().iter().flatten().collect();
    assert_eq!(names, ["rare", "train"]);
    let defined = "SELECT view_definition FROM information_schema.views WHERE table_name = 'train'";
    let views = fixture.collect(defined).await;
    assert!(views.column(0).as_string::<i32>().value(0).contains("split = 'train'"));
}

#[tokio::test]
async fn streams_of_a_view_keep_its_query() {
    let fixture = Fixture::new().await;
    view(&fixture, "train", "SELECT id, image FROM samples WHERE split = 'train'").await;
    let (query, row_set) = fixture.sample("SELECT * FROM train WHERE id < 10").await;
    assert_eq!(ids(&row_set).await, [1, 2, 3, 4, 6, 7, 8, 9]);
    let expanded = "SELECT * FROM (SELECT id, image FROM samples WHERE split = 'train') AS \"train\" WHERE id < 10";
    assert_eq!(query.sql(), expanded);
    let other = "SELECT id, image FROM samples WHERE id = 5";
    replace_view(fixture.engine.lake(), &table_name("train"), other).await.expect("replaced");
    let again = fixture.engine.sample_at(query.sql(), &[], query.snapshots()).await.expect("the same query");
    assert_eq!(fixture.engine.row_set(&again).await.expect("a row set").digest(), row_set.digest());
    let expanded = fixture.engine.expanded("SELECT * FROM train WHERE id < 10", None).await.expect("a query");
    assert!(expanded.contains("id = 5") && expanded != query.sql(), "{expanded}");
    let (_, row_set) = fixture.sample("SELECT * FROM train WHERE id < 10").await;
    assert_eq!(ids(&row_set).await, [5]);
}

#[tokio::test]
async fn views_that_cannot_be_read_say_why() {
    let fixture = Fixture::new().await;
    view(&fixture, "a", "SELECT id FROM b").await;
    view(&fixture, "b", "SELECT id FROM a").await;
    view(&fixture, "gone", "SELECT id FROM nothing").await;
    view(&fixture, "train", "SELECT id, emb FROM samples").await;
    // A table hides a view of its name.
    view(&fixture, "labels", "SELECT 1 AS one").await;
    assert_eq!(fixture.collect("SELECT label FROM labels").await.num_rows(), 8);
    let invalid = ErrorKind::InvalidRequest;
    fixture.refuses("SELECT * FROM a", &[], invalid, &["32 views", "not each other"]).await;
    fixture.refuses("SELECT * FROM gone", &[], ErrorKind::NotFound, &["table nothing"]).await;
    fixture.refuses("SELECT * FROM train AT (VERSION => 1)", &[], invalid, &["it is a view"]).await;
    let search = "SELECT * FROM vector_search(train, emb, [1, 2, 3, 4])";
    fixture.refuses(search, &[], invalid, &["view train", "table"]).await;
    let hidden = "WITH samples AS (SELECT 1) SELECT * FROM train";
    fixture.refuses(hidden, &[], invalid, &["WITH name samples", "view train reads"]).await;
}

#[tokio::test]
async fn rows_of_a_parameter_are_a_relation() {
    let fixture = Fixture::new().await;
    let fields: Fields = vec![Field::new("id", DataType::Int64, true), Field::new("note", DataType::Utf8, true)].into();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![3, 9_999])), Arc::new(StringArray::from(vec![Some("three"), None]))];
    let rows = StructArray::new(fields.clone(), columns, None);
    let item = Arc::new(Field::new_list_field(DataType::Struct(fields), true));
    let list = ListArray::new(item, OffsetBuffer::from_lengths([rows.len()]), Arc::new(rows), None);
    let params = [ParamValue::Arrow(ArrowParam::try_new(Arc::new(list)).expect("one value"))];
    let joined = "SELECT r.id, r.note, s.label FROM rows($1) AS r LEFT JOIN samples AS s ON s.id = r.id ORDER BY r.id";
    let found = fixture.collect_with(joined, &params).await;
    assert_eq!(ints(&found, "id"), [3, 9_999]);
    assert_eq!(found.column(1).as_string::<i32>().value(0), "three");
    assert!(found.column(2).is_null(1));
    let sampled = "SELECT s.image, r.note FROM samples s JOIN rows($1) r ON s.id = r.id";
    let query = fixture.engine.sample(sampled, &params).await.expect("a sample query");
    let row_set = fixture.engine.row_set(&query).await.expect("a row set");
    assert_eq!(row_set.num_rows(), 1);
    let form = &["rows(…)", "list of structs"];
    fixture.refuses("SELECT * FROM rows($1)", &[ParamValue::Int(3)], ErrorKind::InvalidRequest, form).await;
    fixture.refuses("SELECT * FROM rows(samples)", &[], ErrorKind::InvalidRequest, form).await;
}

#[tokio::test]
async fn statements_read_the_addresses_of_rows() {
    let fixture = Fixture::new().await;
    let table = fixture.engine.lake().table(&table_name("samples"), &SnapshotRef::Version(1)).await.expect("a table");
    let sql = format!(
        "SELECT x.{ROW_ADDRESS}, x.id + $1 AS next FROM {ADDRESSED_ROWS}(samples) AS x \
         WHERE x.label IN (SELECT label FROM labels WHERE weight < 0.5) AND x.id > 95 ORDER BY x.id"
    );
    let (params, snapshot) = ([ParamValue::Int(1)], table.snapshot());
    let query = fixture.engine.query_of_statement(&sql, &params, &snapshot).await.expect("a query");
    assert_eq!(query.snapshots()[0], table.snapshot());
    let rows = query.execute_for_lake().await.expect("rows");
    let batches: Vec<RecordBatch> = rows.try_collect().await.expect("rows");
    let batch = concat_batches(&query.schema(), &batches).expect("a batch");
    assert_eq!(ints(&batch, "next"), (96..250).filter(|id| id % 10 == 0).map(|id| id + 1).collect::<Vec<_>>());
    let addrs = batch.column(0).as_primitive::<UInt64Type>().values();
    // A fragment has 100 rows.
    let expected: Vec<u64> =
        (96..250).filter(|id| id % 10 == 0).map(|id: u64| ((id / 100) << 32) | (id % 100)).collect();
    assert_eq!(addrs, expected.as_slice());
    assert_eq!(query.volatile_function().expect("a plan"), None);
    let random = format!("SELECT x.{ROW_ADDRESS} FROM {ADDRESSED_ROWS}(samples) AS x WHERE random() < 0.5");
    let query = fixture.engine.query_of_statement(&random, &[], &table.snapshot()).await.expect("a query");
    assert_eq!(query.volatile_function().expect("a plan").as_deref(), Some("random"));
    let user = format!("SELECT * FROM {ADDRESSED_ROWS}(samples)");
    fixture.refuses(&user, &[], ErrorKind::NotFound, &["table function", "row_ids"]).await;
}
