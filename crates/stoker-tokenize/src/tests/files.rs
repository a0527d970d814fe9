//! Files that are read, and those that hold no tokenizer.

use std::fs::File;
use std::path::PathBuf;

use stoker_types::ErrorKind;

use super::WORDS;
use crate::{Error, FILE_BYTES_MAX, TextTokenizer, TokenOptions, read_file};

/// A folder that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stoker-tokenize-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_and_folders_are_read() {
    let folder = Folder::new("read");
    let file = folder.0.join("tokenizer.json");
    std::fs::write(&file, WORDS).unwrap();
    assert_eq!(read_file(&file).unwrap(), WORDS);
    assert_eq!(read_file(&folder.0).unwrap(), WORDS);
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = Folder::new("unread");
    let check = |name: &str, kind, expected: &str| {
        let error = read_file(&folder.0.join(name)).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(name) && error.to_string().contains(expected), "{error}");
    };
    check("nothing.json", ErrorKind::NotFound, "reading the tokenizer");
    std::fs::write(folder.0.join("image.json"), [0xff, 0xd8, 0xff]).unwrap();
    check("image.json", ErrorKind::InvalidRequest, "it is no text");
    // A file without blocks takes no space.
    File::create(folder.0.join("huge.json")).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
    check("huge.json", ErrorKind::InvalidRequest, "268435457 bytes, more than the limit of 268435456");
}

#[test]
fn texts_that_are_no_tokenizer_are_named() {
    let texts = ["", "{}", "[1]", "{\"model\": {\"type\": \"BPE\"}}", "null", &WORDS[..WORDS.len() / 2]];
    let unknown = WORDS.replace("WordLevel", "Nothing");
    for text in texts.into_iter().chain([unknown.as_str()]) {
        let error = TextTokenizer::try_new("a/t.json", text.to_string(), TokenOptions::default()).unwrap_err();
        assert!(matches!(&error, Error::NotATokenizer { file, .. } if file == "a/t.json"), "{error}");
        assert!(error.to_string().starts_with("a/t.json is no tokenizer.json of the library tokenizers: "), "{error}");
    }
}
