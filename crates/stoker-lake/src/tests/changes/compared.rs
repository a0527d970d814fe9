//! Tests that changes do what they do to a model, and what happens to data files.

use std::os::unix::fs::FileExt;

use stoker_store::sectors::is_checked_name;
use stoker_types::{ErrorKind, SnapshotRef};

use super::model::{Model, Row, Value, batch, check, id, rows_of};
use crate::tests::data::{TestResult, memory_lake, small, table_name, test_lake};
use crate::{ChangeNote, DenseProbe, FragmentTally, LakeStore, Table};

async fn compare(lake: LakeStore, seed: u64, steps: usize) -> TestResult {
    let mut model = Model::create(lake, seed).await?;
    let mut versions: Vec<(u64, Vec<Row>)> = Vec::new();
    for _ in 0..steps {
        let table = model.table().await?;
        versions.push((table.version(), model.rows.clone()));
        match model.random.next(9) {
            0 => model.add_column(&table).await?,
            1 => model.drop_column(&table).await?,
            2 => model.rename_column(&table).await?,
            _ => model.change_rows(&table).await?,
        }
        check(&model.table().await?, &model.rows).await?;
    }
    for (version, rows) in versions.iter().step_by(3) {
        let old = model.lake.table(&table_name("t"), &SnapshotRef::Version(*version)).await?;
        check(&old, rows).await?;
    }
    Ok(())
}

#[tokio::test]
async fn random_changes_do_what_a_model_does() -> TestResult {
    for seed in 1..5 {
        compare(memory_lake().await, seed, 14).await?;
    }
    Ok(())
}

#[tokio::test]
async fn random_changes_of_local_tables_do_what_a_model_does() -> TestResult {
    for seed in 10..12 {
        let test = test_lake().await;
        compare(test.lake, seed, 10).await?;
    }
    Ok(())
}

/// The data files of each fragment.
fn files(table: &Table) -> Vec<Vec<String>> {
    let fragments = table.dataset().fragments().iter();
    fragments.map(|fragment| fragment.files.iter().map(|file| file.path.clone()).collect()).collect()
}

#[tokio::test]
async fn other_columns_keep_their_files_and_heavy_ones_their_layout() -> TestResult {
    let test = test_lake().await;
    let mut model = Model::create(test.lake, 7).await?;
    let table = model.table().await?;
    let before = files(&table);
    let rows = rows_of(&table).await?;
    let (addr, row) = rows.get(13).ok_or("a row")?;
    let field = table.schema().field_with_name("x")?.clone();
    let new: Row = [("x".to_string(), model.random.value(&field))].into();
    let mut change = model.lake.change(&table, small(10, 4_000)).await?;
    change.update(&[*addr], &batch(&[field], [&new].into_iter()))?;
    change.commit(None, &ChangeNote::default()).await?;
    let table = model.table().await?;
    let after = files(&table);
    assert_eq!((&after[0], &after[2], &after[3]), (&before[0], &before[2], &before[3]));
    let kept = after[1].iter().filter(|file| before[1].contains(file)).count();
    assert_eq!((before[1].len(), after[1].len(), kept), (3, 3, 2), "one file of three was replaced");
    for column in ["x", "image"] {
        let survey = table.survey(column).await?;
        assert_eq!((survey.neighbours_max, survey.unchecked), (0, FragmentTally::default()), "{column}");
        assert!(survey.obstacles.is_empty(), "{column}: {survey:?}");
    }
    assert_eq!(table.survey("x").await?.chunk_bytes_max, 3_000, "two rows fit a page");
    let changed = id(row);
    model.rows.iter_mut().filter(|row| id(row) == changed).for_each(|row| row.extend(new.clone()));
    check(&table, &model.rows).await?;

    // The files of light columns have checksums of their sectors.
    let names = table.schema().field_with_name("name")?.clone();
    let mut change = model.lake.change(&table, small(10, 4_000)).await?;
    let new: Row = [("name".to_string(), Value::Text("new".into()))].into();
    change.update(&[0], &batch(&[names], [&new].into_iter()))?;
    change.commit(None, &ChangeNote::default()).await?;
    let table = model.table().await?;
    assert_eq!(files(&table)[0].iter().filter(|file| is_checked_name(file)).count(), 2);
    let first = model.rows.iter_mut().find(|row| id(row) == 0).ok_or("a row")?;
    first.extend(new);
    check(&table, &model.rows).await
}

#[tokio::test]
async fn damaged_old_values_are_not_written_with_a_new_checksum() -> TestResult {
    let test = test_lake().await;
    let mut model = Model::create(test.lake, 3).await?;
    let table = model.table().await?;
    let DenseProbe::Dense(dense) = table.dense_column("x").await? else { return Err("x is dense".into()) };
    let file = dense.file(0).ok_or("a file")?;
    let (offset, _) = file.locate(3).ok_or("a row")?;
    let mut byte = file.reader.read(offset..offset + 1).await?.to_vec();
    byte[0] ^= 1;
    let path = format!("/{}", file.reader.path());
    std::fs::OpenOptions::new().write(true).open(path)?.write_all_at(&byte, offset)?;
    let field = table.schema().field_with_name("x")?.clone();
    let new: Row = [("x".to_string(), model.random.value(&field))].into();
    let update = async |row: u64| {
        let mut change = model.lake.change(&table, small(10, 4_000)).await?;
        change.update(&[row], &batch(std::slice::from_ref(&field), [&new].into_iter()))?;
        change.commit(None, &ChangeNote::default()).await
    };
    let error = update(5).await.expect_err("row 3 is damaged");
    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
    assert!(error.to_string().contains("column x of row 3 (fragment 0, offset 3)"), "{error}");
    assert_eq!(model.table().await?.version(), 1);
    // A new value for the damaged row mends it.
    update(3).await?;
    model.rows.iter_mut().filter(|row| id(row) == 3).for_each(|row| row.extend(new.clone()));
    check(&model.table().await?, &model.rows).await
}
