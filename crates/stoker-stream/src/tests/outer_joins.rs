//! Tests of streams over outer joins, whose values are NULL where a table has no row.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array};
use stoker_sql::NO_ROW;
use stoker_types::{ErrorKind, ReadOptions, StreamOptions};

use super::*;

/// The dimensions of the embeddings of `u`. The column is light, but stored like a tensor.
const DIMENSIONS: usize = 200;

/// Makes the engine of [`super::engine`] with a table `u`: the even ids up to 40, each with a text, a vector and a
/// tensor.
async fn engine_with_u(uri: &str) -> Engine {
    let engine = engine(uri, 30).await;
    let x = TensorType { element: DataType::UInt8, shape: vec![WIDTH] }.to_field("y");
    let v = TensorType { element: DataType::Float32, shape: vec![DIMENSIONS] }.to_field("v");
    let ids: Vec<i64> = (0..=40).step_by(2).collect();
    let list = |field: &Field, values: ArrayRef| -> ArrayRef {
        let DataType::FixedSizeList(item, length) = field.data_type().clone() else { unreachable!("a tensor") };
        Arc::new(FixedSizeListArray::new(item, length, values, None))
    };
    let tensors = UInt8Array::from_iter_values(ids.iter().flat_map(|id| values(*id, WIDTH)));
    let vectors = Float32Array::from_iter_values(ids.iter().flat_map(|id| vec![*id as f32; DIMENSIONS]));
    let texts = StringArray::from_iter_values(ids.iter().map(|id| format!("u {id}")));
    let columns: Vec<ArrayRef> = vec![
        list(&x, Arc::new(tensors)),
        list(&v, Arc::new(vectors)),
        Arc::new(Int64Array::from(ids)),
        Arc::new(texts),
    ];
    let fields = vec![x, v, Field::new("uid", DataType::Int64, false), Field::new("text", DataType::Utf8, false)];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a batch");
    create(engine.lake(), "u", &batch, WriteOptions::default()).await;
    engine
}

/// A row: the id of `t`, and the id, text and vector of `u`.
type Row = (Option<i64>, Option<i64>, Option<String>, Option<f32>);

async fn rows(plan: &StreamPlan) -> Vec<Row> {
    let slice = slice(0, 1, BatchSize::PerRank(7), LastBatch::Uneven);
    let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
    let mut rows = Vec::new();
    while let Some(batch) = stream.next().await.expect("a batch") {
        let column = |name: &str| batch.data[name].clone();
        let (ids, uids) = (column("id"), column("uid"));
        let (texts, vectors) = (column("text"), column("v"));
        for row in 0..batch.num_valid {
            let id = |column: &ArrayRef| column.is_valid(row).then(|| column.as_primitive::<Int64Type>().value(row));
            let text = texts.is_valid(row).then(|| texts.as_string::<i32>().value(row).to_string());
            let vector = vectors.is_valid(row).then(|| {
                let vector = vectors.as_fixed_size_list().value(row);
                assert_eq!(vector.len(), DIMENSIONS);
                vector.as_primitive::<Float32Type>().value(DIMENSIONS - 1)
            });
            let supplied: Vec<bool> = batch.row_addrs.iter().map(|addrs| addrs[row] != NO_ROW).collect();
            assert_eq!(supplied, [id(&ids).is_some(), id(&uids).is_some()]);
            rows.push((id(&ids), id(&uids), text, vector));
        }
    }
    rows.sort_by_key(|row| (row.0, row.1));
    rows
}

fn expected(ids: impl Iterator<Item = (Option<i64>, Option<i64>)>) -> Vec<Row> {
    let row =
        |(id, uid): (Option<i64>, Option<i64>)| (id, uid, uid.map(|uid| format!("u {uid}")), uid.map(|uid| uid as f32));
    let mut rows: Vec<Row> = ids.map(row).collect();
    rows.sort_by_key(|row| (row.0, row.1));
    rows
}

#[test]
fn light_columns_of_missing_rows_are_null() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = engine_with_u(folder.path().to_str().expect("UTF-8")).await;
        let left: Vec<_> = (0..30).map(|id| (Some(id), (id % 2 == 0).then_some(id))).collect();
        let right: Vec<_> = (0..=40).step_by(2).map(|id| ((id < 30).then_some(id), Some(id))).collect();
        let only_right = right.iter().filter(|(id, _)| id.is_none()).copied();
        let full: Vec<_> = left.iter().copied().chain(only_right).collect();
        for (join, pairs) in [("LEFT", left), ("RIGHT", right), ("FULL", full)] {
            let sql = format!("SELECT t.id, u.uid, u.text, u.v FROM t {join} JOIN u ON u.uid = t.id");
            for shuffle in [ShuffleMode::Block, ShuffleMode::Full, ShuffleMode::Sequential] {
                let plan = plan(&engine, &sql, shuffle).await;
                assert_eq!(rows(&plan).await, expected(pairs.iter().copied()), "{sql} {shuffle:?}");
            }
        }
        // All rows of a batch may be without a row of `u`.
        let sql = "SELECT t.id, u.uid, u.text, u.v FROM t LEFT JOIN u ON u.uid = t.id WHERE t.id % 2 = 1";
        let odd = (0..30).filter(|id| id % 2 == 1).map(|id| (Some(id), None));
        assert_eq!(rows(&plan(&engine, sql, ShuffleMode::Block).await).await, expected(odd));
    });
}

#[test]
fn tensors_of_missing_rows_are_refused_when_a_stream_is_planned() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = engine_with_u(folder.path().to_str().expect("UTF-8")).await;
        for (sql, table) in [
            ("SELECT t.id, u.y FROM t LEFT JOIN u ON u.uid = t.id", "u"),
            ("SELECT t.x, u.uid FROM t RIGHT JOIN u ON u.uid = t.id", "t"),
            ("SELECT t.id, u.y FROM t FULL JOIN u ON u.uid = t.id", "u"),
            ("SELECT a.y FROM (SELECT u.y FROM t LEFT JOIN u ON u.uid = t.id) a", "u"),
        ] {
            let planned = StreamPlan::create(&engine, sql, &[], &StreamOptions::default()).await;
            let error = planned.err().unwrap_or_else(|| panic!("{sql} is planned"));
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{sql}: {error}");
            for part in ["is heavy", &format!("of table {table}"), "INNER JOIN", "IS NOT NULL"] {
                assert!(error.to_string().contains(part), "{sql}: {error}");
            }
        }
        // Where every row has its tensor, an outer join streams like an inner join.
        for sql in [
            "SELECT u.y AS x, t.id, t.name FROM t LEFT JOIN u ON u.uid = t.id WHERE u.uid IS NOT NULL",
            "SELECT u.y AS x, u.uid AS id, t.name FROM u LEFT JOIN t ON u.uid = t.id WHERE t.id >= 0",
        ] {
            let plan = plan(&engine, sql, ShuffleMode::Block).await;
            let slice = slice(0, 1, BatchSize::PerRank(5), LastBatch::Uneven);
            let mut found: Vec<i64> = ids(&plan, slice, 3).await.concat();
            found.sort_unstable();
            assert_eq!(found, (0..30).step_by(2).collect::<Vec<i64>>(), "{sql}");
        }
    });
}
