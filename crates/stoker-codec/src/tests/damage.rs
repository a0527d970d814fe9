//! Damaged frames, and frames of other rows, give errors.

use super::{codecs, decoded, frame, row_type, rows};
use crate::frame::{LZ4, PCO, PLAIN, ZSTD, put_header};
use crate::{Dtype, Error, RowType, check_header};

fn bad(row_type: &RowType, frame: &[u8]) -> String {
    match decoded(row_type, frame) {
        Err(Error::BadFrame { reason }) => reason,
        other => panic!("{frame:x?}: {other:?}"),
    }
}

#[test]
fn frames_of_other_rows_are_refused_by_their_headers() {
    let floats = row_type(Dtype::Float32, &[4, 8]);
    let [row, ..] = rows(floats.num_bytes());
    for codec in codecs() {
        let frame = frame(codec, &floats, &row);
        for (other, found) in [
            (row_type(Dtype::Float32, &[33]), "32 elements of float32, and the column has 33 elements of float32"),
            (row_type(Dtype::Int32, &[32]), "32 elements of float32, and the column has 32 elements of int32"),
        ] {
            assert!(bad(&other, &frame).contains(found), "{codec}");
            assert!(check_header(&other, None, &frame).is_err());
        }
    }
}

#[test]
fn headers_are_checked() {
    let bytes = row_type(Dtype::UInt8, &[4]);
    for (frame, part) in [
        (&[][..], "at least 3 bytes"),
        (&[0x10, 1], "number of elements is damaged"),
        (&[0x10, 1, 0x84, 0x00, 1, 2, 3, 4], "number of elements is damaged"),
        (&[0x10, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "number of elements is damaged"),
        (&[0x10, 1, 0xff, 0xff, 0xff, 0xff, 0x7f], "34359738367 elements of uint8"),
        (&[0x20, 1, 4, 1, 2, 3, 4], "version 2"),
        (&[0x17, 1, 4, 1, 2, 3, 4], "unknown codec 7"),
        (&[0x15, 1, 4, 1, 2, 3, 4], "names no dictionary"),
        (&[0x16, 1, 4], "names no dictionary"),
        (&[0x10, 99, 4, 1, 2, 3, 4], "the unknown type 99"),
        (&[0x10, 1, 4, 1, 2, 3], "payload has 3 bytes, and the row has 4"),
        (&[0x10, 1, 4, 1, 2, 3, 4, 5], "payload has 5 bytes, and the row has 4"),
        (&[0x11, 1, 4, 0x25, 0xb5, 0x2f, 0xfd, 0, 0], "no Zstandard frame"),
        (&[0x12, 1, 4], "LZ4"),
        (&[0x14, 1, 4], "pco"),
    ] {
        assert!(bad(&bytes, frame).contains(part), "{frame:x?}: {}", bad(&bytes, frame));
    }
    assert!(check_header(&bytes, None, &[0x17, 1, 4]).is_err());
}

#[test]
fn truncated_frames_are_refused() {
    let floats = row_type(Dtype::Float32, &[300]);
    let [smooth, repeated, ..] = rows(floats.num_bytes());
    for codec in codecs() {
        for row in [&smooth, &repeated] {
            let frame = frame(codec, &floats, row);
            for length in 0..frame.len() {
                bad(&floats, &frame[..length]);
            }
        }
    }
}

/// Payloads that declare more or fewer bytes than the header.
#[test]
fn payloads_of_other_lengths_are_refused() {
    let (long, short) = (row_type(Dtype::UInt8, &[2_000]), row_type(Dtype::UInt8, &[500]));
    let [row, ..] = rows(2_000);
    for codec in codecs() {
        for (written, read) in [(&long, &short), (&short, &long)] {
            let frame = frame(codec, written, &row[..written.num_bytes()]);
            let mut changed = Vec::new();
            put_header(frame[0] & 0x0f, read, &mut changed);
            changed.extend_from_slice(&frame[4..]);
            bad(read, &changed);
        }
    }
}

#[test]
fn two_payloads_are_none() {
    let bytes = row_type(Dtype::UInt8, &[1_000]);
    for codec in [ZSTD, LZ4, PCO, PLAIN] {
        let half = row_type(Dtype::UInt8, &[500]);
        let text = match codec {
            ZSTD => "zstd",
            LZ4 => "lz4",
            _ => "pco",
        };
        let half = frame(text.parse().unwrap(), &half, &[3; 500]);
        let mut twice = Vec::new();
        put_header(codec, &bytes, &mut twice);
        twice.extend_from_slice(&half[4..]);
        twice.extend_from_slice(&half[4..]);
        bad(&bytes, &twice);
    }
}
