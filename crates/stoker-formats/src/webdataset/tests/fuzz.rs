//! Changed archives give rows or an error; they never panic, hang, or take much memory.

use stoker_fuzz::Target;

use super::*;
use crate::webdataset::npy_header::tests::{npy_file, npy_text};

/// The limit of samples in these tests.
const SAMPLE_BYTES_MAX: usize = 1 << 20;

/// The most bytes that reading a compressed archive of some KiB holds: these tests collect all rows.
const MEMORY_BYTES_MAX: usize = 64 << 20;

fn seeds() -> Vec<Vec<u8>> {
    let long = format!("{}/a.jpg", "n".repeat(150));
    let npy = npy_file(&npy_text("<u2", "(2,)"), &[0; 4]);
    let mut pax = block(b"x", EntryType::XHeader, 14, b"14 path=c.jpg\n");
    pax.extend(archive(&[("b.jpg", JPEG)]));
    vec![
        archive(&[("a.jpg", JPEG), ("a.cls", b"1"), ("b.jpg", PNG), ("b.json", b"[1]")]),
        archive(&[(&long, JPEG), ("b.txt", b"x")]),
        archive(&[("a.npy", &npy), ("b.npy", &npy)]),
        pax,
    ]
}

/// Corrects the checksums of all headers that say that they are one, so that most changes are read.
fn repaired(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for block in bytes.chunks_exact_mut(512).filter(|block| block[257..].starts_with(b"ustar")) {
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        header.set_cksum();
        block.copy_from_slice(header.as_bytes());
    }
    bytes
}

/// Returns whether an archive is read to its end.
fn is_read(name: &str, bytes: Vec<u8>) -> bool {
    match read_limited(name, bytes, SAMPLE_BYTES_MAX) {
        Ok(rows) => rows.damage.is_none(),
        Err(reason) => {
            assert!(!reason.is_empty());
            false
        }
    }
}

#[test]
fn archives() {
    let tokens =
        ["../", "/", "__key__", "path=", "size=", "GNU.sparse.", ".jpg", "ustar", "L", "x", "g", "S", "77777777777"];
    let target = Target::new("webdataset-tar").seeds(seeds()).tokens(tokens);
    target.run(|input| is_read("a.tar", repaired(input)));
}

#[test]
fn compressed_archives() {
    let target =
        Target::new("webdataset-gz").seeds(seeds().iter().map(|seed| gzip(seed))).memory_bytes_max(MEMORY_BYTES_MAX);
    target.run(|input| is_read("a.tar.gz", input.to_vec()));
    let target =
        Target::new("webdataset-zst").seeds(seeds().iter().map(|seed| zstd(seed))).memory_bytes_max(MEMORY_BYTES_MAX);
    target.run(|input| is_read("a.tar.zst", input.to_vec()));
}
