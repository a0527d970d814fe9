//! Distance and tensor functions return the right values.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch};
use stoker_types::{ErrorKind, ParamValue};

use super::fixture::{Fixture, NUM_NEWEST, floats, ints, rows};

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

#[tokio::test]
async fn tensor_functions() {
    let fixture = Fixture::new().await;
    let batch = fixture.collect("SELECT id, tensor_mean(image) AS mean FROM samples ORDER BY id").await;
    let means = batch.column(1).as_primitive::<Float64Type>();
    assert!(means.iter().enumerate().all(|(id, mean)| mean == Some((id % 256) as f64)));
    fixture.refuses("SELECT tensor_mean(name) FROM samples", &[], ErrorKind::InvalidRequest, &["name"]).await;
    fixture.refuses("SELECT tensor_shape(id) FROM samples", &[], ErrorKind::InvalidRequest, &["id"]).await;
    // The shape is known from the type, so that no image is read.
    assert!(fixture.remove_images() > 0);
    let shape = fixture.collect("SELECT tensor_shape(image) AS shape FROM samples LIMIT 1").await;
    let shown = arrow_cast::display::array_value_to_string(shape.column(0), 0).expect("a list");
    assert_eq!(shown, "[2, 32, 32]");
}
