//! Targets, and the addresses that they name.

use crate::{Address, Error};

fn check(target: &str, expected: &[&str]) {
    let addresses = Address::parse_all(target).expect("a target").unwrap_or_default();
    let found: Vec<String> = addresses
        .iter()
        .map(|address| if address.is_tls() { format!("tls {address}") } else { address.to_string() })
        .collect();
    assert_eq!(found, expected, "{target}");
}

#[test]
fn a_scheme_holds_for_the_addresses_after_it() {
    check("grpc://a:1", &["a:1"]);
    check("grpc://a:1/, b:2,,", &["a:1", "b:2"]);
    check("grpc://a:1 /,b:2", &["a:1", "b:2"]);
    check("grpc+tls://a:1,b:2", &["tls a:1", "tls b:2"]);
    check("unix:///run/a b,/run/c", &["unix:///run/a b", "unix:///run/c"]);
    check("grpc+unix:///run/a,unix:/run/b", &["unix:///run/a", "unix:///run/b"]);
    check("unix:///run/a,grpc+tls://b:2,c:3,grpc://d:4", &["unix:///run/a", "tls b:2", "tls c:3", "d:4"]);
}

#[test]
fn other_targets_are_lakes() {
    for target in ["./lake", "/a,grpc://b:1", "s3://bucket/lake", "memory://", "http://a:1", "unix", ""] {
        check(target, &[]);
    }
}

#[test]
fn addresses_that_name_no_server_are_refused() {
    let long = format!("unix:///{}", "x".repeat(107));
    for (target, said) in [
        ("grpc://", "the target names no server"),
        ("grpc+tls:/// /", "the target names no server"),
        ("unix://", "the target names no server"),
        ("unix://run/socket", "\"run/socket\" is not the absolute path of a Unix socket; write unix:///path"),
        ("grpc+unix:socket", "\"socket\" is not the absolute path"),
        ("unix:///run/a\0b", "has a zero byte"),
        ("unix:///run/a,b:1", "\"b:1\" is not the absolute path"),
        (long.as_str(), "has 108 bytes; the path of a Unix socket has 107 at most"),
    ] {
        let error = Address::parse_all(target).expect_err(target);
        assert!(matches!(error, Error::Invalid { .. }));
        assert!(error.to_string().contains(said), "{target}: {error}");
    }
    check(&long[..long.len() - 1], &[&long[..long.len() - 1]]);
}
