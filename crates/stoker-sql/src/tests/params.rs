//! Parameters of every type work wherever they are allowed.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, DurationMicrosecondArray, Int64Array, ListArray, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, Field};
use stoker_types::{ArrowParam, ErrorKind, ParamValue};

use super::fixture::{Fixture, ints};

fn arrow(value: impl arrow_array::Array + 'static) -> ParamValue {
    ParamValue::Arrow(ArrowParam::try_new(Arc::new(value)).expect("one value"))
}

fn list(values: ArrayRef) -> ParamValue {
    let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    arrow(ListArray::new(item, OffsetBuffer::from_lengths([values.len()]), values, None))
}

fn decimal(digits: i128, scale: i8) -> ParamValue {
    arrow(Decimal128Array::from(vec![digits]).with_precision_and_scale(10, scale).expect("a decimal"))
}

/// Checks the type and the text of the only value of a query.
async fn check(fixture: &Fixture, sql: &str, params: &[ParamValue], data_type: DataType, text: &str) {
    let batch = fixture.collect_with(sql, params).await;
    assert_eq!(batch.column(0).data_type(), &data_type, "{sql}");
    assert_eq!(array_value_to_string(batch.column(0), 0).expect("a text"), text, "{sql}");
}

#[tokio::test]
async fn every_type_stays_what_it_is() {
    let fixture = Fixture::new().await;
    let one = "SELECT $1 AS a";
    check(&fixture, one, &[ParamValue::Float(f64::NAN)], DataType::Float64, "NaN").await;
    check(&fixture, one, &[ParamValue::Float(f64::NEG_INFINITY)], DataType::Float64, "-inf").await;
    check(&fixture, one, &[arrow(UInt64Array::from(vec![u64::MAX]))], DataType::UInt64, "18446744073709551615").await;
    check(&fixture, one, &[decimal(150, 2)], DataType::Decimal128(10, 2), "1.50").await;
    check(&fixture, one, &[arrow(BinaryArray::from(vec![b"ab".as_slice()]))], DataType::Binary, "6162").await;
    check(&fixture, one, &[arrow(Date32Array::from(vec![0]))], DataType::Date32, "1970-01-01").await;
    check(&fixture, one, &[arrow(Int64Array::from(vec![None]))], DataType::Int64, "").await;
    let days = [arrow(Date32Array::from(vec![31]))];
    check(&fixture, "SELECT '1970-01-31' < $1 AS a", &days, DataType::Boolean, "true").await;
    let time = TimestampMicrosecondArray::from(vec![1_000_000]);
    let params = [arrow(time), arrow(DurationMicrosecondArray::from(vec![2_000_000]))];
    check(&fixture, "SELECT CAST($1 + $2 AS VARCHAR) AS a", &params, DataType::Utf8, "1970-01-01T00:00:03").await;
    check(&fixture, "SELECT $1 * 2 = 3 AS a", &[decimal(150, 2)], DataType::Boolean, "true").await;
}

#[tokio::test]
async fn lists_are_sets_of_values() {
    let fixture = Fixture::new().await;
    let ids = ParamValue::Vector(vec![3.0, 5.0, 1_000.0]);
    let names = list(Arc::new(StringArray::from(vec![Some("n1"), None, Some("n2")])));
    for (sql, param, expected) in [
        ("SELECT id FROM samples WHERE id = ANY($1) ORDER BY id", &ids, vec![3, 5]),
        ("SELECT id FROM samples WHERE id IN ($1) ORDER BY id", &ids, vec![3, 5]),
        ("SELECT id FROM samples WHERE id IN (1, $1) ORDER BY id", &ids, vec![1, 3, 5]),
        ("SELECT id FROM samples WHERE array_has($1, id) ORDER BY id", &ids, vec![3, 5]),
        ("SELECT id FROM samples WHERE id IN (SELECT unnest($1)) ORDER BY id", &ids, vec![3, 5]),
        ("SELECT id FROM samples WHERE id IN (SELECT * FROM unnest($1)) ORDER BY id", &ids, vec![3, 5]),
        ("SELECT id FROM samples WHERE id NOT IN ($1) AND id < 6 ORDER BY id", &ids, vec![0, 1, 2, 4]),
        ("SELECT id FROM samples WHERE name = ANY($1) ORDER BY id", &names, vec![1, 2]),
        ("SELECT id FROM samples WHERE name IN ($1) ORDER BY id", &names, vec![1, 2]),
        ("SELECT id FROM samples WHERE name NOT IN ($1) ORDER BY id", &names, vec![]),
        ("SELECT id FROM samples WHERE id IN ($1)", &ParamValue::Vector(Vec::new()), vec![]),
        ("SELECT id FROM samples WHERE id = ANY($1)", &ParamValue::Vector(Vec::new()), vec![]),
        ("SELECT id FROM samples WHERE id NOT IN ($1) AND id < 1", &ParamValue::Vector(Vec::new()), vec![0]),
    ] {
        let batch = fixture.collect_with(sql, std::slice::from_ref(param)).await;
        assert_eq!(ints(&batch, "id"), expected, "{sql} {param:?}");
    }
    let large = [list(Arc::new(Int64Array::from(vec![9_007_199_254_740_993])))];
    let sql = "SELECT 9007199254740992 = ANY($1) AS a";
    assert!(!fixture.collect_with(sql, &large).await.column(0).as_boolean().value(0));
}

#[tokio::test]
async fn vectors_search_and_measure() {
    let fixture = Fixture::new().await;
    let vector = ParamValue::Vector(vec![1.0, 2.0, 3.0, 1.0]);
    let as_list = list(Arc::new(Int64Array::from(vec![1, 2, 3, 1])));
    for param in [&vector, &as_list] {
        let sql = "SELECT id FROM vector_search(samples, emb, $1, k => 3)";
        let found = ints(&fixture.collect_with(sql, std::slice::from_ref(param)).await, "id");
        let sql = "SELECT id FROM samples ORDER BY l2_distance(emb, $1), id LIMIT 3";
        assert_eq!(ints(&fixture.collect_with(sql, std::slice::from_ref(param)).await, "id"), found);
        assert_eq!(found.len(), 3);
    }
    let with_null = list(Arc::new(Int64Array::from(vec![Some(1), None])));
    let sql = "SELECT id FROM vector_search(samples, emb, $1)";
    fixture.refuses(sql, &[with_null], ErrorKind::InvalidRequest, &["$1", "vector without nulls"]).await;
    let nan = ParamValue::Vector(vec![f64::NAN, 0.0, 0.0, 0.0]);
    fixture.refuses(sql, &[nan], ErrorKind::InvalidRequest, &["NaN"]).await;
}

#[tokio::test]
async fn question_marks_count_from_left_to_right() {
    let fixture = Fixture::new().await;
    let params = [ParamValue::Int(7), ParamValue::Text("test".into()), ParamValue::Int(2)];
    let sql = "SELECT id, ? AS a, '?' AS b FROM samples /* ? */ WHERE split = ? ORDER BY id LIMIT ?";
    let batch = fixture.collect_with(sql, &params).await;
    assert_eq!((ints(&batch, "id"), ints(&batch, "a")), (vec![0, 5], vec![7, 7]));
    let with = "WITH t AS (SELECT id FROM samples WHERE id > ?) SELECT id, ? AS a FROM t WHERE id < ?";
    let batch = fixture.collect_with(with, &[ParamValue::Int(3), ParamValue::Int(9), ParamValue::Int(5)]).await;
    assert_eq!((ints(&batch, "id"), ints(&batch, "a")), (vec![4], vec![9]));
    let refused = [
        ("SELECT ? AS a, $2 AS b", "in one query"),
        ("SELECT $1 AS a, ? AS b", "in one query"),
        ("SELECT ?2 AS a", "write $2"),
    ];
    for (sql, part) in refused {
        fixture.refuses(sql, &[ParamValue::Int(1), ParamValue::Int(2)], ErrorKind::InvalidRequest, &[part]).await;
    }
    fixture.refuses("SELECT ?, ?", &[ParamValue::Int(1)], ErrorKind::InvalidRequest, &["$2 is missing"]).await;
}

#[tokio::test]
async fn versions_and_times_may_be_arrow_values() {
    let fixture = Fixture::new().await;
    let version = [arrow(UInt64Array::from(vec![1]))];
    let count = fixture.collect_with("SELECT count(*) AS n FROM samples AT (VERSION => $1)", &version).await;
    assert_eq!(ints(&count, "n"), [250]);
    let future = TimestampMicrosecondArray::from(vec![4_102_444_800_000_000]).with_timezone("UTC");
    let sql = "SELECT count(*) AS n FROM samples AT (TIMESTAMP => $1)";
    assert_eq!(ints(&fixture.collect_with(sql, &[arrow(future)]).await, "n"), [300]);
}

#[tokio::test]
async fn columns_are_named_after_parameters() {
    let fixture = Fixture::new().await;
    let params = [ParamValue::Vector(vec![1.0, 2.0, 3.0, 1.0]), arrow(Date32Array::from(vec![0]))];
    let batch = fixture.collect_with("SELECT $1, $2, l2_distance(emb, $1) FROM samples LIMIT 1", &params).await;
    let names: Vec<String> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["$1", "$2", "l2_distance(samples.emb,$1)"]);
    let vector = batch.column(0).as_fixed_size_list().value(0);
    assert_eq!(vector.as_primitive::<Float32Type>().values(), &[1.0, 2.0, 3.0, 1.0]);
}

#[tokio::test]
async fn no_internal_name_is_shown() {
    let fixture = Fixture::new().await;
    let params = [ParamValue::Vector(vec![1.0, 2.0, 3.0, 1.0])];
    for sql in [
        "SELECT s.id, l2_distance(s.emb, $1) AS d FROM samples s JOIN samples AT (VERSION => 1) o USING (id)",
        "SELECT id FROM vector_search(samples, emb, $1) WHERE split = 'test' ORDER BY _distance",
        "SELECT id FROM vector_search(samples, emb, $1) v WHERE v.label + 1 IN (SELECT label FROM labels)",
    ] {
        let query = fixture.engine.query(sql, &params).await.expect(sql);
        let plan = query.explain().await.expect("a plan");
        assert!(!plan.contains("__stoker") && plan.contains("samples#1"), "{plan}");
        for explain in ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE"] {
            let batch = fixture.collect_with(&format!("{explain} {sql}"), &params).await;
            let shown = arrow_cast::pretty::pretty_format_batches(&[batch]).expect("a table").to_string();
            assert!(!shown.contains("__stoker"), "{shown}");
        }
    }
    for sql in [
        "SELECT nope FROM samples",
        "SELECT s.nope FROM samples s, samples t",
        "SELECT id FROM samples s, samples t",
        "SELECT samples.id + name || emb FROM samples",
        "SELECT sum(name) FROM samples",
        "SELECT id FROM samples GROUP BY label",
        "SELECT __stoker_row_addr_0 FROM samples",
    ] {
        let error = fixture.engine.query(sql, &[]).await.expect_err(sql).to_string();
        assert!(!error.contains("__stoker") || sql.contains("__stoker"), "{sql}: {error}");
    }
    let hidden = r#"WITH "samples#1" AS (SELECT 1 AS id) SELECT id FROM samples"#;
    fixture.refuses(hidden, &[], ErrorKind::InvalidRequest, &["samples#1"]).await;
    let sample = fixture.engine.sample("SELECT * FROM samples s LEFT JOIN labels l ON l.label = s.label", &[]).await;
    let error = sample.expect_err("two columns label").to_string();
    assert!(!error.contains("__stoker"), "{error}");
    assert_eq!(fixture.collect("SELECT * FROM samples").await.num_columns(), 6);
    let ids = fixture.collect("SELECT count(*) AS n FROM samples").await;
    assert_eq!(ids.column(0).as_primitive::<Int64Type>().value(0), 300);
}
