//! Tests of headers as NumPy writes them, and of others.

use super::*;

/// Returns a file of version 1.0 with a header and some bytes.
pub(crate) fn npy_file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    let text = format!("{header}{}\n", " ".repeat(63 - (10 + header.len()) % 64));
    file.extend_from_slice(&(text.len() as u16).to_le_bytes());
    file.extend_from_slice(text.as_bytes());
    file.extend_from_slice(data);
    file
}

/// Returns the header of a C-ordered array.
pub(crate) fn npy_text(descr: &str, shape: &str) -> String {
    format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}")
}

#[test]
fn headers_of_numpy_are_read() {
    let header = parse(&npy_file(&npy_text("<f4", "(3, 224)"), &[])).unwrap();
    assert_eq!(header.shape, [3, 224]);
    assert_eq!((header.element, header.is_big_endian, header.is_fortran), (NpyType::Float32, false, false));
    assert_eq!((header.data_offset, header.data_bytes), (128, 3 * 224 * 4));
    let check = |descr: &str, shape: &str, expected: (NpyType, bool, &[usize])| {
        let header = parse(&npy_file(&npy_text(descr, shape), &[])).unwrap();
        assert_eq!((header.element, header.is_big_endian, &header.shape[..]), expected, "{descr} {shape}");
    };
    check("|b1", "()", (NpyType::Bool, false, &[]));
    check(">u2", "(5,)", (NpyType::UInt16, true, &[5]));
    check("|i1", "(2L, 3L)", (NpyType::Int8, false, &[2, 3]));
    check("<f8", "(0, 7)", (NpyType::Float64, false, &[0, 7]));
    let fortran = "{\"shape\":(1,2),\"fortran_order\":True,\"descr\":\"<i8\"}";
    assert!(parse(&npy_file(fortran, &[])).unwrap().is_fortran);
    let mut second = b"\x93NUMPY\x02\x00".to_vec();
    let text = npy_text("<i4", "(1,)");
    second.extend_from_slice(&(text.len() as u32).to_le_bytes());
    second.extend_from_slice(text.as_bytes());
    assert_eq!(parse(&second).unwrap().data_offset, second.len());
}

#[test]
fn other_headers_are_refused() {
    let check = |file: &[u8], part: &str| {
        let reason = parse(file).unwrap_err();
        assert!(reason.contains(part), "{reason} does not contain {part}");
    };
    let of = |descr: &str, shape: &str| npy_file(&npy_text(descr, shape), &[]);
    check(b"PK\x03\x04", "does not begin as an NPY file");
    check(b"\x93NUMPY\x01", "cut off");
    check(&of("<f4", "(1,)")[..40], "cut off");
    check(b"\x93NUMPY\x04\x00\x00\x00\x00\x00", "version 4.0");
    check(b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "more than 65536 bytes");
    check(&of("|O", "(2,)"), "Python objects");
    check(&of("<U5", "(2,)"), "\"<U5\" are neither");
    check(&of("<c8", "(2,)"), "neither numbers");
    check(&of("=f4", "(2,)"), "neither numbers");
    check(&of("|f4", "(2,)"), "neither numbers");
    check(&of("", "(2,)"), "neither numbers");
    check(&of("<f4", "(3)"), "no tuple");
    check(&of("<f4", "(-1, 2)"), "a size that is none");
    check(&of("<f4", "(4294967296, 4294967296)"), "too large");
    check(&of("<f4", "(99999999999999999999,)"), "a size that is none");
    check(&of("<f4", &format!("({})", "1,".repeat(65))), "more than 64 dimensions");
    check(&npy_file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", &[]), "elements with fields");
    check(&npy_file("{'descr': '<f4', 'shape': (1,)}", &[]), "lacks one of");
    check(&npy_file("{'descr': '<f4', 'descr': '<f4'}", &[]), "\"descr\" twice");
    check(&npy_file("{'descr': '<f4', 'other': '<f4'}", &[]), "unknown entry");
    check(&npy_file(&format!("{} __import__('os')", npy_text("<f4", "(1,)")), &[]), "text follows");
    check(&npy_file("{'descr': '<f4", &[]), "does not end");
    check(&npy_file("{'fortran_order': 1}", &[]), "neither True nor False");
}

#[test]
fn changed_headers_are_refused_or_read() {
    let seeds = [
        npy_file(&npy_text("<f4", "(3, 4)"), &[0; 48]),
        npy_file(&npy_text("|u1", "(5,)"), &[1; 5]),
        npy_file("{'descr': '>i8', 'fortran_order': True, 'shape': (), }", &[0; 8]),
    ];
    let tokens = ["'descr'", "'shape'", "True", "(", ")", ",", "|O", "9999999999"];
    stoker_fuzz::Target::new("npy-header").seeds(seeds).tokens(tokens).memory_bytes_max(1 << 20).run(|input| {
        let Ok(header) = parse(input) else { return false };
        assert!(header.data_offset <= input.len());
        let elements: usize = header.shape.iter().product();
        assert_eq!(elements * header.element.width(), header.data_bytes);
        true
    });
}
