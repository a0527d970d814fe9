//! Damaged files, files that claim to be huge, and files without tables.

use super::{FILES, LIMIT, TURBO, decode, jpeg};

#[test]
fn a_file_that_ends_early_is_refused_wherever_it_ends() {
    let mut decompressor = None;
    for name in ["420_64x48", "progressive_444_64x48", "restarts_64x48", "cmyk_64x48"] {
        let file = &FILES[name].file;
        for end in (0..file.len() - 1).step_by(11).chain([file.len() - 1]) {
            decode(&mut decompressor, &file[..end], 1).unwrap_err();
        }
    }
}

#[test]
fn an_end_marker_in_the_header_is_not_the_end() {
    // The segment before the tables has a wrong length, and the last of its bytes look like the end of an image.
    let file = &FILES["420_64x48"].file;
    let mut odd = vec![0xFF, 0xD8, 0xFF, 0xEE, 0, 4, 1, 2, 3, 0xFF, 0xEE, 0, 4, 0xFF, 0xD9];
    odd.extend_from_slice(&file[2..]);
    decode(&mut None, &odd, 1).unwrap();
    let bad = decode(&mut None, &odd[..odd.len() - 2], 1).unwrap_err();
    assert_eq!(bad.reason, "the JPEG file ends before its image does");
}

#[test]
fn flipped_bytes_never_panic_and_decode_alike_after_any_file() {
    let mut decompressor = None;
    for name in ["420_64x48", "progressive_420_64x48", "restarts_64x48", "gray_64x48"] {
        let sample = &FILES[name];
        for at in (0..sample.file.len()).step_by(sample.file.len() / 150 + 1) {
            let mut file = sample.file.clone();
            file[at] ^= 0x5A;
            let first = decode(&mut None, &file, 1);
            decode(&mut decompressor, &FILES["422_203x149"].file, 2).unwrap();
            assert_eq!(decode(&mut decompressor, &file, 1), first, "{name}, byte {at}");
        }
    }
}

#[test]
fn tables_of_another_file_are_not_used() {
    let file = &FILES["420_64x48"].file;
    let without = without_tables(file);
    let alone = decode(&mut None, &without, 1);
    let mut decompressor = None;
    decode(&mut decompressor, file, 1).unwrap();
    assert_eq!(decode(&mut decompressor, &without, 1), alone);
    assert!(alone.unwrap_err().reason.contains("Quantization table"));
}

#[test]
fn claims_of_huge_images_are_refused_before_memory_is_taken() {
    for (name, frame) in [("420_64x48", 0xC0), ("progressive_444_64x48", 0xC2)] {
        let mut file = FILES[name].file.clone();
        let at = file.windows(2).position(|pair| pair == [0xFF, frame]).unwrap();
        file[at + 5..at + 9].copy_from_slice(&[0xFF, 0xDC, 0xFF, 0xDC]);
        let bad = TURBO.open(&mut None, &file, LIMIT).map(drop).unwrap_err();
        assert!(bad.reason.contains("more than the limit"), "{bad}");
    }
}

#[test]
fn coefficients_of_progressive_files_count() {
    let file = &FILES["progressive_444_203x149"].file;
    assert!(TURBO.open(&mut None, file, 203 * 149 * 3).is_ok());
    assert!(TURBO.open(&mut None, file, 203 * 149 * 3 - 1).is_err());
}

#[test]
fn files_of_endless_scans_are_refused() {
    let file = &FILES["progressive_gray_64x48"].file;
    let scan = file.windows(2).rposition(|pair| pair == [0xFF, 0xDA]).unwrap();
    let (last, mut many) = (&file[scan..file.len() - 2], file[..scan].to_vec());
    (0..600).for_each(|_| many.extend_from_slice(last));
    many.extend_from_slice(&[0xFF, 0xD9]);
    let bad = decode(&mut None, &many, 1).unwrap_err();
    assert_eq!(bad.reason, "the JPEG file has too many scans");
}

#[test]
fn what_only_looks_like_a_jpeg_file_is_refused() {
    for file in [&b"\xFF\xD8\xFF"[..], b"\xFF\xD8\xFF\xD9", b"\xFF\xD8\xFF\xE0\x00\x01\xFF\xD9"] {
        decode(&mut None, file, 1).unwrap_err();
    }
    let mut lossless = jpeg(16, 16);
    let at = lossless.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    lossless[at + 1] = 0xC3;
    assert_eq!(decode(&mut None, &lossless, 1).unwrap_err().reason, "lossless JPEG files are not supported");
}

/// Removes the segments of quantization tables (ITU-T T.81, B.2.4.1).
fn without_tables(file: &[u8]) -> Vec<u8> {
    let (mut kept, mut at) = (file[..2].to_vec(), 2);
    while file[at + 1] != 0xDA {
        let end = at + 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        if file[at + 1] != 0xDB {
            kept.extend_from_slice(&file[at..end]);
        }
        at = end;
    }
    kept.extend_from_slice(&file[at..]);
    kept
}
