//! Tests of tickets, status codes and messages. Servers are tested in the crate of end-to-end tests.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use proptest::prelude::*;
use stoker_stream::Batch;
use stoker_types::{Cursor, Digest, ErrorKind};

use crate::client::{BatchAssembler, interleave_parts};
use crate::encode::{batch_messages, schema_message};
use crate::proto::{SqlTicket, TicketBody, ticket_body};
use crate::*;

fn signer(id: &str, secret: &str) -> TicketSigner {
    let keys = vec![(id.to_string(), secret.as_bytes().to_vec())];
    TicketSigner::try_new(keys, Duration::from_secs(60)).expect("a long secret")
}

fn body() -> TicketBody {
    let ticket = SqlTicket { sql: "SELECT 1".into(), ..SqlTicket::default() };
    TicketBody { kind: Some(ticket_body::Kind::Sql(ticket)), ..TicketBody::default() }
}

#[test]
fn tickets_are_signed_and_expire() {
    let mine = signer("a", "0123456789abcdef");
    let ticket = mine.sign(body(), 1_000);
    assert_eq!(mine.verify(&ticket, 1_059).expect("valid").kind, body().kind);
    assert_eq!(mine.verify(&ticket, 1_060).expect_err("too old").kind(), ErrorKind::Expired);
    let other_secret = signer("a", "fedcba9876543210").verify(&ticket, 1_000);
    assert_eq!(other_secret.expect_err("another secret").kind(), ErrorKind::Unauthenticated);
    let other_key = signer("b", "0123456789abcdef").verify(&ticket, 1_000);
    assert_eq!(other_key.expect_err("an unknown key").kind(), ErrorKind::Expired);
    assert!(mine.verify(b"", 0).is_err());
    assert!(TicketSigner::try_new(vec![], Duration::ZERO).is_err());
    assert!(TicketSigner::try_new(vec![("a".into(), b"short".to_vec())], Duration::ZERO).is_err());
}

#[test]
fn keys_rotate() {
    let old = ("old".to_string(), b"0123456789abcdef".to_vec());
    let new = ("new".to_string(), b"fedcba9876543210".to_vec());
    let before = TicketSigner::try_new(vec![old.clone()], Duration::from_secs(60)).expect("keys");
    let after = TicketSigner::try_new(vec![new, old], Duration::from_secs(60)).expect("keys");
    assert!(after.verify(&before.sign(body(), 5), 6).is_ok());
    assert!(before.verify(&after.sign(body(), 5), 6).is_err());
}

#[test]
fn kinds_survive_the_wire() {
    for kind in ErrorKind::ALL {
        let status = tonic::Status::from(Error::Remote { kind, message: "what and where".into() });
        let back = Error::from(status);
        assert_eq!((back.kind(), back.to_string().as_str()), (kind, "what and where"));
    }
    assert_eq!(Error::from(tonic::Status::unavailable("gone")).kind(), ErrorKind::Unavailable);
}

/// A batch of `rows` rows with strings, nulls and tensors.
fn batch(step: u64, rows: usize, first: i64) -> Batch {
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let tensor = DataType::FixedSizeList(item.clone(), 3);
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("x", tensor, false),
    ]));
    let ids = first..first + rows as i64;
    let names = ids.clone().map(|id| (id % 3 != 0).then(|| "n".repeat(id as usize % 50)));
    let values = Int64Array::from_iter_values(ids.clone().flat_map(|id| [id, id + 1, id + 2]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(StringArray::from_iter(names)),
        Arc::new(FixedSizeListArray::new(item, 3, Arc::new(values), None)),
    ];
    Batch {
        step,
        cursor: Cursor { stream_id: Digest::of(b"s"), epoch: 2, position: step * 10 },
        data: RecordBatch::try_new(schema, columns).expect("a batch"),
        num_valid: rows / 2,
        row_addrs: vec![ids.map(|id| id as u64).collect()],
    }
}

fn same(one: &Batch, other: &Batch) -> bool {
    let data = one.data == other.data && one.row_addrs == other.row_addrs;
    data && (one.step, one.cursor, one.num_valid) == (other.step, other.cursor, other.num_valid)
}

fn assemble(batches: &[Batch], message_bytes: usize) -> Vec<Batch> {
    let id = Digest::of(b"s");
    let mut messages = vec![Ok(schema_message(&batches[0].data.schema()))];
    for batch in batches {
        messages.extend(batch_messages(batch, id, message_bytes).expect("messages").into_iter().map(Ok));
    }
    let mut assembler = BatchAssembler::new(Box::pin(futures::stream::iter(messages)), id);
    let next = || futures::executor::block_on(assembler.next()).expect("a batch");
    std::iter::from_fn(next).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn messages_carry_batches_unchanged(
        rows in proptest::collection::vec(0usize..200, 1..5), message_bytes in 1usize..5_000, cut in 0usize..50,
    ) {
        let batches: Vec<Batch> = rows.iter().enumerate().map(|(step, rows)| {
            // A slice of a larger batch: buffers begin before its first row.
            let mut batch = batch(step as u64, rows + cut, 100);
            batch.data = batch.data.slice(cut, *rows);
            batch.row_addrs[0].drain(..cut);
            batch
        }).collect();
        let back = assemble(&batches, message_bytes);
        prop_assert_eq!(back.len(), batches.len());
        prop_assert!(back.iter().zip(&batches).all(|(one, other)| same(one, other)));
    }

    #[test]
    fn endpoints_interleave_to_the_whole(rows in 0usize..50, endpoints in 1usize..5, first in 0usize..5) {
        let first = first % endpoints;
        let whole = batch(4, rows, 7);
        let part = |endpoint: usize| {
            let indices: Vec<usize> = ((endpoint + endpoints - first) % endpoints..rows).step_by(endpoints).collect();
            let pieces: Vec<RecordBatch> = indices.iter().map(|row| whole.data.slice(*row, 1)).collect();
            let addrs = indices.iter().map(|row| whole.row_addrs[0][*row]).collect();
            let data = concat_batches(&whole.data.schema(), &pieces).expect("rows");
            let num_valid = indices.iter().filter(|row| **row < whole.num_valid).count();
            Batch { data, num_valid, row_addrs: vec![addrs], ..whole.clone() }
        };
        let merged = interleave_parts((0..endpoints).map(part).collect(), first as u64).expect("parts of one step");
        prop_assert!(same(&merged, &whole));
    }
}
