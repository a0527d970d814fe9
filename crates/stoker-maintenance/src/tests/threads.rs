//! Tests that work on a table can move between threads.

use stoker_lake::{LakeStore, Table};

use super::data::table_name;
use crate::{describe, doctor, quarantine};

fn is_send<T: Send>(_: T) {}

/// Compiles only if every future is `Send`; no future is awaited.
fn futures_are_send(lake: &LakeStore, table: &Table) {
    is_send(describe(table));
    is_send(doctor(table));
    is_send(quarantine(lake, &table_name("t"), &[], None));
}

#[test]
fn futures_move_between_threads() {
    let _ = futures_are_send;
}
