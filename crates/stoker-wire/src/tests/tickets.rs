//! Tickets are valid only as they were signed.

use std::time::Duration;

use prost::Message;
use stoker_types::ErrorKind;

use crate::TicketSigner;
use crate::proto::{SignedTicket, SqlTicket, TicketBody, ticket_body};

const NOW: u64 = 1_800_000_000;

fn signer(keys: &[(&str, &str)]) -> TicketSigner {
    let keys = keys.iter().map(|(id, secret)| (id.to_string(), secret.as_bytes().to_vec())).collect();
    TicketSigner::try_new(keys, Duration::from_secs(60)).expect("good keys")
}

fn body() -> TicketBody {
    let sql = SqlTicket { sql: "SELECT 1".into(), ..SqlTicket::default() };
    TicketBody { kind: Some(ticket_body::Kind::Sql(sql)), ..TicketBody::default() }
}

const A: (&str, &str) = ("a", "sixteen bytes or more");
const B: (&str, &str) = ("b", "other sixteen bytes or more");

#[test]
fn a_ticket_is_valid_on_every_replica_until_it_expires() {
    let ticket = signer(&[A]).sign(body(), NOW);
    let found = signer(&[B, A]).verify(&ticket, NOW + 59).expect("a good ticket");
    assert_eq!(found.kind, body().kind);
    let expired = signer(&[A]).verify(&ticket, NOW + 60).expect_err("too old");
    assert_eq!(expired.kind(), ErrorKind::Expired);
}

#[test]
fn a_changed_ticket_is_refused_whatever_changed() {
    let ticket = signer(&[A]).sign(body(), NOW);
    for at in 0..ticket.len() {
        for bit in [1, 0x80] {
            let mut changed = ticket.clone();
            changed[at] ^= bit;
            let error = signer(&[A]).verify(&changed, NOW).expect_err("a changed ticket");
            assert!(matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::Expired), "{error}");
        }
    }
    for garbage in [&b""[..], b"garbage", &ticket[..ticket.len() - 1]] {
        assert!(signer(&[A]).verify(garbage, NOW).is_err());
    }
}

#[test]
fn an_unknown_key_asks_for_a_new_ticket_and_another_secret_is_refused() {
    let ticket = signer(&[A]).sign(body(), NOW);
    assert_eq!(signer(&[B]).verify(&ticket, NOW).expect_err("unknown").kind(), ErrorKind::Expired);
    let same_name = signer(&[("a", B.1)]).verify(&ticket, NOW).expect_err("another secret");
    assert_eq!(same_name.kind(), ErrorKind::Unauthenticated);
    // The signature also covers the name of the key.
    let mut renamed = SignedTicket::decode(ticket.as_slice()).expect("a ticket");
    renamed.key_id = "c".into();
    let renamed = signer(&[("c", A.1)]).verify(&renamed.encode_to_vec(), NOW).expect_err("renamed");
    assert_eq!(renamed.kind(), ErrorKind::Unauthenticated);
}

#[test]
fn weak_keys_are_refused() {
    for keys in [vec![], vec![("a".to_string(), b"short".to_vec())]] {
        let error = TicketSigner::try_new(keys, Duration::from_secs(1)).map(|_| ()).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
}
