//! Columns of files: names, types and media.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use arrow_schema::DataType;
use stoker_columns::is_encoded_image;

use super::World;
use super::files::{ingest, put_ids, skip};
use super::files_format::formats;
use crate::files::inspect_with;
use crate::{ColumnCast, Error, FilesOptions, Mode, OnError, RenamedColumn};

fn renamed(renames: &[&str]) -> FilesOptions {
    let rename = renames.iter().map(|text| text.parse::<RenamedColumn>().unwrap()).collect();
    FilesOptions { rename, ..FilesOptions::default() }
}

fn cast(casts: &[&str]) -> FilesOptions {
    let cast = casts.iter().map(|text| text.parse::<ColumnCast>().unwrap()).collect();
    FilesOptions { cast, ..FilesOptions::default() }
}

async fn names(world: &World) -> Vec<String> {
    let schema = world.rows().await.schema();
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

/// Writes a file with one row and these columns.
fn put_columns(world: &World, header: &str) {
    let row = header.split(',').map(|_| "1").collect::<Vec<_>>().join(",");
    world.put("a.rows", format!("{header}\n{row}\n").as_bytes());
}

#[tokio::test]
async fn dots_become_underscores_unless_a_column_is_renamed() {
    let header = "observation.state:int,a.b.c:int,plain:int";
    let cases: [(&[&str], [&str; 3]); 2] = [
        (&[], ["observation_state", "a_b_c", "plain"]),
        (&["a.b.c=abc", "plain=_plain"], ["observation_state", "abc", "_plain"]),
    ];
    for (renames, expected) in cases {
        let world = World::new().await;
        put_columns(&world, header);
        ingest(&world, &renamed(renames)).await.unwrap();
        assert_eq!(names(&world).await, expected);
    }
}

#[tokio::test]
async fn names_that_tables_cannot_have_are_refused_with_advice() {
    let cases: [(&str, &[&str], &str); 6] = [
        (
            "a.b:int,a_b:int",
            &[],
            "a.b and a_b would both be named a_b; give the column another name, as in --rename a_b=",
        ),
        ("_score:int", &[], "the name _score is reserved"),
        ("_rowid:int", &[], "as in --rename _rowid=NAME"),
        ("id:int", &["id=_rowaddr"], "the name _rowaddr is reserved"),
        ("id:int", &["id=a.b"], "has no dots in its name, as a.b has"),
        ("id:int", &["nope=b"], "there is no column nope; columns: id"),
    ];
    for (header, renames, said) in cases {
        let world = World::new().await;
        put_columns(&world, header);
        let error = ingest(&world, &renamed(renames)).await.unwrap_err();
        assert!(matches!(error, Error::InvalidOption { .. }) && error.to_string().contains(said), "{error}");
        assert!(!world.exists().await);
    }
    let world = World::new().await;
    put_columns(&world, "_score:int");
    ingest(&world, &renamed(&["_score=score"])).await.unwrap();
    assert_eq!(names(&world).await, ["score"]);
}

#[tokio::test]
async fn columns_are_selected_dropped_and_cast() {
    let world = World::new().await;
    world.put("a.rows", b"id:int,text:str,raw:bin,more:int\n1,7,abcdabcd,1\n2,8,efghefgh,1\n");
    let options = FilesOptions {
        columns: ["raw", "text", "id"].map(String::from).to_vec(),
        drop: vec!["id".into()],
        ..cast(&["text=int32", "raw=float32[2]"])
    };
    ingest(&world, &options).await.unwrap();
    assert_eq!(names(&world).await, ["text", "raw"], "in the order of the files");
    let rows = world.rows().await;
    assert_eq!(rows["text"].as_primitive::<Int32Type>().values(), &[7, 8]);
    let vector = rows["raw"].as_fixed_size_list().value(1);
    assert_eq!(vector.as_primitive::<Float32Type>().value(0), f32::from_le_bytes(*b"efgh"));
    for (wrong, said) in [
        ("a", "should be COLUMN=TYPE"),
        ("=int8", "should be COLUMN=TYPE"),
        ("a=int7", "the type should be one of bool"),
        ("a=int8[0]", "positive numbers"),
    ] {
        let error = wrong.parse::<ColumnCast>().unwrap_err();
        assert!(error.to_string().contains(said), "{wrong}: {error}");
    }
    let twice = FilesOptions { drop: vec!["id".into(), "id".into()], ..FilesOptions::default() };
    assert!(ingest(&world, &twice).await.unwrap_err().to_string().contains("column id is named twice"));
}

#[tokio::test]
async fn values_that_cannot_be_cast_are_bad_rows() {
    let world = World::new().await;
    world.put("a.rows", b"id:int,text:str\n?,0\n1,7\n2,many\n3,999\n,9\n");
    let cases: [(&[&str], &[u64], u64); 3] =
        [(&["text=int16"], &[0, 2], 3), (&["text=int8"], &[0, 2, 3], 2), (&["id=int8", "text=uint8"], &[0, 2, 3], 2)];
    for (casts, bad, kept) in cases {
        let overwrite = FilesOptions { mode: Mode::Overwrite, ..cast(casts) };
        let error = ingest(&world, &overwrite).await.unwrap_err();
        assert!(matches!(error, Error::Row { row: 0, .. }), "{error}");
        let report = ingest(&world, &FilesOptions { on_error: OnError::Skip, ..overwrite }).await.unwrap();
        let rows: Vec<u64> = report.skipped.iter().filter_map(|skipped| skipped.row).collect();
        assert_eq!((rows.as_slice(), report.rows), (bad, kept));
        assert!(report.skipped[1].reason.starts_with("column text: expected"), "{}", report.skipped[1].reason);
    }
}

#[tokio::test]
async fn images_and_videos_are_marked_and_checked() {
    let world = World::new().await;
    world.put("a.rows", b"id:int,a.photo:bin\n0,abc\n1,\n2,RIFF1234WEBP\n");
    let images = FilesOptions { images: vec!["a.photo".into()], ..skip() };
    let report = ingest(&world, &images).await.unwrap();
    assert_eq!((report.rows, report.skipped.len()), (2, 1));
    let said = report.skipped[0].to_string();
    assert!(
        said.ends_with(
            "row 0: column a.photo: expected a JPEG, PNG or WebP file, found 3 bytes that begin with \"abc\""
        ),
        "{said}"
    );
    assert!(is_encoded_image(world.rows().await.schema().field_with_name("a_photo").unwrap()));

    let world = World::new().await;
    world.put("a.rows", b"id:int,clip.mp4:bin\n0,\n1,abc\n2,\n");
    let videos = FilesOptions { videos: vec!["clip.mp4".into()], ..skip() };
    let report = ingest(&world, &videos).await.unwrap();
    assert_eq!((report.rows, report.skipped[0].row), (2, Some(1)));
    assert_eq!(names(&world).await, ["id", "clip_mp4", "clip_mp4_index"]);

    for (options, said) in [
        (FilesOptions { images: vec!["id".into()], ..skip() }, "--image is not valid: column id: expected binary"),
        (FilesOptions { audio: vec!["id".into()], ..skip() }, "--audio is not valid: column id: expected binary"),
        (
            FilesOptions { images: vec!["id".into()], videos: vec!["id".into()], ..skip() },
            "--video is not valid: column id is declared by --image too",
        ),
    ] {
        let error = ingest(&world, &options).await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test]
async fn an_inspection_tells_what_would_be_written() {
    let world = World::new().await;
    world.put("a.rows", b"id:int,x.y:bin\n?,\n0,abcdefgh\n");
    put_ids(&world, "notes.md", 0..1);
    let options = FilesOptions { videos: vec!["x.y".into()], ..FilesOptions::default() };
    let found = inspect_with(&[world.source()], &options, formats()).await.unwrap();
    assert_eq!((found.kind.as_str(), found.files, found.rows.num_rows()), ("lines", 1, 0));
    let names: Vec<_> = found.schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["id", "x_y", "x_y_index"]);
    assert_eq!(found.skipped.iter().filter_map(|skipped| skipped.row).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(found.left_out.get(".md"), Some(&1));

    // Rows that the columns refuse stand between those that the format refuses.
    world.put("a.rows", b"id:int,x.y:bin\n0,abc\n?,\n2,abc\n");
    let found = inspect_with(&[world.source()], &options, formats()).await.unwrap();
    assert_eq!(found.skipped.iter().filter_map(|skipped| skipped.row).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(found.skipped[1].reason.ends_with("is odd"), "{:?}", found.skipped);

    world.put("a.rows", b"id:int\n1\n2\n");
    world.put("b.rows", b"id:int\n");
    put_ids(&world, "c.rows", 0..0);
    let found = inspect_with(&[world.source()], &FilesOptions::default(), formats()).await;
    assert!(matches!(found, Err(Error::Column { .. })), "{found:?}");
    std::fs::remove_file(world.source().join("c.rows")).unwrap();
    let found = inspect_with(&[world.source()], &FilesOptions::default(), formats()).await.unwrap();
    assert_eq!((found.rows.num_rows(), found.files), (2, 2));
    assert_eq!(*found.rows.schema().field(0).data_type(), DataType::Int64);
    assert!(found.table_bytes >= 16, "{} bytes", found.table_bytes);
    assert!(!world.exists().await && !world.root.path().join("lake/data.lance").exists());
}
