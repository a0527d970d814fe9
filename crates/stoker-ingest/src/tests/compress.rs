//! Tests of ingests that compress columns.

use arrow_array::{Array, ArrayRef, RecordBatch};
use stoker_columns::{CompressedTensor, kind_of};
use stoker_types::SnapshotRef;

use super::World;
use crate::{CompressedColumn, FileSizes, ImageFolderOptions, Mode};

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
