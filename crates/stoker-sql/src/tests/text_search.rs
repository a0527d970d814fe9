//! `text_search` and `hybrid_search` in SQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field};
use stoker_lake::{CommitMode, IndexKind, Metric, WriteOptions};
use stoker_types::{ErrorKind, ParamValue, SnapshotRef};

use super::fixture::{Fixture, floats, ids, ints, table_name};

const TITLES: [&str; 5] = ["Brown foxes", "The quick fox", "Lazy dogs sleep", "A dog and a fox", "Nothing at all"];

/// Adds a table `docs` of 60 rows: `id`, `title`, `body`, `label` = id % 4, and `emb` = [id % 9, id / 9].
async fn docs() -> Fixture {
    let fixture = Fixture::new().await;
    let bodies = (0..60).map(|id| {
        let words = ["fox", "dog", "quick", "lazy", "the"].iter().cycle().skip(id % 5).take(id % 7 + 1);
        (id % 13 != 5).then(|| words.copied().collect::<Vec<_>>().join(" "))
    });
    let values = Float32Array::from_iter_values((0..60).flat_map(|id| [(id % 9) as f32, (id / 9) as f32]));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..60))),
        ("title", Arc::new(StringArray::from_iter_values((0..60).map(|id| TITLES[id % 5])))),
        ("body", Arc::new(StringArray::from_iter(bodies))),
        ("label", Arc::new(Int64Array::from_iter_values((0..60).map(|id| id % 4)))),
        ("emb", Arc::new(FixedSizeListArray::new(item, 2, Arc::new(values), None))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("a valid batch");
    let (lake, name) = (fixture.engine.lake(), table_name("docs"));
    let options = WriteOptions { rows_per_fragment_max: 25, ..WriteOptions::default() };
    let mut writer = lake.writer(&name, &batch.schema(), true, options).await.expect("a writer");
    writer.write(&batch).await.expect("written rows");
    let drafts = writer.finish().await.expect("drafts");
    lake.commit(&name, &batch.schema(), CommitMode::CreateOrAppend, drafts, None).await.expect("a version");
    fixture
}

async fn index(fixture: &Fixture, column: &str, kind: IndexKind) {
    let table = fixture.engine.lake().table(&table_name("docs"), &SnapshotRef::Latest).await.expect("docs");
    table.create_index(column, kind).await.expect("an index");
}

async fn found(fixture: &Fixture, sql: &str) -> Vec<i64> {
    ints(&fixture.collect(sql).await, "id")
}

#[tokio::test]
async fn the_best_texts_come_first() {
    let fixture = docs().await;
    let batch =
        fixture.collect("SELECT *, octet_length(title) AS bytes FROM text_search(docs, title, 'fox', k => 5)").await;
    // The title of three words has the shorter text; equal titles come by address.
    assert_eq!(ints(&batch, "id"), [1, 6, 11, 16, 21]);
    let scores = floats(&batch, "_score");
    assert!(scores.iter().all(|score| *score == scores[0] && *score > 0.0), "{scores:?}");
    let all = found(&fixture, "SELECT id FROM text_search(docs, title, 'fox', k => 100)").await;
    let expected: Vec<i64> = (0..60).filter(|id| id % 5 == 1).chain((0..60).filter(|id| id % 5 == 3)).collect();
    assert_eq!(all, expected);
    for indexed in [false, true] {
        if indexed {
            index(&fixture, "title", IndexKind::Inverted).await;
        }
        for (sql, expected) in [
            ("SELECT id FROM text_search(docs, title, 'fox', k => 100) LIMIT 3 OFFSET 11", vec![56, 3, 8]),
            ("SELECT id FROM text_search(docs, title, '+dog +fox', k => 2)", vec![3, 8]),
            ("SELECT id FROM text_search(docs, title, '\"quick fox\"', k => 2)", vec![1, 6]),
            ("SELECT id FROM text_search(docs, title, '+a -dog')", vec![]),
            ("SELECT id FROM text_search(docs, title, 'fax~1', k => 2)", vec![1, 6]),
            ("SELECT id FROM text_search(docs, title, 'foxes', k => 1)", vec![0]),
            ("SELECT id FROM text_search(docs, title, 'fox', k => 1, language => 'English')", vec![0]),
            ("SELECT id FROM text_search(docs, title, '+the +fox', stop_words => false, k => 1)", vec![1]),
            ("SELECT id FROM text_search('docs', 'title', 'fox', k => 1, use_index => false)", vec![1]),
            ("SELECT id FROM text_search(docs, title, 'fox', k => 3) WHERE label = 2", vec![6, 26, 46]),
            (
                "SELECT id FROM text_search(docs, title, 'fox', k => 2) d WHERE d.label IN (SELECT label FROM labels \
                 WHERE weight > 0.7 AND label < 3)",
                vec![6, 26],
            ),
            ("SELECT id FROM text_search(docs, title, 'fox', k => 2) WHERE tensor_norm(emb) > 7", vec![16, 26]),
            ("SELECT id FROM text_search(docs, title, 'fox') WHERE label > 100", vec![]),
            ("SELECT id FROM text_search(docs AT (VERSION => 1), title, 'fox', k => 1)", vec![1]),
            ("SELECT id FROM text_search(docs, title, 'fox', k => 1, version => 1)", vec![1]),
            ("SELECT id FROM docs WHERE matches(title, '+fox -dog') AND id < 7 ORDER BY id", vec![1, 6]),
        ] {
            assert_eq!(found(&fixture, sql).await, expected, "{sql}, indexed: {indexed}");
        }
    }
}

#[tokio::test]
async fn scores_of_several_columns_add_up() {
    let fixture = docs().await;
    for indexed in [false, true] {
        if indexed {
            index(&fixture, "title", IndexKind::Inverted).await;
            index(&fixture, "body", IndexKind::Inverted).await;
        }
        let mut sums: BTreeMap<i64, f32> = BTreeMap::new();
        for column in ["title", "body"] {
            let sql = format!("SELECT id, _score FROM text_search(docs, {column}, 'quick fox', k => 100)");
            let batch = fixture.collect(&sql).await;
            for (id, score) in ints(&batch, "id").into_iter().zip(floats(&batch, "_score")) {
                *sums.entry(id).or_default() += score;
            }
        }
        let batch =
            fixture.collect("SELECT id, _score FROM text_search(docs, [title, body], 'quick fox', k => 100)").await;
        let scores = floats(&batch, "_score");
        assert_eq!(batch.num_rows(), sums.len());
        assert!(scores.is_sorted_by(|one, other| one >= other));
        for (id, score) in ints(&batch, "id").iter().zip(&scores) {
            assert!((sums[id] - score).abs() < 1e-5, "{id}: {score} {}", sums[id]);
        }
        let above = scores[9];
        let sql = format!(
            "SELECT id FROM text_search(docs, [title, body], 'quick fox', k => 100) WHERE _score >= arrow_cast({above}, 'Float32')"
        );
        assert_eq!(found(&fixture, &sql).await, ints(&batch, "id")[..scores.partition_point(|score| *score >= above)]);
    }
}

#[tokio::test]
async fn searches_of_texts_are_sample_queries() {
    let fixture = docs().await;
    for call in
        ["text_search(docs, body, 'fox dog', k => 25)", "hybrid_search(docs, emb, [4, 3], body, 'fox', k => 25)"]
    {
        for condition in ["", " WHERE label IN (SELECT label FROM labels WHERE label < 3)"] {
            let sql = format!("SELECT id, body FROM {call}{condition}");
            let (query, row_set) = fixture.sample(&sql).await;
            assert!(query.ordered());
            assert_eq!(ids(&row_set).await, found(&fixture, &sql).await, "{sql}");
        }
    }
    let sql = "SELECT d.id, d.body FROM text_search(docs, body, 'fox', k => 9) d JOIN labels l ON d.label = l.label";
    let (_, row_set) = fixture.sample(sql).await;
    assert_eq!(row_set.num_rows(), 9);
}

/// A row of a hybrid search.
type Fused = (i64, Option<f32>, Option<f32>);

async fn hybrid(fixture: &Fixture, options: &str, condition: &str) -> Vec<Fused> {
    let sql = format!(
        "SELECT id, _distance, _score, _rank FROM hybrid_search(docs, emb, [4, 3], body, 'fox dog'{options}) {condition}"
    );
    let batch = fixture.collect(&sql).await;
    assert_eq!(ints(&batch, "_rank"), (1..=batch.num_rows() as i64).collect::<Vec<_>>());
    let column = |name: &str| {
        let column = batch.column_by_name(name).expect("the column").as_primitive::<Float32Type>().clone();
        column.iter().collect::<Vec<_>>()
    };
    let ids = batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    let (distances, scores) = (column("_distance"), column("_score"));
    ids.into_iter().zip(distances).zip(scores).map(|((id, distance), score)| (id, distance, score)).collect()
}

/// The same, put together from the single searches.
async fn expected(
    fixture: &Fixture,
    sides: usize,
    k: usize,
    weights: [f64; 2],
    rrf_k: f64,
    condition: &str,
) -> Vec<Fused> {
    let vectors = format!("SELECT id, _distance AS v FROM vector_search(docs, emb, [4, 3], k => {sides}) {condition}");
    let texts = format!("SELECT id, _score AS v FROM text_search(docs, body, 'fox dog', k => {sides}) {condition}");
    let mut found: BTreeMap<i64, (f64, [Option<f32>; 2])> = BTreeMap::new();
    for (side, sql) in [vectors, texts].iter().enumerate() {
        let batch = fixture.collect(sql).await;
        for (index, (id, value)) in ints(&batch, "id").into_iter().zip(floats(&batch, "v")).enumerate() {
            let row = found.entry(id).or_default();
            row.0 += weights[side] / (rrf_k + index as f64 + 1.0);
            row.1[side] = Some(value);
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|one, other| other.1.0.total_cmp(&one.1.0).then(one.0.cmp(&other.0)));
    found.into_iter().take(k).map(|(id, (_, [distance, score]))| (id, distance, score)).collect()
}

#[tokio::test]
async fn hybrid_searches_merge_both_sides() {
    let fixture = docs().await;
    for indexed in [false, true] {
        if indexed {
            index(&fixture, "body", IndexKind::Inverted).await;
            index(&fixture, "emb", IndexKind::IvfFlat { num_partitions: 2, metric: Metric::L2 }).await;
        }
        for (options, sides, k, weights, rrf_k) in [
            ("", 10, 10, [1.0, 1.0], 60.0),
            (", k => 60", 60, 60, [1.0, 1.0], 60.0),
            (", k => 5, candidates => 40", 40, 5, [1.0, 1.0], 60.0),
            (", weights => [0.2, 0.8]", 10, 10, [0.2, 0.8], 60.0),
            (", weights => [0, 1], rrf_k => 0", 10, 10, [0.0, 1.0], 0.0),
            (", rrf_k => 1.5, use_index => false", 10, 10, [1.0, 1.0], 1.5),
        ] {
            for condition in ["", "WHERE label = 1", "WHERE label NOT IN (SELECT label FROM labels WHERE label > 1)"] {
                let expected = expected(&fixture, sides, k, weights, rrf_k, condition).await;
                assert_eq!(hybrid(&fixture, options, condition).await, expected, "{options} {condition}");
            }
        }
        let ten = hybrid(&fixture, "", "").await;
        assert!(ten.iter().any(|row| row.1.is_none()) && ten.iter().any(|row| row.2.is_none()), "{ten:?}");
        let sql = "SELECT id FROM hybrid_search(docs, emb, [4, 3], body, 'fox dog') LIMIT 4 OFFSET 3";
        assert_eq!(found(&fixture, sql).await, ten[3..7].iter().map(|row| row.0).collect::<Vec<_>>());
        let params = [ParamValue::Vector(vec![4.0, 3.0]), ParamValue::Text("fox dog".into())];
        let sql = "SELECT id FROM hybrid_search(docs, emb, $1, body, $2)";
        assert_eq!(
            ints(&fixture.collect_with(sql, &params).await, "id"),
            ten.iter().map(|row| row.0).collect::<Vec<_>>()
        );
        let sql = "SELECT id FROM hybrid_search(docs, emb, (SELECT [4, 3]), body, 'fox dog')";
        assert_eq!(found(&fixture, sql).await, ten.iter().map(|row| row.0).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn arguments_are_checked() {
    let fixture = docs().await;
    for (call, part) in [
        ("text_search(docs, title)", "2 positional"),
        ("text_search(docs, nope, 'fox')", "unknown column nope"),
        ("text_search(docs, id, 'fox')", "Int64, not text"),
        ("text_search(docs, [title, title], 'fox')", "twice"),
        ("text_search(docs, title, 3)", "text_search argument 3"),
        ("text_search(docs, title, '\"fox')", "has no pair"),
        ("text_search(docs, title, '-fox')", "only excludes"),
        ("text_search(docs, title, '!')", "no words"),
        ("text_search(docs, title, 'fox', k => 0)", "from 1 to 1000000"),
        ("text_search(docs, title, 'fox', language => 'klingon')", "turkish"),
        ("text_search(docs, title, 'fox', metric => 'l2')", "write text_search"),
        ("vector_search(docs, emb, [1, 2], language => 'english')", "write vector_search"),
        ("hybrid_search(docs, emb, [1, 2], body)", "4 positional"),
        ("hybrid_search(docs, emb, [1], body, 'fox')", "2 dimensions, the query has 1"),
        ("hybrid_search(docs, emb, [1, 2], body, 'fox', weights => [1])", "two numbers"),
        ("hybrid_search(docs, emb, [1, 2], body, 'fox', weights => [0, 0])", "two numbers"),
        ("hybrid_search(docs, emb, [1, 2], body, 'fox', weights => [-1, 1])", "two numbers"),
        ("hybrid_search(docs, emb, [1, 2], body, 'fox', rrf_k => -1)", "at least 0"),
        ("hybrid_search(docs, emb, [1, 2], body, 'fox', candidates => 0)", "from 1 to 1000000"),
        ("hybrid_search(docs, emb, [1, 2], body, 'fox', exact => true, use_index => true)", "give one"),
        ("search(docs, title, 'fox')", "hybrid_search"),
    ] {
        let kind = if call.starts_with("search") { ErrorKind::NotFound } else { ErrorKind::InvalidRequest };
        fixture.refuses(&format!("SELECT * FROM {call}"), &[], kind, &[part]).await;
    }
    for condition in [
        "FROM text_search(docs, title, 'fox') WHERE label = 1 OR _score > 1",
        "FROM (SELECT id, unnest([title, body]) AS word FROM text_search(docs, title, 'fox')) d WHERE word = 'fox'",
        "FROM (SELECT id, label, count(*) OVER () AS n FROM hybrid_search(docs, emb, [4, 3], body, 'fox')) d
         WHERE label = 1",
    ] {
        let sql = format!("SELECT id {condition}");
        fixture.refuses(&sql, &[], ErrorKind::InvalidRequest, &["cannot be applied before the search", "LIMIT"]).await;
    }
    let described = fixture.engine.describe("SELECT * FROM hybrid_search(docs, emb, $1, body, $2, k => $3)").await;
    let described = described.expect("a description");
    let types: Vec<String> = described.parameters.iter().map(|field| field.data_type().to_string()).collect();
    assert!(types[0].starts_with("FixedSizeList") && types[1..] == ["Utf8", "Int64"], "{types:?}");
    let names: Vec<&str> = described.columns.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "title", "body", "label", "emb", "_distance", "_score", "_rank"]);
}
