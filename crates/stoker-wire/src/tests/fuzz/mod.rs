//! Bytes of servers, clients and users, changed at random.

mod beside_answer;
mod commands;
mod messages;
mod schemas;
mod tickets;

use arrow_array::{Array, RecordBatch};

/// Checks that the arrays of a record batch are valid.
fn check_arrays(batch: &RecordBatch) {
    for column in batch.columns() {
        assert_eq!(column.len(), batch.num_rows());
        column.to_data().validate_full().expect("a valid array");
    }
}
