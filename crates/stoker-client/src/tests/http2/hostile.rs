//! Servers that violate the protocol cause errors.

use proptest::prelude::*;
use stoker_types::ErrorKind;

use crate::grpc::grpc_frame;
use crate::tests::http2::script::*;

fn check(name: &str, script: Script, kind: ErrorKind) {
    let error = read(script, &[4_096]).expect_err(name);
    assert_eq!(error.kind(), kind, "{name}: {error}");
    // The error must not come from the end of the script.
    assert!(!error.to_string().contains("closed it"), "{name}: {error}");
}

fn settings(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

#[test]
fn frames_that_break_the_rules_are_refused() {
    let answer = Script::answer;
    let begin = || Script::default().frame(SETTINGS, 0, 0, b"");
    let open_wide = u32::MAX >> 1;
    for (name, script) in [
        ("no settings", Script::default().headers(&[(":status", "200")])),
        ("settings that acknowledge first", Script::default().frame(SETTINGS, ACK, 0, b"")),
        ("data first", begin().data(b"x")),
        ("a frame that is too long", answer().data(&vec![0; (1 << 20) + 1])),
        ("data of the connection", answer().frame(DATA, 0, 0, b"x")),
        ("data of another stream", answer().frame(DATA, 0, 3, b"x")),
        ("headers of another stream", begin().frame(HEADERS, END_HEADERS, 3, &block(&[(":status", "200")]))),
        ("a reset of another stream", answer().frame(RESET, 0, 3, &[0; 4])),
        ("settings of a stream", answer().frame(SETTINGS, 0, 1, b"")),
        ("a ping of a stream", answer().frame(PING, 0, 1, &[0; 8])),
        ("a goaway of a stream", answer().frame(GO_AWAY, 0, 1, &[0; 8])),
        ("a push", answer().frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])),
        ("padding without a frame", answer().frame(DATA, PADDED, 1, b"")),
        ("padding that is too long", answer().frame(DATA, PADDED, 1, &[4, 0, 0, 0])),
        ("headers with too much padding", begin().frame(HEADERS, END_HEADERS | PADDED, 1, &[3, 0x88, 0])),
        ("headers without their priority", begin().frame(HEADERS, END_HEADERS | 0x20, 1, &[0; 4])),
        ("a short ping", answer().frame(PING, 0, 0, &[0; 7])),
        ("a short goaway", answer().frame(GO_AWAY, 0, 0, &[0; 7])),
        ("a short reset", answer().frame(RESET, 0, 1, &[0; 3])),
        ("a short priority", answer().frame(PRIORITY, 0, 1, &[0; 4])),
        ("short settings", answer().frame(SETTINGS, 0, 0, &[0; 5])),
        ("settings that acknowledge something", answer().frame(SETTINGS, ACK, 0, &[0; 6])),
        ("push on", answer().frame(SETTINGS, 0, 0, &settings(2, 1))),
        ("a window that is too large", answer().frame(SETTINGS, 0, 0, &settings(4, 1 << 31))),
        ("frames that are too small", answer().frame(SETTINGS, 0, 0, &settings(5, 1))),
        ("frames that are too large", answer().frame(SETTINGS, 0, 0, &settings(5, 1 << 24))),
        ("nothing opened", answer().frame(WINDOW_UPDATE, 0, 1, &[0; 4])),
        ("an opening of another stream", answer().frame(WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1])),
        ("too much opened", answer().frame(WINDOW_UPDATE, 0, 1, &open_wide.to_be_bytes())),
        ("too much opened for all", answer().frame(WINDOW_UPDATE, 0, 0, &open_wide.to_be_bytes())),
        ("a continuation without a beginning", answer().frame(CONTINUATION, END_HEADERS, 1, b"")),
        ("headers that are interrupted", begin().frame(HEADERS, 0, 1, &[0x88]).frame(PING, 0, 0, &[0; 8])),
        ("headers again", answer().headers(&[("grpc-status", "0")])),
        ("a status again", answer().trailers(&[(":status", "200"), ("grpc-status", "0")])),
        ("two statuses", begin().headers(&[(":status", "200"), (":status", "200")])),
        ("a late status", begin().headers(&[("a", "b"), (":status", "200")])),
        ("no status", begin().headers(&[("a", "b")])),
        ("an odd status", begin().headers(&[(":status", "fine")])),
        ("a name in capitals", begin().headers(&[(":status", "200"), ("Content", "b")])),
        ("a line break", begin().headers(&[(":status", "200"), ("a", "b\r\nc: d")])),
        ("an unknown index", begin().frame(HEADERS, END_HEADERS, 1, &[0xff, 0x00])),
        ("long headers", begin().headers(&[(":status", "200"), ("a", &"b".repeat(70_000))])),
    ] {
        check(name, script, ErrorKind::Unavailable);
    }
}

#[test]
fn what_a_server_can_make_the_client_keep_is_bounded() {
    let begin = || Script::default().frame(SETTINGS, 0, 0, b"");
    let mut long = begin().frame(HEADERS, 0, 1, &[0x88]);
    let mut endless = long.clone();
    for _ in 0..5 {
        long = long.frame(CONTINUATION, 0, 1, &[0; 16 << 10]);
    }
    check("long headers in parts", long, ErrorKind::Unavailable);
    for _ in 0..10_001 {
        endless = endless.frame(CONTINUATION, 0, 1, b"");
    }
    check("endless headers", endless, ErrorKind::Unavailable);
    // Each byte 0xbe stands for a field of 4 kB in the table.
    let large = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e][..], &vec![b'b'; 4_000], &[0xbe; 100]].concat();
    check("headers that unfold", begin().frame(HEADERS, END_HEADERS, 1, &large), ErrorKind::Unavailable);
    let mut pings = Script::answer();
    for _ in 0..10_001 {
        pings = pings.frame(PING, 0, 0, &[0; 8]);
    }
    check("endless pings", pings, ErrorKind::Unavailable);
    let mut nothing = Script::answer();
    for _ in 0..10_001 {
        nothing = nothing.data(b"");
    }
    check("endless nothing", nothing, ErrorKind::Unavailable);
}

#[test]
fn messages_that_break_the_rules_are_bugs() {
    for (name, bytes) in [
        ("a compressed message", &b"\x01\x00\x00\x00\x00"[..]),
        ("a message that is too long", b"\x00\xff\xff\xff\xff"),
        ("a field that is longer than its message", b"\x00\x00\x00\x00\x02\x12\x7f"),
        ("a field of another type", b"\x00\x00\x00\x00\x02\x08\x01"),
        ("a field without a length", b"\x00\x00\x00\x00\x01\x12"),
        ("a number without an end", b"\x00\x00\x00\x00\x0d\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
    ] {
        check(name, Script::answer().data(bytes).ok(), ErrorKind::Internal);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn garbage_is_an_error_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), place in 0usize..3) {
        let script = match place {
            0 => Script::default(),
            1 => Script::default().frame(SETTINGS, 0, 0, b""),
            _ => Script::answer(),
        };
        prop_assert!(read(Script([script.0, bytes].concat()), &[50]).is_err());
    }

    #[test]
    fn garbage_in_messages_is_an_error_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        drop(read(Script::answer().data(&bytes).ok(), &[50]));
        drop(read(Script::answer().data(&grpc_frame(&bytes)).ok(), &[50]));
    }

    #[test]
    fn damage_is_an_error_or_harmless(at in 0.0f64..1.0, bit in 0u32..8) {
        let mut script = Script::answer().data(&message(b"header", b"metadata", &[7; 50])).frame(PING, 0, 0, &[1; 8]).ok();
        let at = (at * script.0.len() as f64) as usize;
        script.0[at] ^= 1 << bit;
        drop(read(script, &[50]));
    }

    #[test]
    fn garbage_in_headers_is_an_error_not_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        drop(read(Script::default().frame(SETTINGS, 0, 0, b"").frame(HEADERS, END_HEADERS, 1, &bytes), &[50]));
    }
}
