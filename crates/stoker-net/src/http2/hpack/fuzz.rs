//! Header blocks of hostile servers.

use bytes::{Bytes, BytesMut};
use stoker_fuzz::Target;

use super::tests::{ALL_BYTES, bytes};
use super::{Decoder, HEADER_BYTES_MAX, Indexing, huffman, put_field};

/// Splits an input into blocks of one connection. The length of each block stands before it.
fn blocks(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = input.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (block, rest) = rest.split_at(length);
        input = rest;
        Some(block)
    })
}

fn join(blocks: &[&str]) -> Vec<u8> {
    let with_length = |block: &&str| {
        let block = bytes(block);
        [&(block.len() as u16).to_be_bytes()[..], &block].concat()
    };
    blocks.iter().flat_map(with_length).collect()
}

fn bytes_of(fields: &[(Bytes, Bytes)]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
}

#[test]
fn fields_of_any_block_are_bounded_and_the_same_again() {
    // The blocks of the standard's examples, the code of all bytes, and resizes of the table.
    let plain = "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54";
    let coded = "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff";
    let seeds = [
        join(&[plain, "4803333037c1c0bf"]),
        join(&[&format!("3fe101{coded}"), "4883640effc1c0bf", "be"]),
        join(&[ALL_BYTES]),
        join(&["3f254001610131400162013210016301330004666f6f3d00", "bebf", "20", "3fe11f400161017f"]),
    ];
    let tokens =
        [&b"\x3f\xe1\x1f"[..], b"\x20", b"\xbe", b"\xc1", b"\x7f\xff\xff\x7f", b"\xff\xff\xff\x7f", b"\x40\x01a\x01b"];
    Target::new("hpack").seeds(seeds).tokens(tokens).memory_bytes_max(1 << 20).run(|input| {
        let mut decoder = Decoder::new();
        for block in blocks(input) {
            let Ok(fields) = decoder.decode(block) else { return false };
            assert!(bytes_of(&fields) <= HEADER_BYTES_MAX);
            let mut again = BytesMut::new();
            let texts = fields.iter().all(|(name, value)| {
                std::str::from_utf8(name).map(|name| put_field(&mut again, Indexing::Never, name, value)).is_ok()
            });
            if texts {
                assert_eq!(Decoder::new().decode(&again), Ok(fields));
            }
        }
        true
    });
}

#[test]
fn huffman_codes_are_refused_or_the_same_again() {
    let all: Vec<u8> = (0..=255).collect();
    let seeds =
        [huffman::encode(b"www.example.com"), huffman::encode(&all), huffman::encode(b""), huffman::encode(b"\xff")];
    Target::new("huffman").seeds(seeds).memory_bytes_max(1 << 20).run(|input| {
        let Ok(text) = huffman::decode(input) else { return false };
        // Each text has exactly one code.
        assert_eq!(huffman::encode(&text), input);
        true
    });
}
