//! Tests of archives, which are written by the crate `tar`.

mod archives;
mod bad_input;
mod fuzz;
mod grouping;

use std::io::Write as _;
use std::sync::Arc;

use tar::{Builder, EntryType, Header};

use crate::memory_folder::{AllRows, MemoryFolder, plan, read_all};
use crate::{FormatOptions, WebDataset};

const JPEG: &[u8] = b"\xff\xd8\xff\xe0 jpeg";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n png";

/// Makes an archive of files.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Makes an archive with a header of one's own, whose checksum is right, before `a.jpg`.
fn with_header(name: &[u8], kind: EntryType, size: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = block(name, kind, size, data);
    bytes.extend(archive(&[("z.jpg", JPEG)]));
    bytes
}

/// Makes a member of a header and its data.
fn block(name: &[u8], kind: EntryType, size: u64, data: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_size(size);
    header.set_entry_type(kind);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 1).unwrap()
}

/// Reads one archive.
fn read(name: &str, bytes: Vec<u8>) -> Result<AllRows, String> {
    let folder = MemoryFolder::new([(name, bytes)]);
    let files = plan(&WebDataset, &folder, &FormatOptions::default()).map_err(|error| error.to_string())?;
    Ok(read_all(&*files, 0, usize::MAX))
}

/// The same with a limit of the size of samples.
fn read_limited(name: &str, bytes: Vec<u8>, sample_bytes_max: usize) -> Result<AllRows, String> {
    let folder = MemoryFolder::new([(name, bytes)]);
    let files = super::plan(Arc::clone(&folder) as _, vec![name.into()], &FormatOptions::default(), sample_bytes_max);
    Ok(read_all(&files.map_err(|error| error.to_string())?, 0, 1 << 16))
}
