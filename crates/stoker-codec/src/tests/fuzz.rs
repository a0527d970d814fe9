//! Changed frames give a row or an error; they never panic, hang, or take much more memory than the row.

use std::cell::RefCell;

use stoker_fuzz::Target;

use super::shared::{dictionary, shared_frame, small};
use super::{frame, row_type, rows};
use crate::{Decoder, Dictionary, Dtype, Error, check_header};

/// The most bytes that decoding a row of some KiB holds: the tables and windows of pco.
const MEMORY_BYTES_MAX: usize = 8 << 20;

fn fuzz(codec: &str, dtype: Dtype) {
    let row_type = row_type(dtype, &[5, 100]);
    let seeds = rows(row_type.num_bytes()).map(|row| frame(codec.parse().unwrap(), &row_type, &row));
    let (decoder, memory) = (RefCell::new(Decoder::try_new().unwrap()), RefCell::new(vec![0; row_type.num_bytes()]));
    let target = Target::new(codec).seeds(seeds).memory_bytes_max(MEMORY_BYTES_MAX);
    target.run(|input| match decoder.borrow_mut().decode(&row_type, None, input, &mut memory.borrow_mut()) {
        Ok(()) => check_header(&row_type, None, input).is_ok(),
        Err(Error::BadFrame { reason }) => {
            assert!(!reason.is_empty());
            false
        }
        Err(other) => panic!("{other}"),
    });
}

#[test]
fn zstd() {
    fuzz("zstd", Dtype::Float32);
}

#[test]
fn lz4() {
    fuzz("lz4", Dtype::Int16);
}

#[test]
fn byte_stream_split() {
    fuzz("byte_stream_split", Dtype::Float64);
}

#[test]
fn pco_of_floats() {
    fuzz("pco", Dtype::Float32);
}

#[test]
fn pco_of_integers() {
    fuzz("pco:12", Dtype::Int64);
}

#[test]
fn pco_of_bytes() {
    fuzz("pco", Dtype::UInt8);
}

/// Frames with a dictionary, and dictionaries.
#[test]
fn dictionaries() {
    let (row_type, rows) = small();
    let codec = "zstd".parse().unwrap();
    let dictionary = dictionary(codec);
    let seeds = rows.chunks(row_type.num_bytes()).take(5).map(|row| shared_frame(codec, &row_type, &dictionary, row));
    let (decoder, memory) = (RefCell::new(Decoder::try_new().unwrap()), RefCell::new(vec![0; row_type.num_bytes()]));
    let target = Target::new("zstd with a dictionary").seeds(seeds).memory_bytes_max(MEMORY_BYTES_MAX);
    target.run(|input| {
        let decoded = decoder.borrow_mut().decode(&row_type, Some(&dictionary), input, &mut memory.borrow_mut());
        decoded.is_ok() && check_header(&row_type, Some(&dictionary), input).is_ok()
    });
    let frame = shared_frame(codec, &row_type, &dictionary, &rows[..row_type.num_bytes()]);
    let target = Target::new("dictionaries").seeds([dictionary.bytes().to_vec()]).memory_bytes_max(MEMORY_BYTES_MAX);
    target.run(|input| {
        let Ok(changed) = Dictionary::parse(input) else { return false };
        let mut row = vec![0; row_type.num_bytes()];
        let decoded = Decoder::try_new().unwrap().decode(&row_type, Some(&changed), &frame, &mut row);
        assert!(decoded.is_err() || changed.id() == dictionary.id());
        true
    });
}
