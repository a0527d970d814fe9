//! Messages arrive as they were sent, however frames and reads cut them.

use arrow_flight::FlightData;
use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use stoker_net::http2::Patience;
use stoker_wire::decode::BufferSlot;

use crate::grpc::grpc_frame;
use crate::tests::http2::script::*;

/// Cuts bytes into DATA frames whose sizes and paddings cycle through `sizes`; a padding of zero means none. Adds
/// control frames between them.
fn framed(mut script: Script, mut bytes: &[u8], sizes: &[(usize, u8)]) -> Script {
    for (turn, (size, padding)) in sizes.iter().cycle().enumerate() {
        if bytes.is_empty() {
            break;
        }
        let (part, rest) = bytes.split_at((*size).min(bytes.len()));
        script = match padding {
            0 => script.data(part),
            _ => {
                let payload = [&[*padding], part, &vec![0; usize::from(*padding)]].concat();
                script.frame(DATA, PADDED, 1, &payload)
            }
        };
        script = match turn % 11 {
            2 => script.frame(PING, 0, 0, b"are you?"),
            4 => script.frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]),
            5 => script.frame(PRIORITY, 0, 1, &[0; 5]),
            6 => script.frame(0xf0, 0xff, 77, &vec![7; 300]),
            7 => script.frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 9]),
            8 => script.data(b""),
            9 => script.frame(GO_AWAY, 0, 0, &[&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0], &b"restart"[..]].concat()),
            _ => script,
        };
        bytes = rest;
    }
    script
}

fn pattern(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ salt) as u8).collect()
}

/// Encodes the fields of a message, and an unknown field, in an order that depends on `turn`.
fn shuffled(turn: usize, header: &[u8], metadata: &[u8], body: &[u8]) -> Bytes {
    let field = |data: FlightData| data.encode_to_vec();
    let mut fields = [
        field(FlightData { data_header: Bytes::copy_from_slice(header), ..Default::default() }),
        field(FlightData { app_metadata: Bytes::copy_from_slice(metadata), ..Default::default() }),
        field(FlightData { data_body: Bytes::copy_from_slice(body), ..Default::default() }),
        vec![0x7a, 3, 1, 2, 3],
    ];
    fields.rotate_left(turn % 4);
    grpc_frame(&fields.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn messages_do_not_depend_on_frames_and_reads(
        messages in prop::collection::vec((0usize..200, 0usize..200, 0usize..200_000, 0usize..4), 0..6),
        sizes in prop::collection::vec((1usize..70_000, prop_oneof![Just(0u8), any::<u8>()]), 1..8),
        small_frames: bool,
        pieces in prop::collection::vec(1usize..100_000, 1..6),
        small_pieces: bool,
        places in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0), 0..4),
    ) {
        let small = |size: usize, is_small: bool| if is_small { size % 60 + 40 } else { size };
        let pieces: Vec<usize> = pieces.iter().map(|size| small(*size, small_pieces)).collect();
        let sizes: Vec<_> = sizes.iter().map(|(size, padding)| (small(*size, small_frames), *padding)).collect();
        let parts: Vec<_> = messages
            .iter()
            .map(|(header, metadata, body, turn)| (pattern(*header, 1), pattern(*metadata, 2), pattern(*body, 3), *turn))
            .collect();
        let bytes: Vec<u8> =
            parts.iter().flat_map(|(header, metadata, body, turn)| shuffled(*turn, header, metadata, body)).collect();
        let script = framed(Script::answer(), &bytes, &sizes).ok();
        let found = read(script.clone(), &pieces).expect("messages");
        prop_assert_eq!(found.len(), parts.len());
        for (found, (header, metadata, body, _)) in found.iter().zip(&parts) {
            prop_assert_eq!(&found.header, header);
            prop_assert_eq!(&found.metadata, metadata);
            prop_assert!(found.body == body);
        }
        // The same messages again, with parts of each body read into buffer slots.
        runtime().block_on(async {
            let socket = Box::new(Socket::new(script, &pieces, End::Wait));
            let mut reader = open(socket, grpc_frame(b"ticket"), Patience::default()).await.expect("an answer");
            for (_, _, body, _) in &parts {
                let head = reader.next().await.expect("a message").expect("a message");
                assert_eq!(head.body_bytes, body.len());
                let mut cuts: Vec<usize> =
                    places.iter().flat_map(|(a, b)| [a, b]).map(|part| (part * body.len() as f64) as usize).collect();
                cuts.sort();
                let ranges: Vec<_> = cuts.chunks_exact(2).map(|cut| cut[0]..cut[1]).filter(|cut| !cut.is_empty()).collect();
                let mut memory: Vec<Vec<u8>> = ranges.iter().map(|range| vec![0; range.len()]).collect();
                let places =
                    memory.iter_mut().zip(&ranges).map(|(memory, range)| BufferSlot { begin: range.start, memory }).collect();
                let rest = reader.body(places).await.expect("a body");
                let mut at = 0;
                for (memory, range) in memory.iter().zip(&ranges) {
                    assert!(*memory == body[range.clone()]);
                    assert!(rest.is_placed(range));
                    assert_eq!(rest.slice(range.clone()), None);
                    assert_eq!(rest.slice(at..range.start).expect("what has no place"), body[at..range.start]);
                    at = range.end;
                }
                assert_eq!(rest.slice(at..body.len()).expect("the end"), body[at..]);
                assert_eq!(rest.slice(at..body.len() + 1), None);
            }
            assert!(reader.next().await.expect("the end").is_none());
        });
    }
}

#[test]
fn bodies_that_are_not_read_are_skipped() {
    runtime().block_on(async {
        let bytes = [message(b"one", b"", &[1; 100_000]), message(b"two", b"m", b"")].concat();
        let socket = Socket::new(framed(Script::answer(), &bytes, &[(9_000, 0)]).ok(), &[50_000], End::Wait);
        let mut reader = open(Box::new(socket), grpc_frame(b"ticket"), Patience::default()).await.expect("an answer");
        assert_eq!(reader.next().await.expect("a message").expect("one").header, "one");
        assert_eq!(reader.next().await.expect("a message").expect("two").header, "two");
        assert!(reader.next().await.expect("the end").is_none());
    });
}

#[test]
fn control_frames_are_answered_and_windows_are_given_back() {
    runtime().block_on(async {
        let body = vec![5; 40 << 20];
        let sizes = [(1 << 20, 0), (70_000, 200)];
        let script = framed(Script::answer(), &message(b"header", b"", &body), &sizes).ok();
        let pings = script.0.windows(8).filter(|bytes| bytes == b"are you?").count();
        let socket = Socket::new(script, &[1 << 20, 300_000], End::Wait);
        let written = socket.written();
        let mut reader = open(Box::new(socket), grpc_frame(b"ticket"), Patience::default()).await.expect("an answer");
        reader.next().await.expect("a message").expect("a message");
        let mut found = vec![0; body.len()];
        reader.body(vec![BufferSlot { begin: 0, memory: &mut found }]).await.expect("a body");
        assert!(found == body);
        assert!(reader.next().await.expect("the end").is_none());

        let frames = frames(&written.lock());
        assert_eq!(frames[0].0, SETTINGS);
        assert_eq!((frames[1].0, frames[1].2), (WINDOW_UPDATE, 0));
        assert_eq!((frames[2].0, frames[2].1), (HEADERS, END_HEADERS));
        assert_eq!(frames[3], (DATA, END_STREAM, 1, grpc_frame(b"ticket").to_vec()));
        assert_eq!(
            frames.iter().filter(|frame| (frame.0, frame.1, &frame.3[..]) == (PING, ACK, b"are you?")).count(),
            pings
        );
        assert!(frames.iter().any(|frame| (frame.0, frame.1) == (SETTINGS, ACK)));
        for stream in [0, 1] {
            let given: u32 = frames[3..]
                .iter()
                .filter(|frame| (frame.0, frame.2) == (WINDOW_UPDATE, stream))
                .map(|frame| u32::from_be_bytes(frame.3[..].try_into().expect("four bytes")))
                .sum();
            assert!((24 << 20..48 << 20).contains(&given), "{given}");
        }
    });
}

#[test]
fn requests_wait_for_windows() {
    runtime().block_on(async {
        let ticket = vec![1; 200_000];
        let windows = |script: Script| {
            let opened = 150_000u32.to_be_bytes();
            script.frame(WINDOW_UPDATE, 0, 0, &opened).frame(WINDOW_UPDATE, 0, 1, &opened)
        };
        let script = windows(Script::default().frame(SETTINGS, 0, 0, &[0, 5, 0, 1, 0, 0]));
        let socket = Socket::new(Script([script.0, Script::answer().0[9..].to_vec()].concat()).ok(), &[10], End::Wait);
        let written = socket.written();
        let mut reader = open(Box::new(socket), grpc_frame(&ticket), Patience::default()).await.expect("an answer");
        assert!(reader.next().await.expect("the end").is_none());
        let data: Vec<_> = frames(&written.lock()).into_iter().filter(|frame| frame.0 == DATA).collect();
        assert_eq!(data.iter().flat_map(|frame| frame.3.clone()).collect::<Vec<u8>>(), grpc_frame(&ticket));
        assert!(
            data.iter()
                .scan(0, |sum, frame| {
                    *sum += frame.3.len();
                    Some(*sum)
                })
                .any(|sum| sum == 65_535)
        );
        assert!(
            data.iter().rev().skip(1).all(|frame| frame.1 == 0) && data.last().is_some_and(|last| last.1 == END_STREAM)
        );
    });
}
