//! Tests that compactions keep rows, checksums, indexes and the commits of others.

mod concurrent;
mod indexed;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, SchemaRef};
use futures::TryStreamExt;
use stoker_columns::is_heavy;
use stoker_types::{ErrorKind, SnapshotRef};

use super::data::{
    TestLake, TestResult, append, image_field, latest, memory_lake, rows, schema, small, table_name, tensor, test_lake,
};
use crate::{
    ChangeNote, CompactOptions, Compacted, DeletedRows, DenseProbe, Error, LakeStore, ROW_ADDR, ScanRequest, Table,
    WriteOptions, row_checksums,
};

/// The number of rows of each append of a table of the tests.
const STEP: usize = 7;

fn options(rows_per_fragment_max: u64) -> CompactOptions {
    CompactOptions { write: small(rows_per_fragment_max, 4_000), ..CompactOptions::default() }
}

async fn compact(lake: &LakeStore, options: &CompactOptions) -> crate::Result<Compacted> {
    lake.compact(&table_name("t"), options, &ChangeNote::default(), &|_| {}).await
}

/// A tensor, and images.
fn wide_schema() -> SchemaRef {
    schema(&[tensor("x", DataType::UInt8, &[1_500]), image_field("image")])
}

/// A table `t` of `num` appends.
async fn appended(lake: &LakeStore, schema: &SchemaRef, num: usize) -> crate::Result<Table> {
    for number in 0..num {
        append(lake, &table_name("t"), schema, number * STEP..(number + 1) * STEP, small(100, 4_000)).await?;
    }
    latest(lake, &table_name("t")).await
}

async fn delete(lake: &LakeStore, addrs: &[u64]) -> crate::Result<DeletedRows> {
    lake.delete_rows(&table_name("t"), addrs, "deleting rows", &|_| ChangeNote::default()).await
}

/// All rows of a version in their order, and their addresses.
async fn read(table: &Table) -> Result<(RecordBatch, Vec<u64>), Box<dyn std::error::Error>> {
    let columns: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
    let request = ScanRequest { columns, with_row_addr: true, ..ScanRequest::default() };
    let stream = table.scan(&request).await?;
    let schema = stream.schema();
    let batches: Vec<RecordBatch> = stream.try_collect().await?;
    let mut all = arrow_select::concat::concat_batches(&schema, &batches)?;
    let addrs = all.remove_column(all.schema().index_of(ROW_ADDR)?);
    Ok((all, addrs.as_primitive::<arrow_array::types::UInt64Type>().values().to_vec()))
}

fn ids(rows: &RecordBatch) -> Vec<i64> {
    rows.column_by_name("id").expect("the column").as_primitive::<Int64Type>().values().to_vec()
}

/// The rows in the order of their ids.
fn by_id(rows: RecordBatch) -> Result<RecordBatch, Box<dyn std::error::Error>> {
    let ids = ids(&rows);
    let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    order.sort_by_key(|row| ids[*row as usize]);
    Ok(arrow_select::take::take_record_batch(&rows, &arrow_array::UInt32Array::from(order))?)
}

/// Checks that each heavy column has a file of its own and a checksum for each row, and that tensors are dense.
async fn check_layout(table: &Table) -> TestResult {
    let (all, addrs) = read(table).await?;
    let num_heavy = table.schema().fields().iter().filter(|field| is_heavy(field)).count();
    for fragment in table.dataset().fragments().iter() {
        assert_eq!((fragment.files.len(), &fragment.deletion_file), (num_heavy + 1, &None));
    }
    for field in table.schema().fields().iter().filter(|field| is_heavy(field)) {
        let name = field.name();
        let checksums = table.checksums(name).await?.ok_or("the column has checksums")?;
        let found: Vec<u32> = checksums.load(&addrs).await?.into_iter().map(Option::unwrap_or_default).collect();
        assert_eq!(Some(found), row_checksums(all.column_by_name(name).ok_or("the column")?), "{name}");
        if let DataType::FixedSizeList(..) = field.data_type() {
            assert!(matches!(table.dense_column(name).await?, DenseProbe::Dense(_)), "{name}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn rows_and_checksums_stay() -> TestResult {
    let lake = memory_lake().await;
    let schema = wide_schema();
    let table = appended(&lake, &schema, 8).await?;
    assert_eq!(delete(&lake, &[0, 3, 2 << 32 | 6]).await?.num_deleted, 3);
    let whole: Vec<u64> = (0..STEP as u64).map(|row| 4 << 32 | row).collect();
    delete(&lake, &whole).await?;
    // A column with values, and one without.
    let table = add_column(&lake, &latest(&lake, table.name()).await?, "n").await?;
    let empty = lake.add_columns(&table, &[Field::new("none", DataType::Utf8, true)], WriteOptions::default()).await?;
    empty.commit(None, &ChangeNote::default()).await?;

    let before = latest(&lake, table.name()).await?;
    let (expected, old_addrs) = read(&before).await?;
    assert_eq!(expected.num_rows(), 7 * STEP - 3);
    let plan = lake.plan_compaction(before.name(), &options(1_000)).await?;
    assert_eq!((plan.version, plan.num_fragments, plan.groups.len()), (before.version(), 7, 1));
    assert_eq!((&plan.groups[0].new_rows, plan.groups[0].num_deleted), (&vec![expected.num_rows() as u64], 3));
    let done = compact(&lake, &options(1_000)).await?;
    assert_eq!((done.version, done.num_fragments, done.num_new_fragments), (before.version() + 1, 7, 1));
    assert_eq!((done.num_rows, done.num_deleted, done.num_left), (expected.num_rows() as u64, 3, 0));
    let after = latest(&lake, before.name()).await?;
    let (found, addrs) = read(&after).await?;
    assert_eq!(found, expected);
    assert_eq!((after.version(), after.schema()), (done.version, before.schema()));
    assert!(addrs.iter().all(|addr| !old_addrs.contains(addr)), "no address is that of another row");
    assert_eq!(after.data_bytes(), done.bytes);
    check_layout(&after).await?;
    after.dataset().validate().await?;
    // The older version keeps its rows.
    let old = lake.table(before.name(), &SnapshotRef::Version(before.version())).await?;
    assert_eq!(read(&old).await?, (expected, old_addrs));

    let again = compact(&lake, &options(1_000)).await?;
    assert_eq!(again, Compacted { version: done.version, ..Compacted::default() }, "nothing is to be done");
    // Rows can be appended, changed and compacted again.
    append_wide(&lake, &after, 90..97).await?;
    let more = compact(&lake, &options(1_000)).await?;
    assert_eq!((more.num_fragments, more.num_new_fragments, more.num_rows), (2, 1, done.num_rows + 7));
    Ok(())
}

/// Adds a column that has ten times the id of each row.
async fn add_column(lake: &LakeStore, table: &Table, name: &str) -> Result<Table, Box<dyn std::error::Error>> {
    let field = Field::new(name, DataType::Int64, true);
    let mut added = lake.add_columns(table, std::slice::from_ref(&field), WriteOptions::default()).await?;
    let (all, addrs) = read(table).await?;
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(ids(&all).iter().map(|id| id * 10)));
    added.write(&addrs, &RecordBatch::try_from_iter_with_nullable([(name, values, true)])?).await?;
    added.commit(None, &ChangeNote::default()).await?;
    Ok(latest(lake, table.name()).await?)
}

/// Appends rows to a table with more columns, which become null.
async fn append_wide(lake: &LakeStore, table: &Table, numbers: std::ops::Range<usize>) -> TestResult {
    let mut change = lake.change(table, WriteOptions::default()).await?;
    change.insert(&rows(&wide_schema(), numbers.start, numbers.len())).await?;
    change.commit(None, &ChangeNote::default()).await?;
    Ok(())
}

#[tokio::test]
async fn fragments_are_joined_up_to_their_limits() -> TestResult {
    let lake = memory_lake().await;
    appended(&lake, &wide_schema(), 9).await?;
    let (expected, _) = read(&latest(&lake, &table_name("t")).await?).await?;
    let done = compact(&lake, &options(20)).await?;
    assert_eq!((done.num_fragments, done.num_new_fragments), (8, 4), "pairs of 14 rows, and the last one stays");
    let after = latest(&lake, &table_name("t")).await?;
    assert_eq!(after.fragments().iter().map(|part| part.num_rows).collect::<Vec<_>>(), [7, 14, 14, 14, 14]);
    assert_eq!(by_id(read(&after).await?.0)?, expected);
    // Fragments that need it for no other reason are written again on demand, and split.
    let all = CompactOptions { rewrites_all: true, ..options(5) };
    let done = compact(&lake, &all).await?;
    assert_eq!((done.num_fragments, done.num_new_fragments), (5, 14));
    let after = latest(&lake, &table_name("t")).await?;
    assert_eq!(by_id(read(&after).await?.0)?, expected);
    assert!(after.fragments().iter().all(|part| part.num_rows <= 5));
    check_layout(&after).await
}

#[tokio::test]
async fn deleted_rows_are_left_out_from_a_share_on() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), wide_schema());
    append(&lake, &name, &schema, 0..40, small(20, 4_000)).await?;
    delete(&lake, &[1 << 32]).await?;
    assert_eq!(compact(&lake, &options(20)).await?.num_fragments, 0, "one of 20 rows is deleted");
    delete(&lake, &[1 << 32 | 5]).await?;
    let done = compact(&lake, &options(20)).await?;
    assert_eq!((done.num_fragments, done.num_rows, done.num_deleted), (1, 18, 2));
    let after = latest(&lake, &name).await?;
    assert_eq!(ids(&read(&after).await?.0), (0..40).filter(|id| ![20, 25].contains(id)).collect::<Vec<_>>());
    assert_eq!(after.fragments().iter().map(|part| part.id).collect::<Vec<_>>(), [0, 2]);
    Ok(())
}

/// After a compaction, rows may be out of the order in which they were appended.
#[tokio::test]
async fn rows_are_found_by_addresses_of_all_versions() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), wide_schema());
    append(&lake, &name, &schema, 0..40, small(10, 4_000)).await?;
    delete(&lake, &[1 << 32, 1 << 32 | 1, 3 << 32 | 9, 3 << 32 | 8]).await?;
    compact(&lake, &options(10)).await?;
    let before = latest(&lake, &name).await?;
    assert_eq!(before.fragments().iter().map(|part| part.id).collect::<Vec<_>>(), [0, 2, 4, 5]);
    let (expected, _) = read(&before).await?;
    compact(&lake, &options(100)).await?;
    let after = latest(&lake, &name).await?;
    assert_eq!((after.fragments().len(), read(&after).await?.0), (1, expected));
    // Rows are found by addresses of all versions.
    let deleted = delete(&lake, &[3 << 32, 5 << 32 | 1, 2 << 32 | 3, 1 << 32, 1]).await?;
    assert_eq!((deleted.num_deleted, deleted.num_deleted_before), (4, 1));
    let kept = (0..40).filter(|id| ![10, 11, 38, 39, 30, 31, 23, 1].contains(id)).collect::<Vec<_>>();
    assert_eq!(ids(&by_id(read(&latest(&lake, &name).await?).await?.0)?), kept);
    Ok(())
}

#[tokio::test]
async fn rows_are_found_by_their_old_addresses() -> TestResult {
    let test = test_lake().await;
    let (lake, name) = (&test.lake, table_name("t"));
    appended(lake, &wide_schema(), 4).await?;
    delete(lake, &[1 << 32]).await?;
    compact(lake, &options(1_000)).await?;
    // A compaction that ended before it could note its commit is found by its transaction.
    let folder = test.folder.path().join("t.lance/_moves");
    let noted = |extension: &str| -> Vec<std::path::PathBuf> {
        let all = std::fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("an entry").path());
        all.filter(|path| path.to_string_lossy().ends_with(extension)).collect()
    };
    let [version] = noted(".v6").try_into().map_err(|found| format!("{found:?}"))?;
    std::fs::remove_file(&version)?;
    // Moves without a commit mean nothing.
    let [moves] = noted(".moves").try_into().map_err(|found| format!("{found:?}"))?;
    std::fs::copy(&moves, folder.join(format!("{}.moves", uuid::Uuid::new_v4())))?;
    std::fs::write(folder.join("of-others"), "")?;
    let table = latest(lake, &name).await?;
    assert_eq!(table.num_deleted(&[1 << 32, 1 << 32 | 1]).await?, 1);
    assert_eq!(noted(".v6"), [version], "it is noted again");
    let done = delete(lake, &[1 << 32, 1 << 32 | 1, 3 << 32 | 6, 3 << 32 | 6]).await?;
    assert_eq!((done.num_deleted, done.num_deleted_before), (2, 1));
    assert_eq!(delete(lake, &[3 << 32 | 6]).await?, DeletedRows { num_deleted: 0, num_deleted_before: 1, ..done });
    let table = latest(lake, &name).await?;
    assert_eq!(ids(&read(&table).await?.0), (0..28).filter(|id| ![7, 8, 27].contains(id)).collect::<Vec<_>>());
    let error = delete(lake, &[1 << 32 | 7]).await.expect_err("there never was such a row");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // Drafts go after a week, and moves with the last version that has their old fragments.
    lake.clean_moves(&table).await?;
    assert_eq!(noted(".moves").len(), 2);
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(8 * 24 * 3600);
    for path in noted(".moves") {
        std::fs::File::options().write(true).open(path)?.set_modified(long_ago)?;
    }
    lake.clean_moves(&table).await?;
    assert_eq!(noted(".moves"), [moves]);
    for version in 1..=5 {
        std::fs::remove_file(test.folder.path().join(format!("t.lance/_versions/{}.manifest", u64::MAX - version)))?;
    }
    lake.clean_moves(&table).await?;
    assert_eq!((noted(".moves").len(), noted(".v6").len()), (0, 0));
    Ok(())
}

/// Overwrites a byte in the middle of the file that holds column `x` of fragment 1.
async fn damage(test: &TestLake) -> TestResult {
    let table = latest(&test.lake, &table_name("t")).await?;
    let DenseProbe::Dense(dense) = table.dense_column("x").await? else { return Err("it is dense".into()) };
    let file = dense.file(1).ok_or("there is a file")?;
    let (offset, _) = file.locate(3).ok_or("row 3 has a place")?;
    let path = test.folder.path().join("t.lance/data").join(file.reader.path().rsplit('/').next().ok_or("a name")?);
    let mut bytes = std::fs::read(&path)?;
    bytes[offset as usize + 100] ^= 0xff;
    Ok(std::fs::write(path, bytes)?)
}

#[tokio::test]
async fn a_damaged_row_is_named_and_nothing_changes() -> TestResult {
    let test = test_lake().await;
    let lake = &test.lake;
    appended(lake, &wide_schema(), 3).await?;
    damage(&test).await?;
    let files = || std::fs::read_dir(test.folder.path().join("t.lance/data")).expect("a folder").count();
    let before = files();
    let error = compact(lake, &options(1_000)).await.expect_err("a row is damaged");
    assert!(matches!(error, Error::DamagedRows { .. }), "{error}");
    let told = "column x of row 4294967299 (fragment 1, offset 3) of t@3 differs from its checksum";
    assert!(error.to_string().contains(told), "{error}");
    assert_eq!((latest(lake, &table_name("t")).await?.version(), files()), (3, before), "drafts are removed");
    // Without the row, the others are compacted.
    delete(lake, &[1 << 32 | 3]).await?;
    assert_eq!(compact(lake, &options(1_000)).await?.num_rows, 20);
    let (found, _) = read(&latest(lake, &table_name("t")).await?).await?;
    assert_eq!(ids(&found), (0..21).filter(|id| *id != 10).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn tables_that_cannot_be_compacted_say_why() -> TestResult {
    let lake = memory_lake().await;
    let error = compact(&lake, &options(1_000)).await.expect_err("there is no table");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let rows = rows(&schema(&[]), 0, 20);
    let reader = arrow_array::RecordBatchIterator::new([Ok(rows.clone())], rows.schema());
    let params = lance::dataset::WriteParams {
        enable_stable_row_ids: true,
        max_rows_per_file: 10,
        ..lance::dataset::WriteParams::default()
    };
    let test = test_lake().await;
    let uri = test.folder.path().join("t.lance");
    lance::Dataset::write(reader, uri.to_str().ok_or("a path")?, Some(params)).await?;
    let error = compact(&test.lake, &options(1_000)).await.expect_err("ids are stable");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.to_string().contains("stable row ids"), "{error}");
    assert_eq!(compact(&test.lake, &options(12)).await?.num_fragments, 0, "nothing is to be done");
    Ok(())
}
