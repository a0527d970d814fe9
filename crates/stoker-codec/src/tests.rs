//! Tests of codecs and frames.

use proptest::prelude::*;

use crate::*;

mod damage;
mod fuzz;
mod shared;

/// All codecs, at their lowest, default and highest levels.
fn codecs() -> Vec<Codec> {
    let texts =
        ["zstd:-7", "zstd", "zstd:22", "lz4", "byte_stream_split", "byte_stream_split:9", "pco:0", "pco", "pco:12"];
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn row_type(dtype: Dtype, shape: &[usize]) -> RowType {
    RowType::try_new(dtype, shape).unwrap()
}

fn frame(codec: Codec, row_type: &RowType, row: &[u8]) -> Vec<u8> {
    let mut frame = b"before".to_vec();
    Encoder::try_new(codec, None).unwrap().encode(row_type, row, &mut frame).unwrap();
    frame.split_off(6)
}

fn decoded(row_type: &RowType, frame: &[u8]) -> Result<Vec<u8>> {
    let mut row = vec![0xa5; row_type.num_bytes()];
    Decoder::try_new().unwrap().decode(row_type, None, frame, &mut row).map(|()| row)
}

/// Rows that look like those of tables: smooth, repeated, random, and with all bits set, as some NaN have.
fn rows(num_bytes: usize) -> [Vec<u8>; 5] {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let wave = |at: usize| ((at / 4) as f32 * 0.01).sin().to_le_bytes()[at % 4];
    [
        (0..num_bytes).map(wave).collect(),
        (0..num_bytes).map(|at| (at / 8 % 7) as u8).collect(),
        (0..num_bytes).map(|_| random()).collect(),
        vec![0xff; num_bytes],
        vec![0; num_bytes],
    ]
}

#[test]
fn rows_of_all_types_and_codecs_come_back_bit_by_bit() {
    for codec in codecs() {
        for dtype in Dtype::ALL {
            for num_elements in [1, 2, 3, 255, 256, 257, 1_000] {
                let row_type = row_type(dtype, &[num_elements]);
                for row in rows(row_type.num_bytes()) {
                    let frame = frame(codec, &row_type, &row);
                    assert!(frame.len() <= row.len() + 7, "{codec}: {} of {}", frame.len(), row.len());
                    check_header(&row_type, None, &frame).unwrap();
                    assert_eq!(decoded(&row_type, &frame).unwrap(), row, "{codec} {row_type}");
                }
            }
        }
    }
}

#[test]
fn long_rows_have_several_chunks_and_may_lie_anywhere_in_memory() {
    for codec in ["pco:1", "byte_stream_split:1", "lz4"] {
        let row_type = row_type(Dtype::Float32, &[3, 100_001]);
        let row = &rows(row_type.num_bytes())[usize::from(codec == "lz4")];
        let mut shifted = vec![0; row.len() + 1];
        shifted[1..].copy_from_slice(row);
        let frame = frame(codec.parse().unwrap(), &row_type, &shifted[1..]);
        assert!(frame.len() < row.len(), "{codec}");
        let mut memory = vec![0; row.len() + 1];
        Decoder::try_new().unwrap().decode(&row_type, None, &frame, &mut memory[1..]).unwrap();
        assert!(memory[1..] == row[..], "{codec}");
    }
}

#[test]
fn smooth_rows_become_shorter_and_random_rows_stay_as_they_are() {
    let row_type = row_type(Dtype::Float32, &[64, 64]);
    let [_, repeated, random, ..] = rows(row_type.num_bytes());
    // At its lowest level, pco looks for no repetitions.
    for codec in codecs().into_iter().filter(|codec| codec.to_string() != "pco:0") {
        assert!(frame(codec, &row_type, &repeated).len() * 2 < repeated.len(), "{codec}");
        let frame = frame(codec, &row_type, &random);
        assert!(frame.len() <= random.len() + 5, "{codec}: {}", frame.len());
    }
}

#[test]
fn an_encoder_and_a_decoder_take_rows_of_any_type_one_after_the_other() {
    let mut decoder = Decoder::try_new().unwrap();
    for codec in codecs() {
        let mut encoder = Encoder::try_new(codec, None).unwrap();
        let (mut frames, mut ends, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for (dtype, length) in [(Dtype::Int64, 40), (Dtype::UInt8, 1), (Dtype::Float16, 300), (Dtype::Int64, 40)] {
            let row_type = row_type(dtype, &[length]);
            let [_, row, ..] = rows(row_type.num_bytes());
            encoder.encode(&row_type, &row, &mut frames).unwrap();
            ends.push(frames.len());
            expected.push((row_type, row));
        }
        let mut start = 0;
        for (end, (row_type, row)) in ends.into_iter().zip(expected) {
            let mut memory = vec![0; row.len()];
            decoder.decode(&row_type, None, &frames[start..end], &mut memory).unwrap();
            assert_eq!(memory, row, "{codec}");
            start = end;
        }
    }
}

#[test]
fn codecs_are_read_as_they_are_written() {
    for text in ["zstd:3", "zstd:-7", "lz4", "byte_stream_split:22", "pco:8"] {
        let codec: Codec = text.parse().unwrap();
        assert_eq!(codec.to_string(), text);
        assert!(Codec::NAMES.contains(&codec.name()));
    }
    assert_eq!("zstd".parse(), Ok(Codec::Zstd { level: 3 }));
    assert_eq!(" pco : 12 ".parse(), Ok(Codec::Pco { level: 12 }));
    for (text, part) in [
        ("gzip", "codecs are zstd, lz4, byte_stream_split, pco"),
        ("", "no such codec"),
        ("zstd:23", "from -7 to 22"),
        ("pco:-1", "from 0 to 12"),
        ("pco:99999999999", "whole number"),
        ("zstd:", "whole number"),
        ("lz4:1", "no levels"),
    ] {
        let error = text.parse::<Codec>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn shapes_that_overflow_are_refused() {
    for shape in [&[usize::MAX, 2][..], &[1 << 40, 1 << 40], &[ROW_BYTES_MAX / 8 + 1]] {
        let error = RowType::try_new(Dtype::Float64, shape).unwrap_err().to_string();
        assert!(error.contains("more than 1073741824 bytes"), "{error}");
    }
    assert!(RowType::try_new(Dtype::UInt8, &[3, 0]).unwrap_err().to_string().contains("no elements"));
    assert_eq!(RowType::try_new(Dtype::Float64, &[ROW_BYTES_MAX / 8]).unwrap().num_bytes(), ROW_BYTES_MAX);
    assert_eq!(RowType::try_new(Dtype::UInt8, &[]).unwrap().num_elements(), 1);
}

#[test]
fn types_have_the_numbers_of_the_format() {
    for (code, dtype) in (1..).zip(Dtype::ALL) {
        assert_eq!((dtype as u8, Dtype::named(dtype.name())), (code, Some(dtype)));
    }
    assert_eq!(Dtype::named("bool"), None);
}

/// Frames that this crate wrote when the format was made. They must be read for ever.
#[test]
fn frames_of_version_one_are_read() {
    let row_type = row_type(Dtype::UInt16, &[200]);
    let row: Vec<u8> = (0..200_u16).flat_map(u16::to_le_bytes).collect();
    let plain = [&[0x10, 3, 0xc8, 0x01], &row[..]].concat();
    assert_eq!(decoded(&row_type, &plain).unwrap(), row);
    let zeros = [0x12, 3, 0xc8, 0x01, 0x1f, 0, 1, 0, 0xff, 0x78, 0x50, 0, 0, 0, 0, 0];
    assert_eq!(decoded(&row_type, &zeros).unwrap(), vec![0; 400]);
}

proptest! {
    #[test]
    fn any_row_comes_back(
        bytes in proptest::collection::vec(any::<u8>(), 8..2_000),
        codec in 0..9usize,
        dtype in 0..16usize,
    ) {
        let dtype = Dtype::ALL[dtype];
        let row_type = row_type(dtype, &[bytes.len() / dtype.width()]);
        let row = &bytes[..row_type.num_bytes()];
        let frame = frame(codecs()[codec], &row_type, row);
        prop_assert_eq!(decoded(&row_type, &frame).unwrap(), row);
    }
}
