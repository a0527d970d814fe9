//! Tests of the doctor's findings about tables with a known layout.

use std::sync::Arc;

use arrow_array::types::UInt8Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, Int64Array, LargeBinaryArray, ListArray,
    RecordBatch, RecordBatchIterator, StructArray, UInt8Array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::dataset::{NewColumnTransform, WriteParams};
use lance_file::version::LanceFileVersion;
use stoker_columns::{HEAVY_KEY, KIND_ENCODED_IMAGE, KIND_KEY};
use stoker_lake::{ChangeNote, CommitMode, CompactOptions, DenseProbe, LakeStore, Table, WriteOptions};
use stoker_types::{Diagnosis, Finding, Verdict};

use super::data::{
    TestResult, append, image_field, latest, media, memory_lake, schema, small, table_name, tensor, test_lake,
};
use crate::{describe, doctor, quarantine};

type Failure = Box<dyn std::error::Error>;

/// The number of elements of a wide list.
const LENGTH: i32 = 3_000;

const NUM_ROWS: usize = 20;

/// Returns the verdict and the findings about column `x`, and checks that the verdict agrees with the way in which the
/// column is read.
async fn about_x(table: &Table) -> Result<(Verdict, Vec<Finding>), Failure> {
    let Diagnosis { columns, mut findings } = doctor(table).await?;
    // Tables of Lance's own writer also have a finding about their other columns, which is removed here.
    let unchecked = columns.iter().any(|column| !column.heavy && column.unchecked_fragments > 0);
    assert_eq!(findings.extract_if(.., |finding| finding.code == "unchecked_columns").count(), usize::from(unchecked));
    assert_eq!(columns, describe(table).await?);
    let layout = columns.iter().find(|column| column.name == "x").ok_or("the table has a column x")?;
    let is_dense = matches!(table.dense_column("x").await?, DenseProbe::Dense(_));
    assert_eq!(layout.verdict() == Verdict::Dense, is_dense, "{layout:?}");
    for finding in &findings {
        assert!(finding.column.as_deref().is_none_or(|column| column == "x"), "{finding}");
        assert!(![&finding.what, &finding.cost, &finding.remedy].iter().any(|text| text.is_empty()), "{finding}");
    }
    Ok((layout.verdict(), findings))
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code.as_str()).collect()
}

/// The lines of Python that remedy the finding with this code.
fn example<'a>(findings: &'a [Finding], code: &str) -> &'a str {
    let finding = findings.iter().find(|finding| finding.code == code).expect("the code was found");
    finding.example.as_deref().expect("the finding has an example")
}

/// Writes table `t` with columns `id` and `x` by Lance's own writer.
async fn by_lance(lake: &LakeStore, field: Field, x: ArrayRef, version: LanceFileVersion) -> Result<Table, Failure> {
    let (name, uri) = (table_name("t"), format!("{}/t.lance", lake.uri()));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..x.len() as i64));
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), field]));
    let batch = RecordBatch::try_new(schema.clone(), vec![ids, x])?;
    let params = WriteParams { data_storage_version: Some(version), ..WriteParams::default() };
    Dataset::write(RecordBatchIterator::new([Ok(batch)], schema), uri.as_str(), Some(params)).await?;
    Ok(latest(lake, &name).await?)
}

/// Lists of bytes that do not compress.
fn lists(length: i32, is_valid: impl Fn(usize) -> bool) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::UInt8, true));
    let bytes: Vec<u8> = (0..NUM_ROWS).flat_map(|row| media(row).into_iter().take(length as usize)).collect();
    let nulls = NullBuffer::from((0..NUM_ROWS).map(is_valid).collect::<Vec<bool>>());
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    Arc::new(FixedSizeListArray::new(item, length, Arc::new(UInt8Array::from(bytes)), nulls))
}

/// Checks the verdict and the findings about a column that Lance's own writer wrote.
async fn check(
    field: Field,
    x: ArrayRef,
    version: LanceFileVersion,
    verdict: Verdict,
    expected: &[&str],
) -> TestResult {
    let test = test_lake().await;
    let table = by_lance(&test.lake, field, x, version).await?;
    let (found, findings) = about_x(&table).await?;
    assert_eq!((found, codes(&findings)), (verdict, expected.to_vec()), "{:?}", table.schema());
    Ok(())
}

#[tokio::test]
async fn tables_of_stoker_lack_nothing() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1500])]));
    append(&lake, &name, &schema, 0..60, small(25, 5000)).await?;
    assert_eq!(about_x(&latest(&lake, &name).await?).await?, (Verdict::Dense, Vec::new()));
    Ok(())
}

#[tokio::test]
async fn pages_of_other_writers_are_judged_as_they_are_read() -> TestResult {
    let all = |_: usize| true;
    let some_items: UInt8Array = (0..NUM_ROWS as i32 * LENGTH).map(|item| (item != 7).then_some(item as u8)).collect();
    let item = Arc::new(Field::new("item", DataType::UInt8, true));
    let some_items: ArrayRef = Arc::new(FixedSizeListArray::new(item, LENGTH, Arc::new(some_items), None));
    let (v2_0, v2_1, v2_2) = (LanceFileVersion::V2_0, LanceFileVersion::V2_1, LanceFileVersion::V2_2);
    let of_others = ["no_checksums", "shared_file"];
    let cases: [(ArrayRef, LanceFileVersion, Verdict, &[&str]); 7] = [
        (lists(LENGTH, all), v2_2, Verdict::Dense, &of_others),
        (lists(LENGTH, all), v2_1, Verdict::Dense, &of_others),
        (lists(LENGTH, all), v2_0, Verdict::Decoder, &["old_file"]),
        (lists(64, all), v2_2, Verdict::Light, &[]),
        (lists(LENGTH, |row| row != 3), v2_2, Verdict::Decoder, &["nulls"]),
        (lists(LENGTH, |_| false), v2_2, Verdict::Decoder, &["only_nulls"]),
        (some_items, v2_2, Verdict::Decoder, &["null_items"]),
    ];
    for (x, version, verdict, expected) in cases {
        check(Field::new("x", x.data_type().clone(), true), x, version, verdict, expected).await?;
    }
    Ok(())
}

#[tokio::test]
async fn types_without_plain_bytes_are_told_apart() -> TestResult {
    let ragged = ListArray::from_iter_primitive::<UInt8Type, _, _>(
        (0..NUM_ROWS).map(|row| Some(media(row).into_iter().map(Some))),
    );
    let flags = BooleanArray::from((0..NUM_ROWS * 2_000).map(|bit| bit % 3 == 0).collect::<Vec<bool>>());
    let flag = Arc::new(Field::new("item", DataType::Boolean, true));
    let wide = lists(LENGTH, |_| true);
    let member = Arc::new(Field::new("pixels", wide.data_type().clone(), false));
    let fixed = FixedSizeBinaryArray::try_from_iter((0..NUM_ROWS).map(|row| vec![row as u8; 2_000]))?;
    let cases: [(ArrayRef, Verdict, &[&str]); 5] = [
        (Arc::new(ragged), Verdict::Light, &["lists"]),
        (Arc::new(FixedSizeListArray::new(flag, 2_000, Arc::new(flags), None)), Verdict::Decoder, &["elements"]),
        (Arc::new(fixed), Verdict::Decoder, &["fixed_size_binary"]),
        (Arc::new(StructArray::from(vec![(member, wide)])), Verdict::Decoder, &["struct"]),
        (
            Arc::new(LargeBinaryArray::from_iter_values((0..NUM_ROWS).map(media))),
            Verdict::Decoder,
            &["variable_width", "media_compressed", "no_checksums", "shared_file"],
        ),
    ];
    for (x, verdict, expected) in cases {
        check(Field::new("x", x.data_type().clone(), false), x, LanceFileVersion::V2_2, verdict, expected).await?;
    }
    Ok(())
}

#[tokio::test]
async fn metadata_of_the_field_counts() -> TestResult {
    let with = |data_type: DataType, key: &str, value: &str| {
        Field::new("x", data_type, false).with_metadata([(key.to_string(), value.to_string())].into())
    };
    let (wide, narrow) = (lists(LENGTH, |_| true), lists(64, |_| true));
    let images: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values((0..NUM_ROWS).map(media)));
    let of_images = ["variable_width", "media_compressed", "no_checksums", "shared_file"];
    let cases: [(Field, &ArrayRef, &[&str]); 4] = [
        (with(wide.data_type().clone(), "lance-encoding:structural-encoding", "miniblock"), &wide, &["not_row_by_row"]),
        (with(narrow.data_type().clone(), HEAVY_KEY, "true"), &narrow, &["not_row_by_row"]),
        (with(images.data_type().clone(), KIND_KEY, KIND_ENCODED_IMAGE), &images, &of_images),
        (
            with(images.data_type().clone(), "lance-encoding:compression", "none"),
            &images,
            &[of_images[0], of_images[2], of_images[3]],
        ),
    ];
    for (field, x, expected) in cases {
        check(field, x.clone(), LanceFileVersion::V2_2, Verdict::Decoder, expected).await?;
    }
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[image_field("x")]));
    append(&lake, &name, &schema, 0..10, WriteOptions::default()).await?;
    let (verdict, findings) = about_x(&latest(&lake, &name).await?).await?;
    assert_eq!((verdict, codes(&findings)), (Verdict::Decoder, vec!["variable_width"]));
    Ok(())
}

#[tokio::test]
async fn columns_that_came_later_are_null_in_some_fragments() -> TestResult {
    let test = test_lake().await;
    let lake = test.lake;
    let name = table_name("t");
    append(&lake, &name, &schema(&[]), 0..30, small(10, 1000)).await?;
    let x = tensor("x", DataType::UInt8, &[1500]).with_nullable(true);
    let mut dataset = Dataset::open(&latest(&lake, &name).await?.uri()).await?;
    let added = Arc::new(Schema::new(vec![x.clone()]));
    dataset.add_columns(NewColumnTransform::AllNulls(added), None, None).await?;
    append(&lake, &name, &schema(&[x]), 30..40, small(10, 10_000)).await?;
    let (verdict, findings) = about_x(&latest(&lake, &name).await?).await?;
    assert_eq!((verdict, codes(&findings)), (Verdict::Decoder, vec!["missing_values"]));
    assert_eq!(findings[0].what, "no file holds the column (3 of 4 fragments, the first is 0)");
    let mended = example(&findings, "missing_values");
    assert!(mended.contains("coalesce(x, arrow_cast($1, 'FixedSizeList(1500, UInt8)')) AS x"), "{mended}");
    assert!(mended.contains("x IS NOT NULL AS x_valid FROM t"), "{mended}");
    Ok(())
}

#[tokio::test]
async fn compaction_by_lance_drops_checksums() -> TestResult {
    let test = test_lake().await;
    let lake = test.lake;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1500])]));
    append(&lake, &name, &schema, 0..30, small(10, 10_000)).await?;
    let mut dataset = Dataset::open(&latest(&lake, &name).await?.uri()).await?;
    compact_files(&mut dataset, CompactionOptions::default(), None).await?;
    let (verdict, findings) = about_x(&latest(&lake, &name).await?).await?;
    assert_eq!((verdict, codes(&findings)), (Verdict::Dense, vec!["no_checksums", "shared_file"]));
    assert_eq!(findings[0].what, "its rows have no checksums (its one fragment)");
    assert_eq!(findings[1].what, "its data files hold 2 other columns");
    assert_eq!(example(&findings, "no_checksums"), "lake.table(\"t\").compact(rewrite_all=True)");
    let options = CompactOptions { rewrites_all: true, ..CompactOptions::default() };
    lake.compact(&name, &options, &ChangeNote::default(), &|_| {}).await?;
    assert_eq!(about_x(&latest(&lake, &name).await?).await?, (Verdict::Dense, Vec::new()));
    Ok(())
}

#[tokio::test]
async fn deleted_rows_and_small_fragments_are_findings_about_the_table() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1500])]));
    append(&lake, &name, &schema, 0..62, small(2, 10_000)).await?;
    let addresses = |fragments: std::ops::Range<u64>| fragments.map(|fragment| fragment << 32).collect::<Vec<u64>>();
    quarantine(&lake, &name, &addresses(0..6), None).await?;
    assert_eq!(about_x(&latest(&lake, &name).await?).await?, (Verdict::Dense, Vec::new()));
    append(&lake, &name, &schema, 62..64, small(2, 10_000)).await?;
    quarantine(&lake, &name, &addresses(6..16), None).await?;
    let (_, findings) = about_x(&latest(&lake, &name).await?).await?;
    assert_eq!(codes(&findings), ["deleted_rows", "small_fragments"]);
    assert_eq!(findings[0].what, "16 of 64 rows are deleted (25 %)");
    assert!(findings[1].what.starts_with("there are 32 fragments, of 1 rows and "), "{}", findings[1]);
    assert!(findings.iter().all(|finding| finding.to_string().starts_with("table [")));
    assert_eq!(example(&findings, "small_fragments"), "lake.table(\"t\").compact()");
    lake.compact(&name, &CompactOptions::default(), &ChangeNote::default(), &|_| {}).await?;
    assert_eq!(about_x(&latest(&lake, &name).await?).await?, (Verdict::Dense, Vec::new()));
    Ok(())
}

#[tokio::test]
async fn names_are_quoted_where_sql_needs_it() -> TestResult {
    let test = test_lake().await;
    for (table, column, quoted) in [
        (
            "Photos-1",
            "Image",
            r#"(arrow_cast(\"Image\", 'FixedSizeList(LENGTH, UInt8)') AS \"Image\") FROM \"Photos-1\""#,
        ),
        ("t", "order", r#"(arrow_cast(\"order\", 'FixedSizeList(LENGTH, UInt8)') AS \"order\") FROM t"#),
        ("t2", "x_1", "(arrow_cast(x_1, 'FixedSizeList(LENGTH, UInt8)') AS x_1) FROM t2"),
    ] {
        let ragged = ListArray::from_iter_primitive::<UInt8Type, _, _>([Some(media(1).into_iter().map(Some))]);
        let schema = Arc::new(Schema::new(vec![Field::new(column, ragged.data_type().clone(), false)]));
        let mut writer = test.lake.writer(&table_name(table), &schema, false, WriteOptions::default()).await?;
        writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(ragged)])?).await?;
        let drafts = writer.finish().await?;
        test.lake.commit(&table_name(table), &schema, CommitMode::Create, drafts, None).await?;
        let findings = doctor(&latest(&test.lake, &table_name(table)).await?).await?.findings;
        let mended = example(&findings, "lists");
        assert!(mended.contains(quoted), "{mended}");
    }
    Ok(())
}

#[tokio::test]
async fn updated_fragments_lack_nothing() -> TestResult {
    let lake = memory_lake().await;
    let (name, x) = (table_name("t"), tensor("x", DataType::UInt8, &[1500]));
    append(&lake, &name, &schema(std::slice::from_ref(&x)), 0..60, small(25, 5000)).await?;
    let table = latest(&lake, &name).await?;
    let before = describe(&table).await?;
    // Half of the rows of the first fragment get other values, and another one is deleted.
    let addrs: Vec<u64> = (0..25).step_by(2).collect();
    let DataType::FixedSizeList(item, length) = x.data_type() else { return Err("a tensor is a list".into()) };
    let items: ArrayRef = Arc::new(UInt8Array::from(vec![7; addrs.len() * 1500]));
    let lists: ArrayRef = Arc::new(FixedSizeListArray::new(item.clone(), *length, items, None));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..).take(addrs.len())));
    let mut change = lake.change(&table, small(25, 5000)).await?;
    change.update(&addrs, &RecordBatch::try_from_iter([("x", lists), ("id", ids)])?)?;
    change.delete(&[1]);
    change.commit(None, &ChangeNote::default()).await?;
    let table = latest(&lake, &name).await?;
    assert_eq!(about_x(&table).await?, (Verdict::Dense, Vec::new()));
    assert_eq!(describe(&table).await?.len(), before.len());
    Ok(())
}
