//! Tests of the entry in a file's metadata.

use std::collections::HashMap;

use lance_file::reader::BufferDescriptor;

use crate::{CHECKSUMS_KEY, Described, Misfit, checksums_entry, checksums_offset};

/// The entry of a file with the checksums of one column.
fn entry_of(file: &str, column: &str, buffer: u32) -> String {
    checksums_entry(file, &[(column, buffer)].into())
}

#[test]
fn entries_that_cannot_be_used_say_why() {
    let buffers = [BufferDescriptor { position: 0, size: 10 }, BufferDescriptor { position: 64, size: 40 }];
    let find = |metadata: &HashMap<String, String>, column, num_rows| {
        checksums_offset(&Described {
            metadata,
            buffers: &buffers,
            file: "a.lance",
            column,
            has_sectors: false,
            num_rows,
        })
    };
    let metadata = |entry: &str| HashMap::from([(CHECKSUMS_KEY.to_string(), entry.to_string())]);
    let offset = |entry: &str, num_rows| find(&metadata(entry), Some("x"), num_rows);
    let entry = r#"{"version":2,"hash":"xxh3_64_low32","file":"a.lance","buffers":{"x":1}}"#;
    assert_eq!(entry_of("a.lance", "x", 1), entry);
    assert_eq!(offset(entry, 10), Ok(Some(64)));
    let first = r#"{"version":1,"hash":"xxh3_64_low32","buffers":{"x":1}}"#;
    assert_eq!(offset(first, 10), Ok(Some(64)), "the first version");
    assert_eq!(find(&HashMap::new(), Some("x"), 10), Ok(None), "another writer");
    assert_eq!(find(&HashMap::new(), None, 10), Ok(None), "another writer");
    for (found, what) in [
        (offset(&entry_of("b.lance", "x", 1), 10), "written under another name: b.lance"),
        (offset(&entry_of("a.lance", "y", 1), 10), "the file of column y"),
        (find(&metadata(entry), None, 10), "the file of column x"),
        (find(&metadata(first), Some("y"), 10), "the file of column x"),
    ] {
        assert!(matches!(&found, Err(Misfit::OtherFile(reason)) if reason.contains(what)), "{found:?}");
    }
    let (schema, missing) = (entry_of("a.lance", "x", 0), entry_of("a.lance", "x", 2));
    for (entry, num_rows, reason) in [
        (entry, 11, "buffer 1 has 40 bytes for 11 rows"),
        (entry, u64::MAX, "buffer 1 has 40 bytes"),
        (schema.as_str(), 10, "buffer 0 does not exist"),
        (missing.as_str(), 10, "buffer 2 does not exist"),
        (r#"{"version":2,"hash":"xxh3_64_low32","buffers":{"x":1}}"#, 10, "lacks the name"),
        (r#"{"version":3,"hash":"xxh3_64_low32","file":"a.lance","buffers":{"x":1}}"#, 10, "version 3"),
        (r#"{"version":1,"hash":"crc32c","buffers":{"x":1}}"#, 10, "\"crc32c\" is unknown"),
        (r#"{"version":1,"hash":"xxh3_64_low32","buffers":{"x":-1}}"#, 10, "cannot be read"),
        (r#"{"version":1}"#, 10, "cannot be read"),
        ("", 10, "cannot be read"),
    ] {
        let found = offset(entry, num_rows);
        assert!(matches!(&found, Err(Misfit::Unusable(said)) if said.contains(reason)), "{entry}: {found:?}");
    }
}
