//! A test of searches by indexes after updates.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::prelude::{col, lit};
use futures::TryStreamExt;
use lance::index::DatasetIndexExt;
use lance::index::vector::VectorIndexParams;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use lance_linalg::distance::MetricType;

use super::counters::counter_fields;
use super::model::Failure;
use crate::tests::data::{TestResult, latest, memory_lake, small, table_name};
use crate::{ChangeNote, CommitMode, Metric, Nearest, ScanRequest};

#[tokio::test]
async fn indexes_find_updated_rows() -> TestResult {
    let lake = memory_lake().await;
    let vector = DataType::FixedSizeList(Field::new("item", DataType::Float32, true).into(), 2);
    let fields = [counter_fields().to_vec(), vec![Field::new("v", vector, false)]].concat();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let rows = |n: &[i64], v: &[f32]| -> Vec<ArrayRef> {
        let lists = v.iter().map(|x| Some(vec![Some(*x), Some(1.0)]));
        let lists = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(lists, 2);
        vec![Arc::new(Int64Array::from(n.to_vec())), Arc::new(lists)]
    };
    let (n, v): (Vec<i64>, Vec<f32>) = (0..40).map(|row| (row, row as f32)).unzip();
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(0..40))];
    columns.extend(rows(&n, &v));
    let mut writer = lake.writer(&table_name("t"), &schema, false, small(10, 1_000)).await?;
    writer.write(&RecordBatch::try_new(schema.clone(), columns)?).await?;
    lake.commit(&table_name("t"), &schema, CommitMode::Create, writer.finish().await?, None).await?;
    let mut dataset = latest(&lake, &table_name("t")).await?.dataset().as_ref().clone();
    dataset.create_index(&["n"], IndexType::BTree, None, &ScalarIndexParams::default(), true).await?;
    let of_vectors = VectorIndexParams::ivf_flat(2, MetricType::L2);
    dataset.create_index(&["v"], IndexType::Vector, None, &of_vectors, true).await?;

    let table = latest(&lake, &table_name("t")).await?;
    let mut change = lake.change(&table, small(10, 1_000)).await?;
    // Row 3 of the first fragment becomes number 1,003, and row 12 of the second one gets the place of row 35.
    let addrs = [3, 1 << 32 | 2];
    let new = rows(&[1_003, 12], &[3.0, 35.25]);
    change.update(&addrs, &RecordBatch::try_from_iter([("n", new[0].clone()), ("v", new[1].clone())])?)?;
    change.commit(None, &ChangeNote::default()).await?;
    let table = latest(&lake, &table_name("t")).await?;
    let indexes = table.dataset().load_indices().await?;
    let covered: Vec<u64> =
        indexes.iter().filter_map(|index| index.fragment_bitmap.as_ref()).map(|ids| ids.len()).collect();
    assert_eq!(covered, [2, 2], "each index covers the fragments whose columns were not updated");
    let ids = async |request: ScanRequest| {
        let batches: Vec<RecordBatch> = table.scan(&request).await?.try_collect().await?;
        let mut ids: Vec<i64> =
            batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        ids.sort_unstable();
        Ok::<_, Failure>(ids)
    };
    for (filter, expected) in [
        (col("n").eq(lit(3i64)), vec![]),
        (col("n").eq(lit(1_003i64)), vec![3]),
        (col("n").lt(lit(5i64)), vec![0, 1, 2, 4]),
        (col("n").gt(lit(37i64)), vec![3, 38, 39]),
    ] {
        let request = ScanRequest { columns: vec!["id".into()], filter: Some(filter), ..ScanRequest::default() };
        assert_eq!(ids(request).await?, expected);
    }
    for (place, expected) in [(12.1, vec![11, 13, 14]), (35.2, vec![12, 35, 36])] {
        let query = Arc::new(Float32Array::from(vec![place, 1.0]));
        let nearest = Nearest {
            column: "v".into(),
            query,
            k: 3,
            metric: Metric::L2,
            use_index: true,
            nprobes: Some(2),
            nprobes_min: None,
            num_candidates: 0,
        };
        let request = ScanRequest { columns: vec!["id".into()], nearest: Some(nearest), ..ScanRequest::default() };
        assert_eq!(ids(request).await?, expected, "near {place}");
    }
    Ok(())
}
