//! Tests of streams that read local files past the page cache.

use stoker_chunks::LocalReads;
use stoker_types::ReadOptions;

use super::*;

#[test]
fn direct_reads_give_the_same_batches() {
    run(async {
        for (num_rows, width) in [(700, WIDTH), (500, 2_048), (60, 150_528)] {
            let folder = tempfile::tempdir().expect("a folder");
            let engine = engine_of(folder.path().to_str().expect("UTF-8"), num_rows, width).await;
            for (shuffle, version) in ORDERS {
                let plan = plan_of_version(&engine, ALL, shuffle, version).await;
                let slice = slice(0, 1, BatchSize::PerRank(64), LastBatch::Pad);
                let budget = Resources::default().with_local_reads(LocalReads::Direct);
                let mut direct = plan.open_within(&budget, &slice, &ReadOptions::default()).expect("a stream");
                let mut plain = plan.open(&slice, &ReadOptions::default()).expect("a stream");
                while let Some(expected) = plain.next().await.expect("a batch") {
                    let batch = direct.next().await.expect("a batch").expect("not the end");
                    assert!(batch.data == expected.data, "{width} bytes, {shuffle:?}, step {}", batch.step);
                    assert!(batch.cursor == expected.cursor && batch.row_addrs == expected.row_addrs);
                }
                assert!(direct.next().await.expect("the end").is_none());
                let (found, expected) = (direct.stats(), plain.stats());
                assert_eq!((found.rows, found.verified_bytes), (expected.rows, expected.verified_bytes));
                assert!(found.bytes_read >= num_rows as u64 * width as u64, "{found:?}");
            }
        }
    });
}
