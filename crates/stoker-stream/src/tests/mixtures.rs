//! Tests of streams over several queries.

use std::time::Duration;

use stoker_batch::{entry_slice, step_entry};
use stoker_clock::{Clock, ManualClock};
use stoker_types::{
    ErrorKind, MixOptions, MixtureStop, PlanRequest, Query, ReadOptions, RunEntry, RunEvent, RunId, StreamOptions,
};

use super::*;

pub fn request(weights: &[f64], stop: MixtureStop, epoch_rows: u64) -> PlanRequest {
    let queries =
        ["SELECT x, id, name FROM t WHERE id < 300", "SELECT x, id, name FROM t WHERE id >= 300 AND id % 2 = 0"];
    PlanRequest {
        queries: queries.iter().map(|sql| Query::new(*sql, &[])).collect(),
        mix: Some(MixOptions { weights: weights.to_vec(), stop, epoch_rows }),
        options: StreamOptions {
            seed: 7,
            shuffle_window_bytes: Some(400 << 10),
            block_bytes: 8 << 10,
            num_lanes: 12,
            ..StreamOptions::default()
        },
        run_id: None,
    }
}

/// Returns the ids of an epoch from all ranks, in the order of positions.
async fn epoch(plan: &StreamPlan, epoch: u64, world: u32, origin: u64) -> Vec<i64> {
    let mut by_position = BTreeMap::new();
    for rank in 0..world {
        let slice = Slice { epoch, origin, ..slice(rank, world, BatchSize::Global(50), LastBatch::Uneven) };
        let steps = slice.num_steps(plan.num_rows());
        for (step, ids) in ids(plan, slice, steps).await.into_iter().enumerate() {
            let share = slice.share(step as u64, plan.num_rows());
            ids.into_iter().enumerate().for_each(|(row, id)| {
                by_position.insert(share.position(row as u64), id);
            });
        }
    }
    by_position.into_values().collect()
}

#[test]
fn mixtures_are_elastic_and_sources_come_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = StreamPlan::plan(&engine, &request(&[0.75, 0.25], MixtureStop::First, 0)).await.expect("a plan");
        // The first query has 300 rows and three quarters of the draws, the second 350 rows and a quarter: an epoch
        // ends with the first query.
        let first = epoch(&plan, 0, 1, 0).await;
        assert_eq!(first.len() as u64, plan.num_rows());
        assert!((399..=401).contains(&plan.num_rows()), "{}", plan.num_rows());
        let small: Vec<i64> = first.iter().copied().filter(|id| *id < 300).collect();
        assert_eq!(small.iter().collect::<std::collections::BTreeSet<_>>().len(), 300);
        for (rows, id) in first.iter().enumerate() {
            let seen = first[..=rows].iter().filter(|id| **id < 300).count() as f64;
            assert!((seen - 0.75 * (rows + 1) as f64).abs() < 1.0, "{seen} of {rows} at {id}");
        }
        for world in [2, 3, 7] {
            assert_eq!(epoch(&plan, 0, world, 0).await, first);
            assert_eq!(epoch(&plan, 0, world, 131).await, first[131..]);
        }
        // The larger query continues where the last epoch ended: over several epochs, each of its rows comes once
        // before any comes again.
        let mut large = Vec::new();
        for number in 0..4 {
            large.extend(epoch(&plan, number, 2, 0).await.into_iter().filter(|id| *id >= 300));
        }
        let rows: std::collections::BTreeSet<_> = large[..350].iter().collect();
        assert_eq!(rows.len(), 350);
        assert_ne!(large[..30], large[350..380], "epochs of a source differ");
        let found = StreamPlan::load_by_id(&engine, plan.stream_id()).await.expect("the same stream");
        assert_eq!(epoch(&found, 1, 3, 0).await, epoch(&plan, 1, 1, 0).await);
    });
}

#[test]
fn weights_change_at_a_position_and_the_past_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = StreamPlan::plan(&engine, &request(&[1.0, 1.0], MixtureStop::Rows, 400)).await.expect("a plan");
        let changed = plan.reweigh(&engine, 0, 150, &[1.0, 4.0], WeightHistory::Linked).await.expect("other weights");
        assert_ne!(plan.stream_id(), changed.stream_id());
        assert!(changed.spec().continues(plan.spec()) && plan.spec().continues(changed.spec()));
        let (before, after) = (epoch(&plan, 0, 1, 0).await, epoch(&changed, 0, 3, 0).await);
        assert_eq!(before[..150], after[..150]);
        let small = after[150..].iter().filter(|id| **id < 300).count();
        assert_eq!(small, 50);
        // No row of the small query came before, because the query continues where it was.
        let seen: Vec<i64> = after.iter().copied().filter(|id| *id < 300).collect();
        assert_eq!(seen.iter().collect::<std::collections::BTreeSet<_>>().len(), seen.len());
        let again =
            changed.reweigh(&engine, 0, 150, &[1.0, 4.0], WeightHistory::Linked).await.expect("the same weights");
        assert_eq!(again.stream_id(), changed.stream_id());
        let one = StreamPlan::create(&engine, ALL, &[], &StreamOptions::default()).await.expect("a plan");
        for (plan, weights) in [(&one, &[1.0][..]), (&plan, &[1.0]), (&plan, &[0.0, 1.0])] {
            let error = plan
                .reweigh(&engine, 0, 0, weights, WeightHistory::Linked)
                .await
                .map(|_| ())
                .expect_err("weights that do not fit");
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        }
    });
}

/// Returns the paths of all stored specifications.
async fn specs(engine: &Engine) -> Vec<String> {
    engine.lake().objects().list("specs").await.expect("a listing")
}

#[test]
fn a_change_of_weights_costs_the_same_however_many_came_before() {
    const CHANGES: u64 = 1_000;
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = StreamPlan::plan(&engine, &request(&[1.0, 1.0], MixtureStop::Rows, 1_100)).await.expect("a plan");
        let (mut linked, mut whole) = (plan.clone(), plan.clone());
        let mut most_bytes = 0;
        for change in 1..=CHANGES {
            let weights = [1.0, (change % 7 + 1) as f64];
            linked = linked.reweigh(&engine, 0, change, &weights, WeightHistory::Linked).await.expect("other weights");
            most_bytes = most_bytes.max(linked.spec().to_json().len());
        }
        assert_eq!(specs(&engine).await.len() as u64, 1 + CHANGES, "a change stores one object");
        assert!(most_bytes < plan.spec().to_json().len() + 4_096, "{most_bytes} bytes");
        for change in 1..=CHANGES {
            let weights = [1.0, (change % 7 + 1) as f64];
            whole = whole.reweigh(&engine, 0, change, &weights, WeightHistory::Whole).await.expect("other weights");
        }
        assert!(whole.spec().to_json().len() > 10 * most_bytes, "what it would be otherwise");
        assert!(linked.spec().continues(plan.spec()) && plan.spec().continues(linked.spec()));
        assert!(linked.spec().continues(whole.spec()) && whole.spec().continues(linked.spec()));

        // The whole mixture can still be read, from any position on, also after it is loaded again.
        let expected = epoch(&whole, 0, 1, 0).await;
        let again = StreamPlan::load_by_id(&engine, linked.stream_id()).await.expect("the stream");
        assert_eq!(epoch(&again, 0, 1, 0).await, expected);
        for origin in [1, 31, 500, 967, 999, 1_050] {
            assert_eq!(epoch(&again, 0, 2, origin).await, expected[origin as usize..], "from {origin}");
        }
        let positions: Vec<u64> = (0..1_100).collect();
        assert_eq!(
            again.row_addrs(0, &positions).await.expect("addresses"),
            whole.row_addrs(0, &positions).await.expect("addresses")
        );

        // A change of weights at an earlier draw drops the later changes.
        let weights = [3.0, 1.0];
        let back = again.reweigh(&engine, 0, 200, &weights, WeightHistory::Linked).await.expect("other weights");
        let expected = whole.reweigh(&engine, 0, 200, &weights, WeightHistory::Whole).await.expect("other weights");
        assert_eq!(epoch(&back, 0, 1, 0).await, epoch(&expected, 0, 1, 0).await);
        let anew = again.reweigh(&engine, 0, 0, &weights, WeightHistory::Linked).await.expect("other weights");
        assert_eq!(
            anew.stream_id(),
            plan.reweigh(&engine, 0, 0, &weights, WeightHistory::Whole).await.expect("weights").stream_id()
        );
    });
}

#[test]
fn epochs_whose_draws_cannot_be_counted_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = StreamPlan::plan(&engine, &request(&[1.0, 1.0], MixtureStop::Rows, 256)).await.expect("a plan");
        let slice = |epoch| Slice { epoch, ..slice(0, 1, BatchSize::PerRank(64), LastBatch::Pad) };
        let last = (1 << 56) - 2;
        assert_eq!(ids(&plan, slice(last), 4).await.concat().len(), 256);
        for beyond in [last + 1, 1 << 56, u64::MAX] {
            let error = plan.open(&slice(beyond), &ReadOptions::default()).map(|_| ()).expect_err("no such epoch");
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(error.to_string().contains(&format!("{beyond} is beyond the {} epochs", last + 1)), "{error}");
            let error = plan.row_addrs(beyond, &[0]).await.expect_err("no such epoch");
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            let error = plan.reweigh(&engine, beyond, 0, &[1.0, 2.0], WeightHistory::Linked).await.map(|_| ());
            assert_eq!(error.expect_err("no such epoch").kind(), ErrorKind::InvalidRequest);
        }
        // The epochs of a stream of one query have no end.
        let one = StreamPlan::create(&engine, ALL, &[], &StreamOptions::default()).await.expect("a plan");
        assert_eq!(ids(&one, slice(u64::MAX), 1).await.concat().len(), 64);
    });
}

#[test]
fn queries_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 100).await;
        let refused = async |queries: &[&str], weights: &[f64], text: &str| {
            let queries = queries.iter().map(|sql| Query::new(*sql, &[])).collect();
            let request = PlanRequest { queries, ..request(weights, MixtureStop::First, 0) };
            let error = StreamPlan::plan(&engine, &request).await.map(|_| ()).expect_err("does not fit");
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
            assert!(error.to_string().contains(text), "{text} is not in: {error}");
        };
        refused(&["SELECT x FROM t", "SELECT id FROM t"], &[1.0, 1.0], "query 2 of the mixture has id: Int64").await;
        refused(&["SELECT x FROM t", "SELECT x, id FROM t"], &[1.0, 1.0], "2 columns, not 1").await;
        refused(&["SELECT x FROM t", "SELECT x FROM t WHERE id < 0"], &[1.0, 1.0], "query 2 of the mixture selects no")
            .await;
        refused(&["SELECT x FROM t"], &[1.0, 1.0], "2 weights for 1 queries").await;
        refused(&["SELECT x FROM t"], &[-1.0], "not a positive number").await;
        let none = PlanRequest { mix: None, ..request(&[1.0, 1.0], MixtureStop::First, 0) };
        assert!(StreamPlan::plan(&engine, &none).await.is_err());
        let no_rows = StreamPlan::plan(&engine, &request(&[1.0, 1.0], MixtureStop::Rows, 0)).await.map(|_| ());
        assert!(no_rows.expect_err("no rows").to_string().contains("at least one row"));
    });
}

#[test]
fn a_run_keeps_its_stream_whoever_asks() {
    let folder = tempfile::tempdir().expect("a folder");
    let uri = folder.path().to_str().expect("UTF-8").to_string();
    run(async {
        let engine = engine(&uri, 100).await;
        let run_id = RunId::try_new("exp-1").expect("a name");
        let request = PlanRequest {
            run_id: Some(run_id.clone()),
            ..PlanRequest::new(Query::new("SELECT x, id, name FROM t", &[]), StreamOptions::default())
        };
        let races = (0..8).map(|_| StreamPlan::plan(&engine, &request));
        let plans = futures::future::try_join_all(races).await.expect("plans");
        assert!(plans.iter().all(|plan| plan.stream_id() == plans[0].stream_id()));
        // Rows that were added later are not delivered.
        let name = TableName::try_new("t").expect("a name");
        let table = engine.lake().table(&name, &stoker_types::SnapshotRef::Latest).await.expect("the table");
        let rows = table.take(&["x", "id", "name"].map(String::from), &[0, 1, 2]).await.expect("rows");
        let writer = engine.lake().writer(&name, &table.schema(), true, WriteOptions::default()).await;
        let mut writer = writer.expect("a writer");
        writer.write(&rows).await.expect("written");
        let schema = writer.schema();
        let drafts = writer.finish().await.expect("finished");
        engine.lake().commit(&name, &schema, CommitMode::Append, drafts, None).await.expect("committed");
        assert_eq!(StreamPlan::plan(&engine, &request).await.expect("the run").num_rows(), 100);
        let mut same = request.clone();
        same.queries[0].sql = format!("{};", same.queries[0].sql.replace("SELECT ", "select  /* all */ "));
        let joined = StreamPlan::plan(&engine, &same).await.expect("the run, asked for by another text of its query");
        assert_eq!(joined.spec().sources[0].sql, request.queries[0].sql);
        let fresh = PlanRequest { run_id: None, ..request.clone() };
        assert_eq!(StreamPlan::plan(&engine, &fresh).await.expect("a plan").num_rows(), 103);
        let mut other = request.clone();
        other.options.seed = 5;
        other.queries[0].sql.push_str(" WHERE id > 3");
        let error = StreamPlan::plan(&engine, &other).await.map(|_| ()).expect_err("another stream");
        assert_eq!(error.kind(), ErrorKind::StateMismatch);
        let text = error.to_string();
        assert!(text.contains("seed: the run has 0, this process has 5") && text.contains("query"), "{text}");
    });
}

#[test]
fn the_log_of_a_run_finds_the_rows_of_every_step() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 230).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let run_id = RunId::try_new("exp-1").expect("a name");
        assert!(run_entries(&engine, &run_id).await.expect("no log").is_empty());
        let entry = |event, step, epoch, position, global_batch| RunEntry {
            run_id: run_id.clone(),
            event,
            stream_id: plan.stream_id(),
            step,
            epoch,
            position,
            global_batch,
            last_batch: LastBatch::Pad,
            world_size: 2,
            time_micros: 0,
        };
        // The run has ten steps of 10 rows, then, again from step 6 on, batches of 40 rows to the end, and then another
        // epoch.
        let log = [
            entry(RunEvent::Epoch, 0, 0, 0, 10),
            entry(RunEvent::Resume, 6, 0, 60, 40),
            entry(RunEvent::Epoch, 11, 1, 0, 40),
        ];
        // The clock shows the time of the first entry for the second one too, and an earlier time for the third one.
        let time = ManualClock::new();
        for (entry, secs) in log.iter().zip([1_000, 1_000, 900]) {
            time.set_unix_time(Duration::from_secs(secs));
            log_run(&engine, entry, None, &Clock::from(&time)).await.expect("logged");
        }
        let entries = run_entries(&engine, &run_id).await.expect("a log");
        let bare = entries.iter().map(|entry| RunEntry { time_micros: 0, ..entry.clone() });
        assert_eq!(bare.collect::<Vec<_>>(), log);
        let micros: Vec<i64> = entries.iter().map(|entry| entry.time_micros).collect();
        assert_eq!(micros, [1_000_000_000, 1_000_000_001, 1_000_000_002]);
        let one = Topology { rank: 0, world_size: 1 };
        for (step, epoch, positions) in
            [(0, 0, 0..10), (5, 0, 50..60), (6, 0, 60..100), (10, 0, 220..230), (12, 1, 40..80)]
        {
            let entry = step_entry(&run_id, &entries, step).expect("an entry");
            let slice = entry_slice(entry, step, one, 230).expect("a slice");
            assert_eq!((slice.epoch, slice.positions(slice.first_step, 230)), (epoch, positions), "step {step}");
        }
        let last = entry_slice(step_entry(&run_id, &entries, 17).expect("an entry"), 17, one, 230);
        assert!(last.expect_err("beyond").to_string().contains("ends before step 17"));
        let other = RunId::try_new("exp-2").expect("a name");
        assert_eq!(step_entry(&other, &[], 0).expect_err("no log").kind(), ErrorKind::NotFound);
    });
}
