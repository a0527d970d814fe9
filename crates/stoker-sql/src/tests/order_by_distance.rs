//! `ORDER BY` a distance with `LIMIT` gives what sorting all rows gives.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use futures::TryStreamExt as _;
use stoker_lake::{CommitMode, IndexKind, LakeStore, Metric, Table, WriteOptions};
use stoker_types::{ErrorKind, ParamValue, QueryOptions, SnapshotRef};

use super::fixture::{Fixture, ids, ints, table_name};

const NUM_ROWS: i64 = 600;
const QUERY: [f32; 4] = [1.0, -2.0, 3.0, 1.0];

/// A row of `points`.
#[derive(Clone, Debug)]
struct Point {
    id: i64,
    label: i64,
    /// Some are NULL, some contain NaN, some have length zero, and many are equal.
    emb: Option<[f32; 4]>,
    /// Never NULL, and always with a distance.
    vec: [f32; 4],
}

fn points(range: std::ops::Range<i64>) -> Vec<Point> {
    let number = |id: i64, dimension: i64| ((id * 37 + dimension * 101) * 2_654_435_761 % 1_013 % 7 - 3) as f32;
    let point = |id: i64| {
        let vector = [0, 1, 2, 3].map(|dimension| number(id, dimension));
        let emb = match id {
            id if id % 17 == 5 => None,
            id if id % 23 == 7 => Some([f32::NAN, 1.0, 0.0, 2.0]),
            id if id % 29 == 3 => Some([0.0; 4]),
            _ => Some(vector),
        };
        let vec = [vector[0] + 4.0, vector[1], vector[2], (id % 11) as f32];
        Point { id, label: id % 7, emb, vec }
    };
    range.map(point).collect()
}

fn batch(points: &[Point]) -> RecordBatch {
    let mut emb = FixedSizeListBuilder::new(Float32Builder::new(), 4);
    for point in points {
        emb.values().append_slice(&point.emb.unwrap_or_default());
        emb.append(point.emb.is_some());
    }
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vec = Float32Array::from_iter_values(points.iter().flat_map(|point| point.vec));
    let vec = FixedSizeListArray::new(item.clone(), 4, Arc::new(vec), None);
    let vector = DataType::FixedSizeList(item, 4);
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("label", DataType::Int64, false),
        Field::new("note", DataType::Utf8, true),
        Field::new("emb", vector.clone(), true),
        Field::new("vec", vector, false),
        Field::new("file", DataType::Binary, true),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(points.iter().map(|point| point.id))),
        Arc::new(Int64Array::from_iter_values(points.iter().map(|point| point.label))),
        Arc::new(StringArray::from_iter(points.iter().map(|point| Some(format!("n{}", point.id))))),
        Arc::new(emb.finish()),
        Arc::new(vec),
        Arc::new(BinaryArray::from_iter_values(points.iter().map(|point| point.id.to_le_bytes()))),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).expect("a valid batch")
}

async fn write(lake: &LakeStore, points: &[Point]) {
    let (name, batch) = (table_name("points"), batch(points));
    let options = WriteOptions { rows_per_fragment_max: 100, ..WriteOptions::default() };
    let mut writer = lake.writer(&name, &batch.schema(), true, options).await.expect("a writer");
    writer.write(&batch).await.expect("written rows");
    let drafts = writer.finish().await.expect("drafts");
    lake.commit(&name, &batch.schema(), CommitMode::CreateOrAppend, drafts, None).await.expect("a version");
}

async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    write(fixture.engine.lake(), &points(0..NUM_ROWS)).await;
    fixture
}

async fn table(fixture: &Fixture) -> Table {
    fixture.engine.lake().table(&table_name("points"), &SnapshotRef::Latest).await.expect("points")
}

/// The distance as the functions compute it. The elements are small integers, so that sums do not depend on their order.
fn distance(function: &str, a: &[f32; 4], b: &[f32; 4]) -> Option<f32> {
    fn sum(term: fn(f32, f32) -> f32, a: &[f32; 4], b: &[f32; 4]) -> f32 {
        a.iter().zip(b).map(|(a, b)| term(*a, *b)).sum()
    }
    let dot = |a: &[f32; 4], b: &[f32; 4]| sum(|a, b| a * b, a, b);
    let squared = sum(|a, b| (a - b) * (a - b), a, b);
    let cosine = || {
        let norms = dot(a, a).sqrt() * dot(b, b).sqrt();
        (norms != 0.0).then(|| dot(a, b) / norms)
    };
    Some(match function {
        "l2_distance" => squared.sqrt(),
        "dot_product" => dot(a, b),
        "negative_inner_product" => -dot(a, b),
        "cosine_distance" => 1.0 - cosine()?,
        "cosine_similarity" => cosine()?,
        other => panic!("{other}"),
    })
}

/// How a query orders its rows.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// The expression, its direction, and where NULL comes.
    sql: &'static str,
    function: &'static str,
    is_ascending: bool,
    nulls_first: bool,
}

const ORDERS: [Order; 9] = {
    const fn order(sql: &'static str, function: &'static str, is_ascending: bool, nulls_first: bool) -> Order {
        Order { sql, function, is_ascending, nulls_first }
    }
    [
        order("l2_distance(emb, [1, -2, 3, 1])", "l2_distance", true, false),
        order("emb <-> [1, -2, 3, 1] ASC NULLS FIRST", "l2_distance", true, true),
        order("cosine_distance([1, -2, 3, 1], emb)", "cosine_distance", true, false),
        order("emb <=> [1, -2, 3, 1]", "cosine_distance", true, false),
        order("negative_inner_product(emb, [1, -2, 3, 1])", "negative_inner_product", true, false),
        order("emb <#> [1, -2, 3, 1]", "negative_inner_product", true, false),
        order("dot_product(emb, [1, -2, 3, 1]) DESC", "dot_product", false, true),
        order("dot_product(emb, [1, -2, 3, 1]) DESC NULLS LAST", "dot_product", false, false),
        order("cosine_similarity(emb, [1, -2, 3, 1]) DESC", "cosine_similarity", false, true),
    ]
};

/// Sorts rows as SQL does: NaN after all numbers where the order ascends. Equal rows come by id, which is the order of
/// their addresses.
fn sorted(points: &[Point], order: Order) -> Vec<(i64, Option<f32>)> {
    let mut found: Vec<(i64, Option<f32>)> = points
        .iter()
        .map(|point| (point.id, point.emb.and_then(|emb| distance(order.function, &emb, &QUERY))))
        .map(|(id, found)| (id, found.map(|found| if found.is_nan() { f32::NAN } else { found })))
        .collect();
    let nulls = if order.nulls_first { Ordering::Less } else { Ordering::Greater };
    found.sort_by(|a, b| {
        let by_distance = match (a.1, b.1) {
            (Some(a), Some(b)) if order.is_ascending => a.total_cmp(&b),
            (Some(a), Some(b)) => b.total_cmp(&a),
            (None, None) => Ordering::Equal,
            (None, Some(_)) => nulls,
            (Some(_), None) => nulls.reverse(),
        };
        by_distance.then(a.0.cmp(&b.0))
    });
    found
}

/// Distances whose NaN are equal.
fn bits(column: &dyn Array) -> Vec<Option<u32>> {
    column.as_primitive::<Float32Type>().iter().map(|value| value.map(f32::to_bits)).collect()
}

async fn collect(fixture: &Fixture, sql: &str, options: QueryOptions) -> RecordBatch {
    let query = fixture.engine.query_with_options(sql, &[], &[], options).await;
    let query = query.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let stream = query.execute().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let schema = stream.schema();
    assert_eq!(schema, query.schema());
    let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    concat_batches(&schema, &batches).expect("one batch")
}

async fn explained(fixture: &Fixture, sql: &str, options: QueryOptions) -> String {
    let query = fixture.engine.query_with_options(sql, &[], &[], options).await;
    query.unwrap_or_else(|error| panic!("{sql}: {error}")).explain().await.expect("a plan")
}

/// Compares rows, distances and wide columns of one query with those of the rows in memory.
async fn check(fixture: &Fixture, points: &[Point], order: Order, filter: &str, limit: usize, offset: usize) {
    let sql = format!(
        "SELECT id, {function}(emb, [1, -2, 3, 1]) AS d, note, file, emb FROM points p {filter}
         ORDER BY {key} LIMIT {limit} OFFSET {offset}",
        function = order.function,
        key = order.sql,
    );
    let expected: Vec<(i64, Option<f32>)> = sorted(points, order).into_iter().skip(offset).take(limit).collect();
    let found = collect(fixture, &sql, QueryOptions::default()).await;
    assert_eq!(ints(&found, "id"), expected.iter().map(|(id, _)| *id).collect::<Vec<_>>(), "{sql}");
    let distances: Vec<Option<u32>> = expected.iter().map(|(_, found)| found.map(f32::to_bits)).collect();
    assert_eq!(bits(found.column(1)), distances, "{sql}");
    for (row, (id, _)) in expected.iter().enumerate() {
        assert_eq!(found.column(2).as_string::<i32>().value(row), format!("n{id}"), "{sql}");
        assert_eq!(found.column(3).as_binary::<i32>().value(row), id.to_le_bytes(), "{sql}");
        let emb = points.iter().find(|point| point.id == *id).and_then(|point| point.emb);
        assert_eq!(found.column(4).is_valid(row), emb.is_some(), "{sql}");
    }
    let plan = explained(fixture, &sql, QueryOptions::default()).await;
    assert!(plan.contains(&format!("search=exact (ORDER BY {})", order.function)), "{sql}: {plan}");
}

/// Checks orders, filters and limits over these rows.
async fn check_all(fixture: &Fixture, points: &[Point]) {
    let passing = |passes: fn(&Point) -> bool| points.iter().filter(|point| passes(point)).cloned().collect::<Vec<_>>();
    let filters: [(&str, Vec<Point>); 5] = [
        ("", points.to_vec()),
        ("WHERE label = 3", passing(|point| point.label == 3)),
        ("WHERE label IN (SELECT label FROM labels WHERE label < 4)", passing(|point| point.label < 4)),
        (
            "WHERE EXISTS (SELECT 1 FROM labels l WHERE l.label = p.label + 3) AND id > 20",
            passing(|point| point.label + 3 < 8 && point.id > 20),
        ),
        ("WHERE label > 100", Vec::new()),
    ];
    for (index, order) in ORDERS.into_iter().enumerate() {
        for (filter, rows) in &filters {
            // Each order has another limit and offset, so that they end inside and outside of ties.
            check(fixture, rows, order, filter, 7 + index * 5, index * 3).await;
        }
        check(fixture, points, order, "", 1, 0).await;
        check(fixture, points, order, "", 10_000, 0).await;
        check(fixture, points, order, "", 5, points.len() - 2).await;
    }
}

#[tokio::test]
async fn rows_order_and_distances_are_those_of_a_sort() {
    let fixture = fixture().await;
    let mut all = points(0..NUM_ROWS);
    check_all(&fixture, &all).await;
    write(fixture.engine.lake(), &points(NUM_ROWS..NUM_ROWS + 90)).await;
    all = points(0..NUM_ROWS + 90);
    check(&fixture, &all, ORDERS[0], "", 50, 0).await;
    all.retain(|point| point.label == 2);
    check(&fixture, &all, ORDERS[7], "WHERE label = 2", 50, 3).await;
}

#[tokio::test]
async fn every_spelling_of_the_shape_is_a_search() {
    let fixture = fixture().await;
    let all = points(0..NUM_ROWS);
    let expected: Vec<i64> = sorted(&all, ORDERS[0]).into_iter().take(9).map(|(id, _)| id).collect();
    for sql in [
        "SELECT id FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 9",
        "SELECT id, emb <-> [1, -2, 3, 1] AS d FROM points ORDER BY d LIMIT 9",
        "SELECT id, emb <-> [1, -2, 3, 1] FROM points ORDER BY 2 LIMIT 9",
        "SELECT id, emb <-> [1, -2, 3, 1] FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 9",
        "SELECT id, 1 - l2_distance(emb, [1, -2, 3, 1]) AS s FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 9",
        "SELECT p.id FROM points AS p ORDER BY p.emb <-> [1, -2, 3, 1], p.id LIMIT 9",
        "SELECT id FROM (SELECT id, emb AS e FROM points) t ORDER BY e <-> [1, -2, 3, 1] LIMIT 9",
        "SELECT id FROM (SELECT id, emb <-> [1, -2, 3, 1] AS d FROM points) t ORDER BY d LIMIT 9",
        "WITH t AS (SELECT * FROM points WHERE id >= 0) SELECT id FROM t ORDER BY emb <-> [1, -2, 3, 1] LIMIT 9",
        "SELECT id FROM (SELECT id FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 9) t",
        "SELECT id FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 4 + 5",
        "SELECT id FROM points AT (VERSION => 1) ORDER BY emb <-> [1, -2, 3, 1] LIMIT 9",
        "SELECT id, row_id FROM row_ids(points) ORDER BY emb <-> [1, -2, 3, 1] LIMIT 9",
        "SELECT id, (SELECT max(weight) FROM labels) AS w FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 9",
    ] {
        assert_eq!(ints(&fixture.collect(sql).await, "id"), expected, "{sql}");
        let plan = explained(&fixture, sql, QueryOptions::default()).await;
        assert!(plan.contains("column=emb, k=9, search=exact (ORDER BY l2_distance)"), "{sql}: {plan}");
        for explain in ["EXPLAIN", "EXPLAIN ANALYZE", "EXPLAIN FORMAT TREE"] {
            let shown = format!("{:?}", fixture.collect(&format!("{explain} {sql}")).await);
            assert!(shown.contains("search=exact (ORDER BY l2_distance)"), "{explain} {sql}: {shown}");
        }
    }
    // The limit, the offset and the vector may be parameters.
    let sql = "SELECT id FROM points ORDER BY emb <-> $1 LIMIT $2 OFFSET $3";
    let params = [ParamValue::Vector(QUERY.map(f64::from).to_vec()), ParamValue::Int(5), ParamValue::Int(4)];
    assert_eq!(ints(&fixture.collect_with(sql, &params).await, "id"), expected[4..]);
    let query = fixture.engine.query(sql, &params).await.expect("a query");
    assert!(query.explain().await.expect("a plan").contains("k=9, search=exact"));
    // A planned query runs again.
    for _ in 0..2 {
        let rows: Vec<RecordBatch> = query.execute().await.expect("rows").try_collect().await.expect("rows");
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
    }
}

#[tokio::test]
async fn searches_are_parts_of_queries() {
    let fixture = fixture().await;
    let all = points(0..NUM_ROWS);
    let near: Vec<i64> = sorted(&all, ORDERS[0]).into_iter().take(12).map(|(id, _)| id).collect();
    let mut known: Vec<i64> = near.iter().copied().filter(|id| id % 7 < 5).collect();
    known.sort_unstable();
    let search = "SELECT id, label FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 12";
    for sql in [
        format!("SELECT n.id FROM ({search}) n JOIN labels l ON n.label = l.label WHERE l.label < 5 ORDER BY n.id"),
        format!("WITH n AS ({search}) SELECT id FROM n WHERE label < 5 ORDER BY id"),
        format!("SELECT id FROM points WHERE id IN (SELECT id FROM ({search}) n) AND label < 5 ORDER BY id"),
    ] {
        assert_eq!(ints(&fixture.collect(&sql).await, "id"), known, "{sql}");
        let plan = explained(&fixture, &sql, QueryOptions::default()).await;
        assert!(plan.contains("k=12, search=exact"), "{sql}: {plan}");
    }
    let counted = "SELECT count(*) AS n, max(d) AS d FROM (SELECT emb <-> [1, -2, 3, 1] AS d FROM points
                           ORDER BY d LIMIT 12) t";
    let counted = fixture.collect(counted).await;
    assert_eq!(ints(&counted, "n"), [12]);
    assert_eq!(bits(counted.column(1)), [sorted(&all, ORDERS[0])[11].1.map(f32::to_bits)]);
    // Two searches of one common table expression differ.
    let far = sorted(&all, ORDERS[5])[0].0;
    let sql = "WITH p AS (SELECT * FROM points)
               SELECT (SELECT id FROM p ORDER BY emb <-> [1, -2, 3, 1] LIMIT 1) AS a,
                      (SELECT id FROM p ORDER BY emb <#> [1, -2, 3, 1] LIMIT 1) AS b";
    let both = fixture.collect(sql).await;
    assert_eq!((ints(&both, "a"), ints(&both, "b")), (vec![near[0]], vec![far]));
}

#[tokio::test]
async fn other_shapes_run_as_they_are() {
    let fixture = fixture().await;
    for sql in [
        "SELECT id FROM points ORDER BY emb <-> [1, -2, 3, 1]",
        "SELECT id FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 0",
        "SELECT id FROM points ORDER BY emb <-> [1, -2, 3, 1] DESC LIMIT 5",
        "SELECT id FROM points ORDER BY dot_product(emb, [1, -2, 3, 1]) LIMIT 5",
        "SELECT id FROM points ORDER BY 2 * (emb <-> [1, -2, 3, 1]) LIMIT 5",
        "SELECT id FROM points ORDER BY id, emb <-> [1, -2, 3, 1] LIMIT 5",
        "SELECT id FROM points ORDER BY emb <-> vec LIMIT 5",
        "SELECT id FROM points ORDER BY emb <-> [1, -2, 3, 1], file LIMIT 5",
        "SELECT id FROM points WHERE random() < 2 ORDER BY emb <-> [1, -2, 3, 1] LIMIT 5",
        "SELECT DISTINCT id, emb <-> [1, -2, 3, 1] AS d FROM points ORDER BY d LIMIT 5",
        "SELECT p.id FROM points p JOIN labels l ON p.label = l.label ORDER BY p.emb <-> [1, -2, 3, 1] LIMIT 5",
        "SELECT label AS id FROM points GROUP BY label ORDER BY min(emb <-> [1, -2, 3, 1]) LIMIT 5",
        "SELECT id FROM vector_search(points, emb, [1, -2, 3, 1]) ORDER BY emb <-> [1, -2, 3, 1] LIMIT 5",
        "SELECT 7 AS id, emb <-> [1, 2] AS d FROM (VALUES ([1.0, 3.0])) t(emb) ORDER BY d LIMIT 5",
    ] {
        let num_rows = fixture.collect(sql).await.num_rows();
        let plan = explained(&fixture, sql, QueryOptions::approximate(true)).await;
        assert!(!plan.contains("(ORDER BY "), "{sql}: {plan}");
        let expected = match sql {
            sql if sql.ends_with("LIMIT 0") => 0,
            sql if sql.ends_with("LIMIT 5") && !sql.starts_with("SELECT 7") => 5,
            sql if sql.starts_with("SELECT 7") => 1,
            _ => NUM_ROWS as usize,
        };
        assert_eq!(num_rows, expected, "{sql}");
    }
    let sql = "SELECT id FROM points ORDER BY emb <-> [1, 2, 3] LIMIT 5";
    fixture.refuses(sql, &[], ErrorKind::InvalidRequest, &["4 and 3 dimensions"]).await;
}

#[tokio::test]
async fn wide_columns_are_read_for_the_found_rows_only() {
    let fixture = Fixture::new().await;
    let sql = "SELECT image, id FROM samples WHERE label = 3 ORDER BY emb <-> [1, 2, 3, 1] LIMIT 4";
    let plan = explained(&fixture, sql, QueryOptions::default()).await;
    let line = |part: &str| plan.lines().find(|line| line.contains(part)).unwrap_or_default().to_string();
    let (search, scan) = (line("SearchExec: "), line("ScanExec: "));
    assert!(search.contains("heavy=[image]") && !scan.contains("image") && scan.contains("label"), "{plan}");
    // Without the files of the images, the rows are found, and only reading their images fails.
    assert!(fixture.remove_images() > 0);
    let found = fixture.collect(&sql.replace("image, ", "")).await;
    assert_eq!(found.num_rows(), 4);
    assert!(fixture.try_collect(sql, &[]).await.is_err());
}

#[tokio::test]
async fn an_index_answers_if_it_may() {
    let fixture = fixture().await;
    let all = points(0..NUM_ROWS);
    let kind = IndexKind::IvfFlat { num_partitions: 4, metric: Metric::L2 };
    table(&fixture).await.create_index("emb", kind).await.expect("an index");
    let (exact, approximate) = (QueryOptions::default(), QueryOptions::approximate(true));
    let name = table(&fixture).await.search_index("emb", Metric::L2).await.expect("the indexes").expect("an index");
    let all_filters = [
        ("", 7),
        ("WHERE label < 5", 5),
        ("WHERE label IN (SELECT label FROM labels WHERE label < 5)", 5),
        ("WHERE label < 1", 1),
    ];
    // An index of whole vectors, all of whose partitions are searched, finds all rows. Those without a distance are in no
    // index, and come last.
    for (filter, num_labels) in all_filters {
        let passing: Vec<Point> = all.iter().filter(|point| point.label < num_labels).cloned().collect();
        for (limit, offset) in [(1, 0), (10, 0), (25, 7), (10_000, 0)] {
            let sql = format!(
                "SELECT id, note, file, emb <-> [1, -2, 3, 1] AS d FROM points {filter}
                 ORDER BY emb <-> [1, -2, 3, 1] LIMIT {limit} OFFSET {offset}"
            );
            let plan = explained(&fixture, &sql, approximate).await;
            assert!(plan.contains(&format!("search=index {name} (ORDER BY l2_distance)")), "{sql}: {plan}");
            assert!(explained(&fixture, &sql, exact).await.contains("search=exact (ORDER BY l2_distance)"), "{sql}");
            let found = collect(&fixture, &sql, approximate).await;
            let expected: Vec<_> = sorted(&passing, ORDERS[0]).into_iter().skip(offset).take(limit).collect();
            assert_eq!(ints(&found, "id"), expected.iter().map(|(id, _)| *id).collect::<Vec<_>>(), "{sql}");
            let distances: Vec<Option<u32>> = expected.iter().map(|(_, found)| found.map(f32::to_bits)).collect();
            assert_eq!(bits(found.column(3)), distances, "{sql}");
        }
    }
}

#[tokio::test]
async fn an_index_is_left_alone_where_it_cannot_answer() {
    let fixture = fixture().await;
    for (column, metric) in [("emb", Metric::L2), ("vec", Metric::Dot)] {
        let kind = IndexKind::IvfFlat { num_partitions: 2, metric };
        table(&fixture).await.create_index(column, kind).await.expect("an index");
    }
    let approximate = QueryOptions::approximate(true);
    for (sql, uses_index) in [
        ("SELECT id FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 5", true),
        ("SELECT id FROM points ORDER BY emb <-> $1 LIMIT 5", true),
        ("SELECT id FROM points ORDER BY emb <=> [1, -2, 3, 1] LIMIT 5", false),
        ("SELECT id FROM points ORDER BY emb <-> [1, NULL, 3, 1] LIMIT 5", false),
        ("SELECT id FROM points ORDER BY emb <-> [1, -2, 3, 1] NULLS FIRST LIMIT 5", false),
        ("SELECT id FROM row_ids(points) ORDER BY emb <-> [1, -2, 3, 1] LIMIT 5", false),
        ("SELECT id FROM points ORDER BY vec <#> [1, -2, 3, 1] LIMIT 5", true),
        // The column has no NULL.
        ("SELECT id FROM points ORDER BY dot_product(vec, [1, -2, 3, 1]) DESC LIMIT 5", true),
        ("SELECT id FROM points ORDER BY dot_product(vec, [1, -2, 3, 1]) DESC NULLS LAST LIMIT 5", true),
        ("SELECT id FROM points AT (VERSION => 1) ORDER BY emb <-> [1, -2, 3, 1] LIMIT 5", false),
    ] {
        let vector = [ParamValue::Vector(QUERY.map(f64::from).to_vec())];
        let params: &[ParamValue] = if sql.contains("$1") { &vector } else { &[] };
        let query = fixture.engine.query_with_options(sql, params, &[], approximate).await.expect("a query");
        let plan = query.explain().await.expect("a plan");
        assert_eq!(plan.contains("search=index "), uses_index, "{sql}: {plan}");
        assert_eq!(plan.contains("search=exact ("), !uses_index, "{sql}: {plan}");
        let rows: Vec<RecordBatch> = query.execute().await.expect("rows").try_collect().await.expect("rows");
        let expected = fixture.collect_with(sql, params).await;
        let found = concat_batches(&expected.schema(), &rows).expect("one batch");
        assert_eq!(ints(&found, "id"), ints(&expected, "id"), "{sql}");
    }
}

#[tokio::test]
async fn training_sets_have_the_same_rows() {
    let fixture = fixture().await;
    let expected: Vec<i64> =
        sorted(&points(0..NUM_ROWS), ORDERS[0]).into_iter().skip(2).take(40).map(|(id, _)| id).collect();
    let sql = "SELECT file, label FROM points ORDER BY emb <-> [1, -2, 3, 1] LIMIT 40 OFFSET 2";
    let (query, row_set) = fixture.sample(sql).await;
    assert!(query.ordered());
    assert_eq!(ids(&row_set).await, expected);
}
