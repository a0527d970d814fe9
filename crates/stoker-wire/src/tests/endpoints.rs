//! The distribution of a rank's rows over endpoints.

use proptest::prelude::*;
use stoker_types::{BatchSize, Batching, LastBatch, Slice, Topology};

use crate::convert::endpoint_slice;

/// Returns the positions of the rows of a share.
fn positions(slice: &Slice, step: u64, num_rows: u64) -> Vec<u64> {
    let share = slice.share(step, num_rows);
    (0..share.num_rows).map(|index| share.position(index)).collect()
}

proptest! {
    #[test]
    fn the_rows_of_a_rank_are_dealt_to_its_endpoints_in_turn(
        world_size in 1u32..6,
        rank_seed: u32,
        endpoints in 1u32..5,
        global in 1u64..40,
        num_rows in 0u64..200,
        origin in 0u64..50,
        last in prop::sample::select(vec![LastBatch::Pad, LastBatch::Drop, LastBatch::Uneven]),
    ) {
        let topology = Topology { rank: rank_seed % world_size, world_size };
        let batching = Batching { size: BatchSize::Global(global), last };
        let slice = Slice { origin: origin.min(num_rows), ..Slice::new(topology, batching, 0) };
        for step in 0..slice.num_steps(num_rows) {
            let expected = positions(&slice, step, num_rows);
            let parts: Vec<Vec<u64>> = (0..endpoints)
                .map(|endpoint| positions(&endpoint_slice(&slice, endpoint, endpoints), step, num_rows))
                .collect();
            prop_assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), expected.len());
            let first = slice.first_endpoint(step, endpoints) as usize;
            let count = endpoints as usize;
            let found: Vec<u64> = (0..expected.len()).map(|row| parts[(first + row) % count][row / count]).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
