//! Media that rows name by paths.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use stoker_columns::is_encoded_image;

use super::super::JsonLines;
use crate::read_files::{MemoryFolder, read};
use crate::{FileFormat as _, Folder as _, FolderFile, FormatOptions, LocalFolder};

const JPEG: &[u8] = b"\xff\xd8\xff\xe0 a picture";

fn images(names: &[&str]) -> FormatOptions {
    FormatOptions { images: names.iter().map(|name| (*name).to_string()).collect(), ..FormatOptions::default() }
}

#[test]
fn paths_become_bytes() {
    let lines = concat!(
        "{\"image\": \"one.jpg\", \"sound\": \"top.wav\"}\n",
        "{\"image\": \"./deeper//two.jpg\", \"sound\": null}\n",
        "{\"image\": null}\n"
    );
    let files: [(&'static str, Vec<u8>); 4] = [
        ("train/rows.jsonl", lines.into()),
        ("train/one.jpg", JPEG.into()),
        ("train/deeper/two.jpg", b"\xff\xd8\xff".into()),
        ("top.wav", b"RIFF".into()),
    ];
    let options = FormatOptions { audio: vec!["sound".into()], ..images(&["image"]) };
    let read = read(&JsonLines, &MemoryFolder::new(files), &options).unwrap();
    assert_eq!(read.reasons(), Vec::<String>::new());
    let images: Vec<Option<&[u8]>> = read.rows.column(0).as_binary::<i64>().iter().collect();
    assert_eq!(images, [Some(JPEG), Some(b"\xff\xd8\xff"), None]);
    assert!(is_encoded_image(read.rows.schema_ref().field(0)));
    let sounds: Vec<Option<&[u8]>> = read.rows.column(1).as_binary::<i64>().iter().collect();
    assert_eq!(sounds, [Some(b"RIFF".as_slice()), None, None]);
    assert_eq!(read.source_bytes, (lines.len() + JPEG.len() + 3 + 4) as u64);
}

#[test]
fn paths_that_name_no_file_are_bad_rows() {
    let paths =
        ["/etc/passwd", "../one.jpg", "a/../../one.jpg", "gone.jpg", "https://x/y.jpg", "C:\\x.jpg", "", "no.jpg"];
    let lines: Vec<String> = paths.iter().map(|path| serde_json::json!({ "image": path }).to_string()).collect();
    let lines = format!("{{\"image\": \"one.jpg\"}}\n{}\n", lines.join("\n"));
    let files: [(&'static str, Vec<u8>); 3] =
        [("rows.jsonl", lines.into()), ("one.jpg", JPEG.into()), ("no.jpg", b"no image".into())];
    let read = read(&JsonLines, &MemoryFolder::new(files), &images(&["image"])).unwrap();
    let absolute = "is an absolute path; paths should be relative to the folder";
    let expected = [
        format!("1: column image: \"/etc/passwd\" {absolute}"),
        "2: column image: \"../one.jpg\" has .., and could leave the folder".into(),
        "3: column image: \"a/../../one.jpg\" has .., and could leave the folder".into(),
        "4: column image: the folder has no file \"gone.jpg\"".into(),
        format!("5: column image: \"https://x/y.jpg\" {absolute}"),
        format!("6: column image: \"C:\\\\x.jpg\" {absolute}"),
        "7: column image: the folder has no file \"\"".into(),
        "8: column image: expected a JPEG, PNG or WebP file, found 8 bytes that begin with \"no image\"".into(),
    ];
    assert_eq!(read.reasons(), expected);
    assert_eq!(read.rows.num_rows(), 1);
}

#[test]
fn links_do_not_lead_out_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let secret = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    std::fs::write(secret.path().join("key.jpg"), JPEG).unwrap();
    write("rows.jsonl", b"{\"image\": \"in.jpg\"}\n{\"image\": \"out.jpg\"}\n{\"image\": \"changed.jpg\"}\n");
    write("real.jpg", JPEG);
    write("changed.jpg", b"longer than listed");
    std::os::unix::fs::symlink("real.jpg", folder.path().join("in.jpg")).unwrap();
    std::os::unix::fs::symlink(secret.path().join("key.jpg"), folder.path().join("out.jpg")).unwrap();
    let listed = |(name, bytes): (&str, usize)| FolderFile { name: name.into(), bytes: bytes as u64 };
    let names = [("rows.jsonl", 66), ("real.jpg", JPEG.len()), ("in.jpg", JPEG.len()), ("out.jpg", JPEG.len())];
    let files = names.into_iter().chain([("changed.jpg", 3)]).map(listed).collect();
    let folder = std::sync::Arc::new(LocalFolder::new(folder.path(), files));
    assert!(folder.open("out.jpg").is_ok(), "files with rows may be links");
    let files = JsonLines.plan(folder, vec!["rows.jsonl".into()], &images(&["image"])).unwrap();
    let read = files.read(0).unwrap().next(1 << 20).unwrap().unwrap();
    assert_eq!(read.batch.num_rows(), 1);
    let reasons: Vec<&str> = read.bad.iter().map(|bad| bad.reason.as_str()).collect();
    let changed = "the file was changed: it has 18 bytes, and had 3 when it was listed";
    assert_eq!(
        reasons,
        [
            "column image: \"out.jpg\": the file is a link out of the folder",
            &format!("column image: \"changed.jpg\": {changed}"),
        ]
    );
    assert_eq!(read.batch.column(0).len(), 1);
}

#[test]
fn snapshots_of_the_hub_link_to_blobs() {
    let cache = tempfile::tempdir().unwrap();
    let root = cache.path().join("snapshots/abc");
    std::fs::create_dir_all(root.join("train")).unwrap();
    std::fs::create_dir_all(cache.path().join("blobs")).unwrap();
    std::fs::write(cache.path().join("blobs/1f"), JPEG).unwrap();
    std::os::unix::fs::symlink("../../blobs/1f", root.join("a.jpg")).unwrap();
    std::os::unix::fs::symlink("../../../blobs/1f", root.join("train/a.jpg")).unwrap();
    for folder in [root.clone(), root.join("train")] {
        let folder = LocalFolder::new(&folder, vec![FolderFile { name: "a.jpg".into(), bytes: JPEG.len() as u64 }]);
        assert_eq!(folder.open_inside("a.jpg").unwrap().size(), JPEG.len() as u64);
    }
}

#[test]
fn options_name_columns_of_text() {
    let folder = MemoryFolder::new([("a.jsonl", "{\"number\": 1, \"path\": \"x\"}\n")]);
    let error = |names: &[&str]| read(&JsonLines, &folder, &images(names)).unwrap_err().to_string();
    assert_eq!(error(&["other"]), "option --image: there is no column other; columns: number, path");
    assert_eq!(error(&["path", "path"]), "option --image: column path is declared twice");
    let expected = "option --image, --video or --audio: column number should have paths of files, and has Int64";
    assert_eq!(error(&["number"]), expected);
}

#[test]
fn batches_are_limited_by_the_sizes_of_files() {
    let lines = "{\"image\": \"one.jpg\"}\n".repeat(10);
    let mut image = JPEG.to_vec();
    image.resize(10_000, 0);
    let files: [(&'static str, Vec<u8>); 2] = [("rows.jsonl", lines.into()), ("one.jpg", image)];
    let folder = MemoryFolder::new(files);
    let files = crate::read_files::plan(&JsonLines, &folder, &images(&["image"])).unwrap();
    let first = files.read(0).unwrap().next(25_000).unwrap().unwrap();
    assert_eq!(first.batch.num_rows(), 3);
}
