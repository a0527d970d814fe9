//! Tests of changes of columns: those that are refused, and the ids of new columns.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use stoker_types::ErrorKind;

use super::counters::{address, counters};
use super::model::Failure;
use crate::ChangeNote;
use crate::tests::data::{TestResult, latest, memory_lake, small, table_name, tensor};

#[tokio::test]
async fn columns_that_cannot_be_changed_are_refused() -> TestResult {
    let lake = memory_lake().await;
    let table = counters(&lake, 10).await?;
    let note = ChangeNote::default();
    let refused = |result: crate::Result<u64>, message: &str| {
        let error = result.expect_err("the change is refused");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    };
    refused(lake.drop_columns(&table, &["m".into()], &note).await, "it has no column \"m\"; columns: id, n");
    refused(lake.drop_columns(&table, &["n".into(), "id".into()], &note).await, "a table must keep a column");
    refused(lake.rename_column(&table, "m", "k", &note).await, "it has no column \"m\"");
    refused(lake.rename_column(&table, "n", "id", &note).await, "there is a column id already");
    refused(lake.rename_column(&table, "n", "_rowid", &note).await, "the name of column _rowid is reserved");
    let number = |name: &str, nullable: bool| Field::new(name, DataType::Int64, nullable);
    let add = async |fields: Vec<Field>| lake.add_columns(&table, &fields, small(5, 1_000)).await.map(|_| 0);
    refused(add(vec![number("n", true)]).await, "there is a column n already");
    refused(add(vec![number("m", true), number("m", true)]).await, "there is a column m already");
    refused(add(vec![number("_distance", true)]).await, "reserved");
    refused(add(Vec::new()).await, "no column was given");

    let with_values = async |field: Field, rows: Vec<u64>| {
        let mut columns = lake.add_columns(&table, std::slice::from_ref(&field), small(5, 1_000)).await?;
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1; rows.len()]));
        let values = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![values])?;
        let addrs: Vec<u64> = rows.into_iter().map(address).collect();
        match columns.write(&addrs, &values).await {
            Ok(()) => Ok::<_, Failure>(columns.commit(None, &note).await),
            Err(error) => {
                columns.abort().await;
                Ok(Err(error))
            }
        }
    };
    let none = with_values(number("m", false), Vec::new()).await?;
    refused(none, "column m must not have nulls, but the rows have no values");
    for (rows, message) in [
        (vec![0, 1, 2, 3, 4], "the rows of fragment 1 have no values"),
        (vec![0, 1, 3, 4], "(fragment 0, offset 2) of t@1 has no value"),
        (vec![0, 1, 2, 3], "(fragment 0, offset 4) of t@1 has no value"),
        (vec![0, 2, 1, 3, 4], "(fragment 0, offset 1) of t@1 has no value"),
        (vec![5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5], "came after those of another one"),
    ] {
        refused(with_values(number("m", true), rows).await?, message);
    }
    let tensor = [tensor("x", DataType::UInt8, &[1_500]).with_nullable(true)];
    let nulls = lake.add_columns(&table, &tensor, small(5, 1_000)).await?.commit(None, &note).await;
    refused(nulls, "column x must not have nulls");
    assert_eq!(latest(&lake, &table_name("t")).await?.version(), 1);
    Ok(())
}

/// Another writer may leave an index whose column is gone.
#[tokio::test]
async fn a_new_column_has_no_index_of_a_dropped_one() -> TestResult {
    let lake = memory_lake().await;
    let (name, note) = (table_name("t"), ChangeNote::default());
    let table = counters(&lake, 10).await?;
    let mut before = table.dataset().as_ref().clone();
    lake.drop_columns(&table, &["n".into()], &note).await?;
    before.create_index(&["n"], IndexType::BTree, None, &ScalarIndexParams::default(), true).await?;
    lake.truncate(&name, &note).await?;
    let table = latest(&lake, &name).await?;
    lake.add_columns(&table, &[Field::new("m", DataType::Int64, true)], small(5, 1_000))
        .await?
        .commit(None, &note)
        .await?;
    let table = latest(&lake, &name).await?;
    let id = table.dataset().schema().field("m").ok_or("a column")?.id;
    let indexes = table.dataset().load_indices().await?;
    assert!(indexes.iter().all(|index| !index.fields.contains(&id)), "{indexes:?}");
    Ok(())
}
