//! Tests that work on a table can move between threads.

use stoker_lake::Table;

use crate::{describe, doctor};

fn is_send<T: Send>(_: T) {}

/// Compiles only if every future is `Send`; no future is awaited.
fn futures_are_send(table: &Table) {
    is_send(describe(table));
    is_send(doctor(table));
}

#[test]
fn futures_move_between_threads() {
    let _ = futures_are_send;
}
