//! The functions of vectors, tensors, images and texts return the right values.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use stoker_types::{ErrorKind, ParamValue};

use super::fixture::{Fixture, NUM_NEWEST, Row, floats, ints, rows};

const QUERY: [f32; 4] = [1.0, 2.0, 3.0, 1.0];

#[tokio::test]
async fn distances_equal_brute_force() {
    let fixture = Fixture::new().await;
    let sql = "SELECT id, l2_distance(emb, [1, 2, 3, 1]) AS l2, cosine_distance(emb, $1) AS cos, \
               dot_product(emb, [1.0, 2.0, 3.0, 1.0]) AS dot FROM samples ORDER BY id";
    let param = ParamValue::Vector(QUERY.iter().map(|value| f64::from(*value)).collect());
    let batch = fixture.collect_with(sql, &[param]).await;
    let (l2, cos, dot) = (floats(&batch, "l2"), floats(&batch, "cos"), floats(&batch, "dot"));
    for (index, row) in rows(NUM_NEWEST).iter().enumerate() {
        let expected_dot: f32 = row.emb.iter().zip(QUERY).map(|(a, b)| a * b).sum();
        let expected_l2 = row.emb.iter().zip(QUERY).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt();
        let norm = |values: &[f32; 4]| values.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert!((l2[index] - expected_l2).abs() < 1e-4, "row {index}");
        assert!((dot[index] - expected_dot).abs() < 1e-3, "row {index}");
        assert!((cos[index] - (1.0 - expected_dot / (norm(&row.emb) * norm(&QUERY)))).abs() < 1e-5, "row {index}");
    }
}

#[tokio::test]
async fn distances_work_in_where_and_order_by() {
    let fixture = Fixture::new().await;
    let sql =
        "SELECT id FROM samples WHERE l2_distance(emb, [0, 0, 0, 1]) < 3.0 ORDER BY l2_distance(emb, [0, 0, 0, 1]), id";
    let mut expected: Vec<(f32, i64)> = rows(NUM_NEWEST)
        .iter()
        .map(|row| (row.emb[..3].iter().map(|value| value * value).sum::<f32>().sqrt(), row.id))
        .filter(|(distance, _)| *distance < 3.0)
        .collect();
    expected.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let expected: Vec<i64> = expected.into_iter().map(|(_, id)| id).collect();
    assert!(!expected.is_empty());
    assert_eq!(ints(&fixture.collect(sql).await, "id"), expected);
}

fn first_float(batch: &RecordBatch) -> Option<f32> {
    let column = batch.column(0).as_primitive::<Float32Type>();
    column.is_valid(0).then(|| column.value(0))
}

#[tokio::test]
async fn nulls_and_literals() {
    let fixture = Fixture::new().await;
    for (sql, expected) in [
        ("SELECT l2_distance([3, 0], [0, 4])", Some(5.0)),
        ("SELECT l2_distance([3, NULL], [0, 4])", None),
        ("SELECT l2_distance(NULL, [0, 4])", None),
        ("SELECT cosine_distance([0, 0], [0, 4])", None),
        ("SELECT cosine_distance([2, 0], [0, 4])", Some(1.0)),
        ("SELECT cosine_similarity([0, 0], [0, 4])", None),
        ("SELECT cosine_similarity([2, 0], [NULL, 4])", None),
        ("SELECT cosine_similarity([2, 0], [0, 4])", Some(0.0)),
        ("SELECT cosine_similarity([2, 0], [-4, 0])", Some(-1.0)),
        ("SELECT l2_distance(make_array(3, 0), [0, 4]::FLOAT[2])", Some(5.0)),
        ("SELECT l2_distance(CAST([3, 0] AS FLOAT[2]), CAST(make_array(0, 4) AS DOUBLE[2]))", Some(5.0)),
        ("SELECT l2_distance(NULL::FLOAT[2], [0, 4])", None),
        ("SELECT dot_product([1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 1, 1, 1, 1, 1, 1, 1, 1])", Some(45.0)),
    ] {
        assert_eq!(first_float(&fixture.collect(sql).await), expected, "{sql}");
    }
}

#[tokio::test]
async fn mismatches_name_both_sides() {
    let fixture = Fixture::new().await;
    let three = [ParamValue::Vector(vec![1.0, 2.0, 3.0])];
    for sql in ["SELECT l2_distance(emb, $1) FROM samples", "SELECT id FROM samples WHERE l2_distance(emb, $1) < 1"] {
        fixture.refuses(sql, &three, ErrorKind::InvalidRequest, &["4", "3", "dimensions"]).await;
    }
    let literal = "SELECT l2_distance(emb, [1, 2, 3]) FROM samples";
    fixture.refuses(literal, &[], ErrorKind::InvalidRequest, &["4", "3", "dimensions"]).await;
    let text = "SELECT l2_distance(name, [1, 2, 3]) FROM samples";
    fixture.refuses(text, &[], ErrorKind::InvalidRequest, &["first argument", "not a vector"]).await;
}

fn float64s(batch: &RecordBatch, column: usize) -> impl Iterator<Item = f64> {
    batch.column(column).as_primitive::<Float64Type>().values().iter().copied()
}

#[tokio::test]
async fn tensor_functions() {
    let fixture = Fixture::new().await;
    let batch = fixture.collect("SELECT id, tensor_mean(image) AS mean FROM samples ORDER BY id").await;
    let means = batch.column(1).as_primitive::<Float64Type>();
    assert!(means.iter().enumerate().all(|(id, mean)| mean == Some((id % 256) as f64)));
    let sql = "SELECT tensor_min(image), tensor_max(image), tensor_std(image), tensor_norm(image) FROM samples \
               ORDER BY id";
    let batch = fixture.collect(sql).await;
    for (id, ((least, greatest), (deviation, norm))) in
        float64s(&batch, 0).zip(float64s(&batch, 1)).zip(float64s(&batch, 2).zip(float64s(&batch, 3))).enumerate()
    {
        let value = (id % 256) as f64;
        assert_eq!((least, greatest, deviation), (value, value, 0.0), "row {id}");
        assert!((norm - value * 2048f64.sqrt()).abs() < 1e-9, "row {id}");
    }
    for function in ["tensor_mean", "tensor_min", "tensor_max", "tensor_std", "tensor_norm"] {
        let sql = format!("SELECT {function}(name) FROM samples");
        fixture.refuses(&sql, &[], ErrorKind::InvalidRequest, &[function, "name"]).await;
    }
    fixture.refuses("SELECT tensor_shape(id) FROM samples", &[], ErrorKind::InvalidRequest, &["id"]).await;
    // The shape is known from the type, so that no image is read.
    assert!(fixture.remove_images() > 0);
    let shape = fixture.collect("SELECT tensor_shape(image) AS shape FROM samples LIMIT 1").await;
    let shown = arrow_cast::display::array_value_to_string(shape.column(0), 0).expect("a list");
    assert_eq!(shown, "[2, 32, 32]");
}

/// Returns the rows of a column of vectors of `f32`.
fn vectors(batch: &RecordBatch, column: usize) -> Vec<Option<Vec<f32>>> {
    let vectors = batch.column(column).as_fixed_size_list();
    let rows = vectors.iter();
    rows.map(|row| row.map(|row| row.as_primitive::<Float32Type>().values().to_vec())).collect()
}

#[tokio::test]
async fn means_of_vectors_equal_brute_force() {
    let fixture = Fixture::new().await;
    let sql = "SELECT label, vector_avg(emb), vector_avg(emb) FILTER (WHERE id < 5) FROM samples \
               GROUP BY label ORDER BY label";
    let batch = fixture.collect(sql).await;
    let (means, filtered) = (vectors(&batch, 1), vectors(&batch, 2));
    assert_eq!(ints(&batch, "label"), (0..10).collect::<Vec<i64>>());
    for label in 0..10 {
        let rows: Vec<_> = rows(NUM_NEWEST).into_iter().filter(|row| row.label == label).collect();
        let mean = means[label as usize].as_ref().expect("a mean");
        for (index, mean) in mean.iter().enumerate() {
            let sum: f64 = rows.iter().map(|row| f64::from(row.emb[index])).sum();
            assert!((f64::from(*mean) - sum / rows.len() as f64).abs() < 1e-6, "label {label}");
        }
        let expected = (label < 5).then(|| rows[0].emb.to_vec());
        assert_eq!(filtered[label as usize], expected, "label {label}");
    }
    let none = fixture.collect("SELECT vector_avg(emb) FROM samples WHERE id < 0").await;
    assert_eq!(vectors(&none, 0), [None]);
    let images = fixture.collect("SELECT vector_avg(image) FROM samples WHERE id IN (6, 9)").await;
    assert_eq!(vectors(&images, 0), [Some(vec![7.5; 2048])]);
    let lists = "SELECT vector_avg(v::FLOAT[2]) FROM (VALUES ([1, 2]), ([3, 6]), (NULL)) AS t(v)";
    assert_eq!(vectors(&fixture.collect(lists).await, 0), [Some(vec![2.0, 4.0])]);
    let list = "SELECT vector_avg([1, 2])";
    fixture.refuses(list, &[], ErrorKind::InvalidRequest, &["vector_avg", "cast it to a vector"]).await;
    let text = "SELECT vector_avg(name) FROM samples";
    fixture.refuses(text, &[], ErrorKind::InvalidRequest, &["vector_avg", "not a vector"]).await;
}

#[tokio::test]
async fn lists_are_cast_to_vectors() {
    let fixture = Fixture::new().await;
    let sql = "SELECT label, array_agg(id ORDER BY id)::BIGINT[30] AS ids FROM samples GROUP BY label ORDER BY label";
    let batch = fixture.collect(sql).await;
    let ids = batch.column(1).as_fixed_size_list();
    for label in 0..10 {
        let ids = ids.value(label);
        let expected: Vec<i64> = (0..30).map(|index| index * 10 + label as i64).collect();
        assert_eq!(ids.as_primitive::<Int64Type>().values().to_vec(), expected);
    }
    let tried = fixture.collect("SELECT TRY_CAST([1, 2, 3] AS FLOAT[4]), TRY_CAST([1, 2] AS FLOAT[2])").await;
    assert_eq!((vectors(&tried, 0), vectors(&tried, 1)), (vec![None], vec![Some(vec![1.0, 2.0])]));
    for (sql, parts) in [
        ("SELECT [1, 2, 3]::FLOAT[4]", ["a list of 3 elements", "a vector of 4 elements"]),
        ("SELECT make_array(id, label)::FLOAT[3] FROM samples", ["a list of 2 elements", "a vector of 3 elements"]),
        ("SELECT emb::FLOAT[3] FROM samples", ["a vector of 4 elements", "a vector of 3 elements"]),
    ] {
        fixture.refuses(sql, &[], ErrorKind::InvalidRequest, &parts).await;
    }
    let large = "SELECT CAST(NULL AS FLOAT[1000000000]) FROM samples";
    fixture.refuses(large, &[], ErrorKind::ResourceExhausted, &["cast_to_vector", "bytes"]).await;
}

#[tokio::test]
async fn image_functions() {
    let fixture = Fixture::new().await;
    let gif = "X'4749463839614001F000'";
    let batch = fixture.collect(&format!("SELECT image_width({gif}) AS w, image_height({gif}) AS h")).await;
    assert_eq!((ints(&batch, "w"), ints(&batch, "h")), (vec![320], vec![240]));
    let format = fixture.collect(&format!("SELECT image_format({gif})")).await;
    assert_eq!(format.column(0).as_string::<i32>().value(0), "gif");
    let sql = "SELECT count(*) AS n FROM samples WHERE image_format(CAST(name AS BYTEA)) IS NULL";
    assert_eq!(ints(&fixture.collect(sql).await, "n"), [NUM_NEWEST]);
    let text = "SELECT image_width(name) FROM samples";
    fixture.refuses(text, &[], ErrorKind::InvalidRequest, &["image_width needs a binary value"]).await;
}

/// Tells whether a row matches.
type Matches = fn(&Row) -> bool;

#[tokio::test]
async fn texts_are_matched_in_where() {
    let fixture = Fixture::new().await;
    let cases: [(&str, Matches); 6] = [
        ("matches(split, 'TEST')", |row| row.split == "test"),
        ("matches(name, 'n8 N9 \"n10\"')", |row| (8..=10).contains(&row.id)),
        ("matches(name, '+n8 n9')", |row| row.id == 8),
        ("matches(name, 'n8~1') AND id < 10", |row| row.id < 10 && row.name.is_some()),
        ("matches(name, 'n8~1') IS NULL", |row| row.name.is_none()),
        ("NOT matches(name, split)", |row| row.name.is_some()),
    ];
    for (predicate, is_selected) in cases {
        let expected: Vec<i64> = rows(NUM_NEWEST).iter().filter(|row| is_selected(row)).map(|row| row.id).collect();
        let found = fixture.collect(&format!("SELECT id FROM samples WHERE {predicate} ORDER BY id")).await;
        assert_eq!(ints(&found, "id"), expected, "{predicate}");
    }
    let with_params = "SELECT id FROM samples WHERE matches(name, $1, $2) ORDER BY id";
    let params = ["n8 n9", "english"].map(|text| ParamValue::Text(text.to_string()));
    assert_eq!(ints(&fixture.collect_with(with_params, &params).await, "id"), [8, 9]);
    let stems = "SELECT matches('The foxes were running', '+fox +run', 'English'), matches('The foxes', 'fox')";
    let stems = fixture.collect(stems).await;
    assert!(stems.column(0).as_boolean().value(0));
    assert!(!stems.column(1).as_boolean().value(0));
}

#[tokio::test]
async fn texts_that_are_no_queries_are_refused() {
    let fixture = Fixture::new().await;
    let in_where = "SELECT id FROM samples WHERE matches(name, $1)";
    let param = [ParamValue::Text("\"n8".to_string())];
    fixture.refuses(in_where, &param, ErrorKind::InvalidRequest, &["matches: query", "has no pair"]).await;
    for (sql, parts) in [
        ("SELECT matches(name, '-n8') FROM samples", ["matches: query \"-n8\"", "only excludes words"]),
        ("SELECT matches('fox', '')", ["matches: query \"\"", "no words"]),
        ("SELECT matches(split, '-' || split) FROM samples", ["matches: query \"-t", "only excludes words"]),
        ("SELECT matches(name, 'n8', 'klingon') FROM samples", ["\"klingon\" is not a language", "english"]),
        ("SELECT matches(name, 'n8', split) FROM samples", ["the language must be a literal text", "english"]),
        ("SELECT matches(id, 'n8') FROM samples", ["matches needs texts", "Int64"]),
    ] {
        fixture.refuses(sql, &[], ErrorKind::InvalidRequest, &parts).await;
    }
}
