//! Tickets of clients.

use std::time::Duration;

use prost::Message;
use stoker_fuzz::Target;
use stoker_types::ErrorKind;

use crate::TicketSigner;
use crate::proto::{
    PinnedTable, ReadPolicy, SignedTicket, Slice, SqlTicket, StreamPoll, StreamTicket, TicketBody, slice, ticket_body,
};
use crate::ticket::TICKET_VERSION;

const NOW: u64 = 1_800_000_000;

fn signer() -> TicketSigner {
    let keys = [("a", "sixteen bytes or more"), ("b", "other sixteen bytes or more"), ("", "a key without a name")];
    let keys = keys.map(|(id, secret)| (id.to_string(), secret.as_bytes().to_vec())).to_vec();
    TicketSigner::try_new(keys, Duration::from_secs(60)).expect("good keys")
}

fn bodies() -> Vec<TicketBody> {
    let slice = Slice {
        rank: 1,
        world_size: 2,
        batch_size: Some(slice::BatchSize::PerRank(3)),
        last_batch: "drop".into(),
        epoch: 4,
        origin: 5,
        first_step: 6,
    };
    let read = ReadPolicy { bad_rows: "substitute".into(), max_bad_share: Some(0.5), ..ReadPolicy::default() };
    let stream = StreamTicket { stream_id: "ab".repeat(32), spec: vec![1; 9], slice: Some(slice), read: Some(read) };
    let tables = vec![PinnedTable { table: "t".into(), version: 3 }];
    let sql = SqlTicket {
        sql: "SELECT 1".into(),
        params_json: "[1]".into(),
        tables,
        compression: "lz4".into(),
        ..SqlTicket::default()
    };
    let poll = StreamPoll { command: vec![8, 1], principal: "anna".into(), nonce: 7, progress: 0.5 };
    let kinds = [ticket_body::Kind::Stream(stream), ticket_body::Kind::Sql(sql), ticket_body::Kind::Poll(poll)];
    let kinds = std::iter::once(None).chain(kinds.map(Some));
    kinds.map(|kind| TicketBody { kind, ..TicketBody::default() }).collect()
}

#[test]
fn only_signed_bodies_are_accepted() {
    let signer = signer();
    let tickets: Vec<Vec<u8>> = bodies().into_iter().map(|body| signer.sign(body, NOW)).collect();
    let signed: Vec<SignedTicket> =
        tickets.iter().map(|ticket| SignedTicket::decode(ticket.as_slice()).expect("a ticket")).collect();
    Target::new("tickets").seeds(tickets).memory_bytes_max(1 << 20).run(|input| {
        match signer.verify(input, NOW) {
            Ok(body) => {
                // Unknown fields beside the signed ones change nothing.
                let found = SignedTicket::decode(input).expect("a ticket");
                assert!(signed.contains(&found));
                assert_eq!(TicketBody::decode(found.body.as_slice()), Ok(body));
                assert!(signer.verify(input, NOW + 60).is_err());
                true
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::Expired), "{error}");
                false
            }
        }
    });
}

#[test]
fn bodies_are_the_same_after_they_were_signed() {
    let signer = signer();
    let seeds = bodies().into_iter().map(|body| body.encode_to_vec());
    Target::new("ticket bodies").seeds(seeds).memory_bytes_max(1 << 20).run(|input| {
        let Ok(body) = TicketBody::decode(input) else { return false };
        let found = signer.verify(&signer.sign(body.clone(), NOW), NOW).expect("a signed ticket");
        let body = TicketBody { version: TICKET_VERSION, expires_unix_secs: NOW + 60, ..body };
        assert_eq!(found.encode_to_vec(), body.encode_to_vec());
        true
    });
}
