//! Changed files give rows or an error; the readers never panic, hang, or take much more memory than the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoker_fuzz::Target;

use super::written::{Packed, fortran_npy, npy, npy_version, safetensors, wide_zip, zip};
use super::{MemoryFolder, read_in};
use crate::npy_header::NpyHeader;
use crate::{NumpyFormat, SafetensorsFormat};
use stoker_files::{FileFormat, Folder};

/// The most bytes that reading a file of some KiB holds: 1,032 times the file for deflated members, and the batches.
const MEMORY_BYTES_MAX: usize = 32 << 20;

/// Reads a file in batches of some rows. Returns whether it has rows.
fn read(format: &dyn FileFormat, name: &str, input: &[u8]) -> bool {
    let folder: Arc<dyn Folder> = MemoryFolder::new(BTreeMap::from([(name, input.to_vec())]));
    match read_in(format, folder, 64 << 10) {
        Ok((rows, bad)) => rows.num_rows() + bad.len() > 0,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

fn arrays() -> Vec<Vec<u8>> {
    let record = "[('a', '>i2'), ('', '|V1'), ('b', '<f4', (2,)), ('c', '<U1')]";
    vec![
        npy("'<f4'", "(5, 3)", &[1; 60]),
        npy(record, "(2,)", &[0; 30]),
        npy("'|S2'", "(3,)", b"abcdef"),
        npy("'<M8[D]'", "(2,)", &[0; 16]),
        fortran_npy("'|b1'", "(3, 2, 2)", &[1; 12]),
        npy_version(3, "{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", &[0; 2]),
    ]
}

#[test]
fn headers_of_arrays() {
    let tokens =
        ["'descr'", "'fortran_order'", "True", "False", "'shape'", "(1,)", "'<U4'", "[('a', '<f8')]", "'|O'", "\\x"];
    Target::new("npy_header").seeds(arrays()).tokens(tokens).run(|input| match NpyHeader::parse(input) {
        Ok(header) => header.data_offset <= input.len(),
        Err(reason) => reason.is_empty(),
    });
}

#[test]
fn files_of_arrays() {
    let target = Target::new("npy").seeds(arrays()).tokens(["'<U4'", "'>M8[ns]'", "(2, 3)", "True"]);
    target.memory_bytes_max(MEMORY_BYTES_MAX).run(|input| read(&NumpyFormat, "x.npy", input));
}

#[test]
fn zip_files() {
    let members = [
        Packed::stored("x.npy", npy("'<f4'", "(2, 2)", &[0; 16])),
        Packed::deflated("y.npy", npy("'|u1'", "(2,)", &[1, 2])),
    ];
    let wide = [Packed { wide: true, ..members[1].clone() }];
    let fortran = [Packed::deflated("x.npy", fortran_npy("'|u1'", "(2, 2)", &[1, 2, 3, 4]))];
    let seeds = [zip(&members, b"PK"), wide_zip(&wide), zip(&fortran, b"")];
    let target =
        Target::new("npz").seeds(seeds).tokens(["PK\x01\x02", "PK\x03\x04", "PK\x05\x06", "PK\x06\x06", ".npy"]);
    target.memory_bytes_max(MEMORY_BYTES_MAX).run(|input| read(&NumpyFormat, "x.npz", input));
}

#[test]
fn files_of_tensors() {
    let header = r#"{"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"y":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]}}"#;
    let seeds = [
        safetensors(header, &[0; 20]),
        safetensors(r#"{"x":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}"#, &[1]),
    ];
    let tokens = ["\"dtype\"", "\"shape\"", "\"data_offsets\"", "F8_E4M3", "I64", "[0,16]"];
    let target = Target::new("safetensors").seeds(seeds).tokens(tokens);
    target.memory_bytes_max(MEMORY_BYTES_MAX).run(|input| read(&SafetensorsFormat, "x.safetensors", input));
}
