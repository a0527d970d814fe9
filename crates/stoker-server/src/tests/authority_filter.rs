//! The filter that replaces characters of server names that hyper would refuse, in the bytes that clients send.

use crate::authority_filter::AuthorityFilter;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

/// Checks how the filter changes frames, whatever the pieces in which they come.
fn check(sent: &[Vec<u8>], expected: &[Vec<u8>]) {
    let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, &[0, 3, 0, 0, 0, 0])].concat();
    let (sent, expected) = ([&begin[..], &sent.concat()].concat(), [&begin[..], &expected.concat()].concat());
    for piece_bytes in [1, 2, 7, 20, sent.len()] {
        let mut found = sent.clone();
        let mut filter = AuthorityFilter::new();
        found.chunks_mut(piece_bytes).for_each(|piece| filter.filter(piece));
        assert_eq!(found.escape_ascii().to_string(), expected.escape_ascii().to_string(), "pieces of {piece_bytes}");
    }
}

fn check_block(sent: &[u8], expected: &[u8]) {
    // The second frame shows that the filter still finds its way after the first headers.
    check(
        &[HEADERS, HEADERS].map(|kind| frame(kind, 4, sent)),
        &[HEADERS, HEADERS].map(|kind| frame(kind, 4, expected)),
    );
}

#[test]
fn what_arrows_own_client_sends() {
    let fields = |authority: &str| {
        let path = b"@\x05:path0/arrow.flight.protocol.FlightService/ListFlights".to_vec();
        let authority = [b"@\n:authority\x1a", authority.as_bytes()].concat();
        let others = b"\x83\x86@\x0ccontent-type\x10application/grpc@\x02te\x08trailers".to_vec();
        [path, authority, others].concat()
    };
    check_block(&fields("tmp%2Ftmpn4h1ff9z%2Fs.sock"), &fields("tmp-2Ftmpn4h1ff9z-2Fs.sock"));
}

#[test]
fn every_way_to_write_the_name() {
    for name in [&b"\x41"[..], b"\x01", b"\x11", b"\x40\x0a:authority", b"\x00\x0a:authority", b"\x10\x0a:authority"] {
        check_block(&[name, b"\x06a%:b@c\x84"].concat(), &[name, b"\x06a--b-c\x84"].concat());
    }
    // A change of the table's size comes first; then a field has an index of several bytes.
    check_block(b"\x3f\xe1\x01\xff\x03\x41\x02%%", b"\x3f\xe1\x01\xff\x03\x41\x02--");
    // A length of several bytes: 127 + 1 + (1 << 7).
    let (sent, expected) = ("a%".repeat(128), "a-".repeat(128));
    let block = |value: &str| [b"\x41\x7f\x81\x01", value.as_bytes(), b"\x04\x02%%"].concat();
    check_block(&block(&sent), &block(&expected));
}

#[test]
fn padding_priorities_and_headers_in_several_frames() {
    let padded = |authority: &[u8]| frame(HEADERS, 0x2c, &[b"\x03\0\0\0\0\x0f\x41\x02", authority, b"\0%%"].concat());
    check(&[padded(b"%%"), padded(b"%%")], &[padded(b"--"), padded(b"--")]);
    let only_padding = || frame(HEADERS, 0x08, b"\x03A\x01%");
    let split = |first: &[u8], second: &[u8]| {
        vec![
            only_padding(),
            frame(HEADERS, 0, &[b"\x41\x04", first].concat()),
            frame(CONTINUATION, 0, b""),
            frame(CONTINUATION, 4, &[second, b"\x04\x02%%"].concat()),
        ]
    };
    check(&split(b"a%", b"%b"), &split(b"a-", b"-b"));
}

#[test]
fn all_else_stays_as_it_is() {
    let data = || frame(DATA, 0, b"\x41\x04a%2F@\x0a:authority\x04a%2F");
    check(&[data(), data()], &[data(), data()]);
    for block in [
        // Similar names, the name in the Huffman code, and a value in that code.
        &b"@\x0b:authority2\x02%%"[..],
        b"@\x09:authorit\x02%%",
        b"@\x0a:authoritx\x02%%",
        b"@\x8a:authority\x02%%",
        b"\x41\x82%%",
        b"\x41\x00\x04\x02%%",
        b"\x41\x09localhost",
        // An index of several bytes that names another header.
        b"\x7f\x01\x02%%",
        b"\x0f\x01\x02%%",
    ] {
        check_block(block, block);
    }
}
