//! Tests of ingests that compress columns.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Int64Array, RecordBatch};
use stoker_columns::{CompressedTensor, kind_of};
use stoker_types::SnapshotRef;

use super::{StopAfter, World};
use crate::{
    CompressedColumn, Error, FileSizes, ImageFolderOptions, Mode, NoProgress, ParquetOptions, ingest_imagefolder,
    ingest_parquet,
};

fn compressed(text: &str) -> Vec<CompressedColumn> {
    vec![text.parse().expect("a column and a codec")]
}

/// Returns the tensors of the column `image`, decoded if they are compressed.
fn images(rows: &RecordBatch) -> ArrayRef {
    let schema = rows.schema();
    let (field, column) =
        (schema.field_with_name("image").expect("a column"), rows.column_by_name("image").expect("it"));
    match CompressedTensor::try_of(field).expect("metadata") {
        Some(tensor) => tensor.decompress(column).expect("frames"),
        None => column.clone(),
    }
}

#[tokio::test]
async fn compressed_images_are_those_that_are_not_compressed() {
    let (plain, world) = (World::new().await, World::new().await);
    for world in [&plain, &world] {
        world.put_images();
    }
    plain.ingest(&ImageFolderOptions::default()).await.expect("an ingest");
    let options = ImageFolderOptions { compress: compressed("image=pco:4"), ..ImageFolderOptions::default() };
    world.ingest(&options).await.expect("an ingest");
    let (expected, found) = (plain.rows().await, world.rows().await);
    let schema = found.schema();
    assert_eq!(kind_of(schema.field(0)).label(schema.field(0)), "tensor uint8[3, 4, 6] (pco)");
    let bytes = |array: ArrayRef| array.to_data().child_data()[0].buffers()[0].to_vec();
    assert_eq!(bytes(images(&found)), bytes(images(&expected)));
    assert_eq!(found.column_by_name("path"), expected.column_by_name("path"));

    // The table decides how rows that are appended are stored, whatever the ingest asks for.
    for compress in [Vec::new(), compressed("image=zstd")] {
        world.put(&format!("c/{}.png", compress.len() + 8), &super::png(4, 6, 77));
        let options = ImageFolderOptions { mode: Mode::Append, compress, ..ImageFolderOptions::default() };
        assert_eq!(world.ingest(&options).await.expect("an append").rows, 1);
    }
    assert_eq!(images(&world.rows().await).len(), 8);
    plain.put("c/8.png", &super::png(4, 6, 77));
    let options = ImageFolderOptions { mode: Mode::Append, compress: compressed("image=zstd"), ..options };
    plain.ingest(&options).await.expect("an append");
    assert_eq!(kind_of(plain.rows().await.schema().field(0)).name(), "tensor");
}

/// The compressed column of the newest version of the table.
async fn compressed_column(world: &World, name: &str) -> CompressedTensor {
    let table = world.lake.table(&world.table, &SnapshotRef::Latest).await.expect("a table");
    let schema = table.schema();
    CompressedTensor::try_of(schema.field_with_name(name).expect("a column")).expect("metadata").expect("tensors")
}

#[tokio::test]
async fn small_images_share_a_dictionary_in_all_units() {
    let world = World::new().await;
    for row in 0..300u16 {
        world.put(&format!("{}/{row}.png", ["a", "b", "c"][usize::from(row) % 3]), &super::png(12, 12, row as u8));
    }
    let options = ImageFolderOptions { compress: compressed("image=zstd"), unit_bytes: 1_000, ..Default::default() };
    let stopped = ingest_imagefolder(&world.lake, &world.source(), &world.table, &options, &StopAfter::new(3)).await;
    assert!(matches!(stopped, Err(Error::Stopped { .. })));
    let report = world.ingest(&options).await.expect("an ingest");
    assert!(report.rows == 300 && report.resumed_units > 0, "{report:?}");
    let column = compressed_column(&world, "image").await;
    assert!(column.dictionary.is_some());
    let plain = World::new().await;
    for row in 0..300u16 {
        plain.put(&format!("{}/{row}.png", ["a", "b", "c"][usize::from(row) % 3]), &super::png(12, 12, row as u8));
    }
    plain.ingest(&ImageFolderOptions::default()).await.expect("an ingest");
    let bytes = |array: ArrayRef| array.to_data().child_data()[0].buffers()[0].to_vec();
    assert_eq!(bytes(images(&world.rows().await)), bytes(images(&plain.rows().await)));
    // Rows that are appended use it.
    world.put("c/more.png", &super::png(12, 12, 77));
    let options = ImageFolderOptions { mode: Mode::Append, compress: Vec::new(), ..options };
    assert_eq!(world.ingest(&options).await.expect("an append").rows, 1);
    assert_eq!(compressed_column(&world, "image").await, column);
}

#[tokio::test]
async fn few_and_large_images_have_no_dictionary() {
    for (size, num_images) in [(12, 100), (64, 130)] {
        let world = World::new().await;
        for row in 0..num_images {
            world.put(&format!("a/{row}.png"), &super::png(size, size, row as u8));
        }
        let options = ImageFolderOptions { compress: compressed("image=zstd"), ..Default::default() };
        world.ingest(&options).await.expect("an ingest");
        assert_eq!(compressed_column(&world, "image").await.dictionary, None);
    }
}

/// Returns vectors of 96 numbers: twelve of forty patterns of eight numbers.
fn patterns(num_rows: usize) -> FixedSizeListArray {
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let patterns: Vec<Vec<f32>> = (0..40).map(|_| (0..8).map(|_| random() as f32 * 1e-4).collect()).collect();
    let values: Vec<f32> = (0..12 * num_rows).flat_map(|_| patterns[random() as usize % 40].clone()).collect();
    let rows = values.chunks(96).map(|row| Some(row.iter().copied().map(Some).collect::<Vec<_>>()));
    FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, 96)
}

#[tokio::test]
async fn small_vectors_of_parquet_files_share_a_dictionary() {
    let world = World::new().await;
    let vectors = patterns(400);
    let (ids, emb): (ArrayRef, ArrayRef) = (Arc::new(Int64Array::from_iter_values(0..400)), Arc::new(vectors.clone()));
    super::parquet::put(&world, "1.parquet", vec![("id", ids), ("emb", emb)]);
    let options = ParquetOptions {
        compress: compressed("emb=byte_stream_split"),
        vectors: vec!["emb=96".parse().expect("a vector")],
        unit_bytes: 1_000,
        ..ParquetOptions::default()
    };
    let files = [world.source()];
    let stop = StopAfter::new(100);
    ingest_parquet(&world.lake, &files, &world.table, &options, &stop).await.expect_err("stopped");
    let report = ingest_parquet(&world.lake, &files, &world.table, &options, &NoProgress).await.expect("an ingest");
    assert!(report.rows == 400 && report.resumed_units > 0, "{report:?}");
    let column = compressed_column(&world, "emb").await;
    assert!(column.dictionary.is_some());
    let rows = world.rows().await;
    let found = column.decompress(rows.column_by_name("emb").expect("a column")).expect("tensors");
    assert_eq!(
        found.as_fixed_size_list().values().as_primitive::<Float32Type>().values(),
        vectors.values().as_primitive::<Float32Type>().values()
    );
}

#[tokio::test]
async fn wrong_declarations_are_named() {
    let world = World::new().await;
    world.put_images();
    for (text, part) in [
        ("nope=zstd", "there is no column nope; columns: image, label"),
        ("label=pco", "it compresses tensors and vectors"),
        ("image=zstd:9", "column image is named twice"),
    ] {
        let compress = [compressed("image=lz4"), compressed(text)].concat();
        let error = world.ingest(&ImageFolderOptions { compress, ..Default::default() }).await.expect_err(part);
        assert!(error.to_string().contains(part) && error.to_string().contains("--compress"), "{error}");
    }
    for text in ["image", "=zstd", "image=gzip", "image=pco:13"] {
        let error = text.parse::<CompressedColumn>().expect_err(text).to_string();
        assert!(error.contains("--compress"), "{error}");
    }
    assert!(!world.exists().await);
}

#[tokio::test]
async fn sizes_of_files_are_options() {
    let world = World::new().await;
    world.put_images();
    let sizes = FileSizes { rows_per_fragment_max: Some(2), page_bytes: Some(1) };
    world.ingest(&ImageFolderOptions { sizes, ..Default::default() }).await.expect("an ingest");
    let table = world.lake.table(&world.table, &SnapshotRef::Latest).await.expect("a table");
    assert_eq!(table.fragments().len(), 3);
}
