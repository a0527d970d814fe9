//! Small rows with a dictionary.

use super::{decoded, row_type};
use crate::{
    Codec, DICTIONARY_BYTES_MAX, Decoder, Dictionary, Dtype, Encoder, Error, Result, RowType, SMALL_ROW_BYTES_MAX,
    check_header,
};

/// Small rows that have much in common: twelve of forty patterns of eight numbers.
pub fn small() -> (RowType, Vec<u8>) {
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let patterns: Vec<Vec<u8>> =
        (0..40).map(|_| (0..8).flat_map(|_| (random() as f32 * 1e-4).to_le_bytes()).collect()).collect();
    let rows = (0..12 * 2_000).flat_map(|_| patterns[random() as usize % patterns.len()].clone()).collect();
    (row_type(Dtype::Float32, &[12, 8]), rows)
}

pub fn dictionary(codec: Codec) -> Dictionary {
    let (row_type, rows) = small();
    Dictionary::train(codec, &row_type, &rows).unwrap().expect("rows with much in common")
}

pub fn shared_frame(codec: Codec, row_type: &RowType, dictionary: &Dictionary, row: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Encoder::try_new(codec, Some(dictionary)).unwrap().encode(row_type, row, &mut frame).unwrap();
    frame
}

fn decoded_with(row_type: &RowType, dictionary: &Dictionary, frame: &[u8]) -> Result<Vec<u8>> {
    let mut row = vec![0xa5; row_type.num_bytes()];
    Decoder::try_new().unwrap().decode(row_type, Some(dictionary), frame, &mut row).map(|()| row)
}

fn codecs() -> [Codec; 3] {
    ["zstd", "zstd:19", "byte_stream_split"].map(|text| text.parse().unwrap())
}

#[test]
fn small_rows_become_much_shorter() {
    let (row_type, rows) = small();
    for codec in codecs() {
        let dictionary = dictionary(codec);
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        let (mut plain, mut shared) =
            (Encoder::try_new(codec, None).unwrap(), Encoder::try_new(codec, Some(&dictionary)).unwrap());
        let mut decoder = Decoder::try_new().unwrap();
        let mut memory = vec![0; row_type.num_bytes()];
        for row in rows.chunks(row_type.num_bytes()) {
            plain.encode(&row_type, row, &mut alone).unwrap();
            let start = together.len();
            shared.encode(&row_type, row, &mut together).unwrap();
            check_header(&row_type, Some(&dictionary), &together[start..]).unwrap();
            decoder.decode(&row_type, Some(&dictionary), &together[start..], &mut memory).unwrap();
            assert_eq!(memory, row);
        }
        assert!(3 * together.len() < 2 * alone.len(), "{codec}: {} and {}", together.len(), alone.len());
    }
}

#[test]
fn frames_of_both_kinds_are_in_one_column() {
    let (row_type, rows) = small();
    let (codec, row) = ("zstd".parse().unwrap(), &rows[..row_type.num_bytes()]);
    let dictionary = dictionary(codec);
    let alone = super::frame(codec, &row_type, row);
    assert_eq!(decoded_with(&row_type, &dictionary, &alone).unwrap(), row);
    // A row that nothing compresses is as it is.
    let noise: Vec<u8> = (0..384_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let frame = shared_frame(codec, &row_type, &dictionary, &noise);
    assert!(frame.len() <= noise.len() + 7);
    assert_eq!(decoded_with(&row_type, &dictionary, &frame).unwrap(), noise);
}

#[test]
fn another_dictionary_is_refused() {
    let (row_type, rows) = small();
    let row = &rows[..row_type.num_bytes()];
    for codec in codecs() {
        let dictionary = dictionary(codec);
        let mut bytes = dictionary.bytes().to_vec();
        bytes[4] ^= 1;
        let other = Dictionary::parse(&bytes).unwrap();
        let frame = shared_frame(codec, &row_type, &dictionary, row);
        let text = format!("it needs the dictionary {}, and that of the column is {}", dictionary.id(), other.id());
        assert_eq!(decoded_with(&row_type, &other, &frame), Err(Error::BadFrame { reason: text.clone() }));
        assert_eq!(check_header(&row_type, Some(&other), &frame), Err(Error::BadFrame { reason: text }));
        let none = format!("it needs the dictionary {}, and the column has none", dictionary.id());
        assert_eq!(decoded(&row_type, &frame), Err(Error::BadFrame { reason: none.clone() }));
        assert_eq!(check_header(&row_type, None, &frame), Err(Error::BadFrame { reason: none }));
        for length in 0..frame.len() {
            assert!(matches!(decoded_with(&row_type, &dictionary, &frame[..length]), Err(Error::BadFrame { .. })));
        }
    }
}

#[test]
fn dictionaries_are_made_only_where_they_help() {
    let (row_type, rows) = small();
    let train = |codec: &str, row_type: &RowType, rows: &[u8]| {
        Dictionary::train(codec.parse().unwrap(), row_type, rows).unwrap()
    };
    assert_eq!(train("pco", &row_type, &rows), None);
    assert_eq!(train("lz4", &row_type, &rows), None);
    assert_eq!(train("zstd", &row_type, &rows[..row_type.num_bytes() * 100]), None, "few rows");
    assert_eq!(train("zstd", &row_type, &[]), None);
    let large = RowType::try_new(Dtype::UInt8, &[SMALL_ROW_BYTES_MAX + 1]).unwrap();
    assert_eq!(train("zstd", &large, &rows), None);
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    let noise: Vec<u8> = noise.take(row_type.num_bytes() * 1_000).collect();
    assert_eq!(train("zstd", &row_type, &noise), None, "rows with nothing in common");
}

#[test]
fn damaged_dictionaries_are_refused() {
    let good = dictionary("zstd".parse().unwrap());
    assert!(good.bytes().len() <= 16 << 10);
    assert_eq!(Dictionary::parse(good.bytes()), Ok(good.clone()));
    let mut without_id = good.bytes().to_vec();
    without_id[4..8].fill(0);
    let mut damaged = good.bytes().to_vec();
    damaged[8..40].fill(0xff);
    for (bytes, part) in [
        (&b""[..], "no dictionary of Zstandard"),
        (b"\x37\xa4\x30", "no dictionary of Zstandard"),
        (b"only text, which is a dictionary of no id", "no dictionary of Zstandard"),
        (&without_id, "no dictionary of Zstandard"),
        (&damaged, "it is damaged"),
        (&good.bytes()[..20], "it is damaged"),
        (&vec![0; DICTIONARY_BYTES_MAX + 1], "more than 65536"),
    ] {
        match Dictionary::parse(bytes) {
            Err(Error::NoDictionary { reason }) => assert!(reason.contains(part), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}
