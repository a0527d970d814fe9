//! Answers of a server to the action `rows_beside`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray};
use stoker_batch::RowsBeside;
use stoker_fuzz::Target;
use stoker_types::{ErrorKind, IoTotals};

use super::check_arrays;
use crate::beside_answer::{decode, encode};

const TOKENS: [&str; 6] =
    ["stoker.rows_beside", "{\"row_addrs\":[[1,2]],", "\"bad\":{\"1\":\"x\"}}", "[]", ",", "\\u0000"];

/// The most rows that are asked for, and the number of tables.
const LIMITS: (usize, usize) = (4, 2);

fn rows(num_rows: usize) -> RowsBeside {
    let texts: StringArray = (0..num_rows).map(|row| (row > 0).then(|| "ab".repeat(row))).collect();
    let hashes = FixedSizeBinaryArray::try_from_iter((0..num_rows).map(|row| [row as u8; 3])).expect("hashes");
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..num_rows as i64)), false),
        ("text", Arc::new(texts), true),
        ("hash", Arc::new(hashes), false),
    ];
    let data = RecordBatch::try_from_iter_with_nullable(columns).expect("a batch");
    let row_addrs = vec![(0..num_rows as u64).collect(), vec![u64::MAX; num_rows]];
    let bad = BTreeMap::from([(num_rows - 1, "a checksum".to_string())]);
    RowsBeside { data, row_addrs, bad, io: IoTotals::default(), held: None }
}

#[test]
fn answers_are_refused_or_the_same_again() {
    let schema = rows(1).data.schema();
    let seeds = [1, 2, LIMITS.0].map(|num_rows| encode(&rows(num_rows)).expect("an answer"));
    Target::new("rows beside").seeds(seeds).tokens(TOKENS).memory_bytes_max(2 << 20).run(|input| {
        match decode(input.to_vec(), &schema, LIMITS.1, LIMITS.0) {
            Ok(found) => {
                check_arrays(&found.data);
                assert!((1..=LIMITS.0).contains(&found.data.num_rows()));
                let again = decode(encode(&found).expect("an answer"), &schema, LIMITS.1, LIMITS.0).expect("an answer");
                assert_eq!((&again.data, &again.row_addrs, &again.bad), (&found.data, &found.row_addrs, &found.bad));
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
                false
            }
        }
    });
}
