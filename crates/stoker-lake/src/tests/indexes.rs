//! Tests of building and listing indexes.

use std::sync::Arc;

use lance::index::DatasetIndexExt;
use lance::index::scalar::fetch_index_details;
use stoker_types::ErrorKind;

use super::data::{TestResult, append, latest, memory_lake, schema, small, table_name};
use super::reading::vector_table;
use crate::{Error, IndexKind, Metric};

#[tokio::test]
async fn scalar_and_text_indexes_are_listed() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..50, small(20, 1000)).await?;
    for (column, kind) in [("id", IndexKind::BTree), ("name", IndexKind::Inverted)] {
        let before = latest(&lake, &name).await?;
        assert!(before.create_index(column, kind).await? > before.version());
    }
    let mut indexes = latest(&lake, &name).await?.indexes().await?;
    indexes.sort_by(|a, b| a.columns.cmp(&b.columns));
    let found: Vec<_> = indexes.iter().map(|index| (index.columns[0].as_str(), index.kind.as_str())).collect();
    assert_eq!(found, [("id", "BTree"), ("name", "Inverted")]);
    let error = latest(&lake, &name).await?.create_index("nope", IndexKind::BTree).await.expect_err("no such column");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    Ok(())
}

#[tokio::test]
async fn vector_indexes_are_listed() -> TestResult {
    let lake = memory_lake().await;
    let table = vector_table(&lake).await?;
    let version = table.create_index("v", IndexKind::IvfFlat { num_partitions: 2, metric: Metric::L2 }).await?;
    let table = latest(&lake, table.name()).await?;
    assert_eq!(table.version(), version);
    let indexes = table.indexes().await?;
    assert_eq!(indexes.len(), 1, "{indexes:?}");
    assert_eq!((indexes[0].columns.as_slice(), indexes[0].kind.as_str()), (["v".to_string()].as_slice(), "IVF_FLAT"));
    Ok(())
}

#[tokio::test]
async fn damaged_details_of_a_text_index_are_damage() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[]));
    append(&lake, &name, &schema, 0..50, small(20, 1000)).await?;
    latest(&lake, &name).await?.create_index("name", IndexKind::Inverted).await?;
    let table = latest(&lake, &name).await?;
    let mut index = table.dataset().load_indices().await?[0].clone();
    fetch_index_details(table.dataset(), "name", &index).await?;
    // These bytes begin with an invalid wire type.
    Arc::make_mut(index.index_details.as_mut().ok_or("details")?).value = vec![0xff; 3];
    let error = fetch_index_details(table.dataset(), "name", &index).await.expect_err("no details");
    assert!(matches!(error, lance_core::Error::IO { .. }), "{error}");
    let error = Error::storage("opening the index", error);
    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
    Ok(())
}
