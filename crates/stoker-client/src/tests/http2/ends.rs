//! The ends of answers.

use stoker_types::ErrorKind;

use crate::tests::http2::script::*;

const WHOLE: &[usize] = &[1 << 20];

fn check(script: Script, kind: ErrorKind, text: &str) {
    let error = read(script, WHOLE).expect_err(text);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(text), "{error}, not {text}");
}

#[test]
fn an_answer_that_is_cut_off_anywhere_is_an_error() {
    let script = Script::answer()
        .frame(PING, 0, 0, b"are you?")
        .data(&message(b"header", b"metadata", b"the body")[..20])
        .data(&message(b"header", b"metadata", b"the body")[20..])
        .trailers(&[("grpc-status", "0"), ("grpc-message", "fine")]);
    let whole = read(script.clone(), &[1]).expect("a message");
    assert_eq!(whole[0].body, "the body");
    for length in 0..script.0.len() {
        let error = read(Script(script.0[..length].to_vec()), &[7]).expect_err("cut off");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "after {length} bytes: {error}");
    }
}

#[test]
fn servers_say_why_they_fail() {
    let refused = [("grpc-status", "8"), ("grpc-message", "too%20many"), ("grpc-status-details-bin", "!not base64!")];
    let part = &message(b"header", b"", b"body")[..9];
    check(Script::answer().trailers(&refused), ErrorKind::ResourceExhausted, "too many");
    check(Script::answer().data(part).trailers(&refused), ErrorKind::ResourceExhausted, "too many");
    let only = [&[(":status", "200")], &refused[..]].concat();
    let settings = || Script::default().frame(SETTINGS, 0, 0, b"");
    check(settings().trailers(&only), ErrorKind::ResourceExhausted, "too many");
    check(settings().headers(&only), ErrorKind::ResourceExhausted, "too many");
    let end = settings().trailers(&[(":status", "200"), ("grpc-status", "0")]);
    assert_eq!(read(end, WHOLE).expect("no messages"), []);
}

#[test]
fn answers_without_an_end_are_not_complete() {
    let whole = message(b"header", b"", b"body");
    check(
        Script::answer().data(&whole).trailers(&[("other", "1")]),
        ErrorKind::Unavailable,
        "ended before it was complete",
    );
    check(Script::answer().frame(DATA, END_STREAM, 1, &whole), ErrorKind::Unavailable, "ended before it was complete");
    check(Script::answer().data(&whole[..11]).ok(), ErrorKind::Unavailable, "ended before it was complete");
    check(Script::answer().data(&whole[..3]).ok(), ErrorKind::Unavailable, "ended before it was complete");
}

#[test]
fn answers_that_are_not_grpc_are_refused() {
    let begin = Script::default().frame(SETTINGS, 0, 0, b"");
    check(begin.clone().headers(&[(":status", "503")]), ErrorKind::Unavailable, "503");
    let page = begin.clone().headers(&[(":status", "200"), ("content-type", "text/html")]);
    check(page, ErrorKind::Unavailable, "text/html");
    check(Script(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), ErrorKind::Unavailable, "does not speak HTTP/2");
    check(Script(b"\x15\x03\x01\x00\x02\x02\x50\x00\x00".to_vec()), ErrorKind::Unavailable, "does not speak HTTP/2");
    let early = begin.headers(&[(":status", "103")]).headers(&[(":status", "200")]).ok();
    assert_eq!(read(early, WHOLE).expect("no messages"), []);
}

#[test]
fn connections_that_end_say_why() {
    let part = &message(b"header", b"", b"body")[..9];
    let reset = Script::answer().data(part).frame(RESET, 0, 1, &[0, 0, 0, 7]);
    check(reset, ErrorKind::Unavailable, "REFUSED_STREAM");
    let away = |last, code| [[0, 0, 0, last], [0, 0, 0, code]].concat();
    check(Script::answer().frame(GO_AWAY, 0, 0, &away(0, 0)), ErrorKind::Unavailable, "NO_ERROR");
    check(Script::answer().frame(GO_AWAY, 0, 0, &away(1, 11)).data(part), ErrorKind::Unavailable, "ENHANCE_YOUR_CALM");
}
