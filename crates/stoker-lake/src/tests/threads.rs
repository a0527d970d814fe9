//! Tests that work on a lake can move between threads.

use super::data::{memory_lake, schema, table_name};
use crate::{
    ChangeNote, Checksums, CommitMode, CompactOptions, HeldVersions, IfExists, IndexKind, LakeStore, NewColumns,
    NewIndex, RangeReader, RowChange, ScanRequest, Table, TableWriter, WriteOptions,
};

fn is_send<T: Send>(_: T) {}

/// Compiles only if every future is `Send`; no future is awaited.
fn futures_are_send(
    lake: &LakeStore,
    table: &Table,
    reader: &RangeReader,
    checksums: &Checksums,
    writer: &mut TableWriter,
    (mut change, mut columns): (RowChange, NewColumns),
) {
    let (name, schema) = (table_name("t"), schema(&[]));
    let batch = arrow_array::RecordBatch::new_empty(schema.clone());
    let request = ScanRequest::default();
    is_send(lake.tables());
    is_send(lake.table(&name, &Default::default()));
    is_send(lake.writer(&name, &schema, true, WriteOptions::default()));
    is_send(lake.commit(&name, &schema, CommitMode::Create, Vec::new(), None));
    is_send(writer.write(&batch));
    is_send(table.dense_column("x"));
    is_send(table.checksums("x"));
    is_send(checksums.load(&[]));
    is_send(checksums.reload(&[]));
    is_send(table.survey("x"));
    is_send(lake.delete_rows(&name, &[], "", &|_| ChangeNote::default()));
    is_send(lake.change(table, WriteOptions::default()));
    is_send(change.insert(&batch));
    is_send(change.commit(None, &ChangeNote::default()));
    is_send(lake.add_columns(table, &[], WriteOptions::default()));
    is_send(columns.write(&[], &batch));
    is_send(columns.commit(None, &ChangeNote::default()));
    is_send(lake.drop_columns(table, &[], &ChangeNote::default()));
    is_send(lake.rename_column(table, "x", "y", &ChangeNote::default()));
    is_send(lake.truncate(&name, &ChangeNote::default()));
    is_send(lake.drop_table(&name, HeldVersions::Refuse));
    is_send(table.scan(&request));
    is_send(table.scan_plan(&request));
    is_send(table.take(&[], &[]));
    is_send(table.versions());
    is_send(table.create_index("x", IndexKind::BTree));
    let new = NewIndex { name: None, column: "x".into(), kind: IndexKind::BTree, if_exists: IfExists::Keep };
    is_send(lake.create_index(&name, &new, &|_| {}));
    is_send(lake.drop_index(&name, "x", true));
    is_send(lake.optimize_indexes(&name, None, &|_| {}));
    is_send(lake.compact(&name, &CompactOptions::default(), &ChangeNote::default(), &|_| {}));
    is_send(table.measure_recall("x", &|_| {}));
    is_send(table.indexes());
    is_send(reader.read(0..1));
    is_send(reader.read_body(0..1));
    is_send(lake.objects().list("x"));
}

#[tokio::test]
async fn values_move_between_threads() {
    let _ = futures_are_send;
    let lake = memory_lake().await;
    let name = table_name("t");
    let writer = lake.writer(&name, &schema(&[]), false, WriteOptions::default()).await.expect("a new table");
    let finished = tokio::spawn(writer.finish()).await.expect("the task does not panic");
    assert!(finished.expect("nothing was written").is_empty());
}
