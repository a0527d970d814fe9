//! Tests of columns of videos with indexes.

use super::*;
use crate::encoded_video::{declared, with_video_index};

fn video(name: &str) -> Field {
    with_video_index(&Field::new(name, DataType::LargeBinary, true))
}

fn schema(fields: Vec<Field>) -> Arc<Schema> {
    Arc::new(Schema::new(fields))
}

fn file() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../stoker-video/tests/fixtures/h264.mp4");
    std::fs::read(path).expect("a file")
}

#[test]
fn columns_of_videos_get_columns_of_indexes() {
    let plain = schema(vec![Field::new("id", DataType::Int64, false)]);
    assert_eq!(with_index_columns(&plain), Ok(plain.clone()));
    let two = with_index_columns(&schema(vec![video("a"), Field::new("id", DataType::Int64, false), video("b")]));
    let two = two.expect("a schema");
    let names: Vec<&str> = two.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["a", "id", "b", "a_index", "b_index"]);
    assert_eq!(index_columns(&two).collect::<Vec<_>>(), [("a_index", "a"), ("b_index", "b")]);
    assert_eq!(with_index_columns(&two), Ok(two.clone()), "they are there");
    let (a, index) = (two.field(0), two.field(3));
    assert_eq!((kind_of(a).label(a), is_heavy(a)), ("encoded video, frames in a_index".into(), true));
    assert_eq!((kind_of(index).label(index), is_heavy(index)), ("frames of the videos in a".into(), false));
    assert_eq!(kind_of(a).storage(a).compression, Some("none"));
}

#[test]
fn copies_of_a_column_of_videos_have_indexes_of_their_own() {
    let copies = schema(vec![video("a").with_name("x"), video("a").with_name("y")]);
    let copies = with_index_columns(&copies).expect("a schema");
    assert_eq!(index_columns(&copies).collect::<Vec<_>>(), [("a_index", "x"), ("y_index", "y")]);
    let taken = schema(vec![video("a"), Field::new("a_index", DataType::Int64, false)]);
    assert!(with_index_columns(&taken).unwrap_err().contains("another column of this name"));
    let text = with_video_index(&Field::new("a", DataType::Utf8, true));
    assert!(with_index_columns(&schema(vec![text])).unwrap_err().contains("LargeBinary"));
}

#[test]
fn indexes_are_computed_and_files_without_one_are_refused() {
    let file = file();
    let files = |values: Vec<Option<&[u8]>>| -> ArrayRef { Arc::new(LargeBinaryArray::from(values)) };
    let batch = |values| RecordBatch::try_new(schema(vec![video("a")]), vec![files(values)]).expect("a batch");
    let indexes = video_indexes(&batch(vec![Some(file.as_slice()), None]), "a").expect("indexes");
    assert_eq!((indexes.len(), indexes.is_null(0), indexes.is_null(1)), (2, false, true));
    let wrong = video_indexes(&batch(vec![None, Some(b"text".as_slice())]), "a").unwrap_err();
    assert_eq!(wrong.row, Some(1));
    assert!(wrong.to_string().contains("it is no MP4"), "{wrong}");
    let ingest = declared(&Field::new("a", DataType::Binary, true));
    assert_eq!(video_index_of(&ingest.field), Some("a_index"));
    assert!(ingest.conversion.convert(&ingest.field, &files(vec![Some(file.as_slice()), None])).is_ok());
    let wrong =
        ingest.conversion.convert(&ingest.field, &files(vec![None, None, Some(b"text".as_slice())])).unwrap_err();
    assert_eq!(wrong.row, Some(2));
}
