//! Sessions: passes, changes of the progress, resumption, receipts, the run log, bad rows, and copies.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::SchemaRef;
use futures::future::BoxFuture;
use stoker::session::{Advance, Fetched, Left, PassId, Progress, SavedSession, Session, SessionOptions};
use stoker::{Connection, Error, Lake, LocalLake, Result, SqlResult, StreamHandle};
use stoker_session::{Patience, StreamSource};
use stoker_types::calls::{Answering, Answers, Call, LogBadRows, LogRun, ReadRunLog, VerifyReceipts};
use stoker_types::{
    BadRows, BatchLogEntry, BatchSize, Batching, Context, ErrorKind, LastBatch, ParamValue, ProgressSink, ReadOptions,
    RunEvent, RunId, SnapshotRef, SqlOptions, StatementOutcome, Topology,
};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::tests::contracts::damage::damage;
use crate::tests::fixture::*;

const NUM_ROWS: i64 = 100;
const QUERY: &str = "SELECT x, id FROM t";

fn rank(rank: u32, world_size: u32, global_batch: u64) -> SessionOptions {
    let size = BatchSize::Global(global_batch);
    SessionOptions::new(Topology { rank, world_size }, Batching { size, last: LastBatch::Uneven })
}

async fn session(connection: &Connection, options: SessionOptions) -> Session {
    let handle = connection.plan_stream(QUERY, &[], &crate::tests::fixture::options()).await.expect("a plan");
    Session::new(connection.clone(), handle, options, 0).expect("a session")
}

fn ids(fetched: &Fetched) -> Vec<i64> {
    let ids = fetched.batch.data["id"].as_primitive::<Int64Type>();
    ids.values()[..fetched.batch.num_valid].to_vec()
}

/// Takes at most `max` batches in a pass of its own; returns their ids.
async fn take(session: &Session, max: usize) -> Vec<Vec<i64>> {
    let pass = session.enter().expect("a pass");
    let (taken, left) = take_in(session, pass, max).await.expect("batches");
    session.leave(pass, left).expect("left");
    taken
}

async fn take_in(session: &Session, pass: PassId, max: usize) -> Result<(Vec<Vec<i64>>, Left)> {
    let mut taken = Vec::new();
    while taken.len() < max {
        let Some(fetched) = session.next(pass).await? else { return Ok((taken, Left::AtEnd)) };
        assert_eq!(session.advance(fetched.key).await?, Advance::GoesOn);
        taken.push(ids(&fetched));
    }
    Ok((taken, Left::Early))
}

fn sorted(batches: &[Vec<i64>]) -> Vec<i64> {
    let mut all = batches.concat();
    all.sort_unstable();
    all
}

async fn is_exactly_once(connection: &Connection, sessions: &[&Session]) -> Vec<bool> {
    let receipts = sessions.iter().map(|session| session.receipt()).collect();
    let verdicts = connection.call(VerifyReceipts { receipts }).await.expect("verdicts");
    verdicts.iter().map(|verdict| verdict.is_exactly_once()).collect()
}

#[test]
fn a_resumed_progress_keeps_the_log_of_its_epoch() {
    let entry = |step, position, global_batch| BatchLogEntry { step, position, global_batch };
    let log = [entry(5, 0, 10), entry(8, 30, 4)];
    let check = |position, step, global_batch, expected: &[BatchLogEntry]| {
        let resumed = Progress::resumed(1, position, step, &log, global_batch);
        assert_eq!((resumed.log.as_slice(), resumed.origin, resumed.step()), (expected, position, step));
        assert_eq!((resumed.steps_before_origin(), resumed.first_step_of_epoch()), (step - 5, 5));
        assert!(resumed.is_begun());
    };
    check(34, 9, 4, &log);
    check(34, 9, 5, &[log[0], log[1], entry(9, 34, 5)]);
    check(50, 9, 4, &[log[0], log[1], entry(9, 50, 4)]);
    check(20, 7, 10, &log[..1]);
    let started = Progress::start_of(2, 11, 4);
    assert!(!started.is_begun());
    let mut after = started;
    after.advance(0, 4);
    assert_eq!((after.step(), after.position, after.steps_before_origin()), (12, 4, 0));
}

#[test]
fn passes_go_on_after_a_break_and_epochs_follow_each_other() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let connection = lake.local().await;
        let session = session(&connection, rank(0, 1, 10)).await;
        let mut first = take(&session, 3).await;
        assert_eq!((session.status().position, session.status().remaining), (30, 7));
        assert_eq!(session.open_streams(), (None, None), "a break closes all streams");
        first.extend(take(&session, usize::MAX).await);
        assert_eq!(sorted(&first), (0..NUM_ROWS).collect::<Vec<_>>());
        let (open, ahead) = session.open_streams();
        assert_eq!(open, None);
        let second = take(&session, 10).await;
        assert_eq!(session.open_streams().1, ahead.map(|ahead| ahead + 1), "one further stream was opened: epoch 2");
        assert_eq!((sorted(&second), session.status().epoch), (sorted(&first), 2));
        assert_ne!(first, second);
        assert_eq!(is_exactly_once(&connection, &[&session]).await, [true, true]);
        session.set_epoch(0).expect("epoch 0");
        assert_eq!((take(&session, usize::MAX).await, session.status().step), (first, 30));
        session.close();
        assert_eq!(session.open_streams(), (None, None));
    });
}

#[test]
fn batches_that_the_consumer_did_not_get_do_not_count() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let connection = lake.local().await;
        let session = session(&connection, rank(0, 1, 10)).await;
        let pass = session.enter().expect("a pass");
        let first = session.next(pass).await.expect("no error").expect("a batch");
        let second = session.next(pass).await.expect("no error").expect("a batch");
        assert_eq!(session.count(first.key), Advance::GoesOn);
        assert_eq!(session.state().expect("a state").position, 10);
        assert_eq!(session.receipt().parts[0].end, 10);
        session.set_epoch(3).expect("epoch 3");
        assert_eq!(session.count(second.key), Advance::ChangedProgress);
        let (rest, left) = take_in(&session, pass, usize::MAX).await.expect("batches");
        session.leave(pass, left).expect("left");
        assert_eq!((sorted(&rest).len() as i64, session.status().epoch), (NUM_ROWS, 4));
        // A cancelled fetch gives its stream back.
        let pass = session.enter().expect("a pass");
        for _ in 0..3 {
            timeout(Duration::ZERO, session.next(pass)).await.ok();
        }
        session.leave(pass, Left::Early).expect("left");
        assert_eq!(sorted(&take(&session, usize::MAX).await).len() as i64, NUM_ROWS);
    });
}

#[test]
fn a_newer_pass_ends_an_older_one_and_close_ends_both_quietly() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let connection = lake.local().await;
        let session = session(&connection, rank(0, 1, 10)).await;
        let older = session.enter().expect("a pass");
        take_in(&session, older, 1).await.expect("a batch");
        let newer = session.enter().expect("a pass");
        let Err(refused) = session.next(older).await else { unreachable!("the older pass has ended") };
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
        assert!(refused.to_string().contains("a newer iterator over this loader took over"), "{refused}");
        session.leave(older, Left::Early).expect("nothing");
        assert_eq!(take_in(&session, newer, 1).await.expect("a batch").0.len(), 1);
        session.close();
        assert!(session.next(newer).await.expect("no error").is_none());
        session.leave(newer, Left::Early).expect("left");
        assert_eq!(take(&session, usize::MAX).await.len(), 8);
    });
}

#[test]
fn skipped_batches_are_in_the_receipt_and_in_no_batch() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let connection = lake.local().await;
        let session = session(&connection, rank(0, 1, 10)).await;
        let mut taken = take(&session, 2).await;
        assert_eq!(session.skip(3).expect("skipped"), 3);
        assert_eq!((session.status().step, session.status().position), (2, 50));
        taken.extend(take(&session, usize::MAX).await);
        assert_eq!(taken.len(), 7);
        assert_eq!(is_exactly_once(&connection, &[&session]).await, [true]);
        assert_eq!(session.receipt().skipped[0].end, 50);
        assert_eq!(session.skip(100).expect("skipped"), 10, "no more than the epoch has");
        assert!(take(&session, usize::MAX).await.is_empty(), "the rest of the epoch");
        assert_eq!(session.status().epoch, 2);
    });
}

#[test]
fn a_state_resumes_on_another_world_size() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let connection = lake.local().await;
        let first = session(&connection, rank(0, 1, 12)).await;
        let mut taken = take(&first, 3).await;
        let state = first.state().expect("a state");
        assert_eq!((state.position, state.step, state.log.len()), (36, 3, 1));
        let mut ranks = Vec::new();
        for number in 0..2 {
            let resumed = session(&connection, rank(number, 2, 7)).await;
            resumed.load_state(&state).await.expect("resumed");
            assert_eq!((resumed.status().step, resumed.status().num_steps), (3, 3 + 10));
            taken.extend(take(&resumed, usize::MAX).await);
            ranks.push(resumed);
        }
        assert_eq!(sorted(&taken), (0..NUM_ROWS).collect::<Vec<_>>());
        assert_eq!(is_exactly_once(&connection, &[&first, &ranks[0], &ranks[1]]).await, [true]);
        let (ended, in_epoch) = (ranks[0].state().expect("a state"), first.state_in_epoch());
        assert_eq!((ended.epoch, ended.position, in_epoch), (1, 0, state));
        ranks[1].load_state(&ended).await.expect("resumed");
        assert_eq!((ranks[1].status().epoch, ranks[1].status().remaining), (1, 15));
    });
}

#[test]
fn an_evaluation_delivers_the_same_epoch_in_every_pass() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let connection = lake.local().await;
        let session = session(&connection, SessionOptions { evaluation: true, ..rank(0, 1, 16) }).await;
        let whole = take(&session, usize::MAX).await;
        take(&session, 2).await;
        assert_eq!((take(&session, usize::MAX).await, session.status().epoch), (whole, 0));
        assert_eq!(is_exactly_once(&connection, &[&session]).await, [true]);
    });
}

#[test]
fn a_run_is_logged_with_its_bad_rows() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        damage(lake.engine().await.lake(), "t", &[17, 40]).await;
        let (connection, run_id) = (lake.local().await, RunId::try_new("exp-1").expect("a name"));
        let read = ReadOptions { bad_rows: BadRows::Substitute, ..ReadOptions::default() };
        let options = SessionOptions { run_id: Some(run_id.clone()), read, ..rank(0, 1, 10) };
        let session = session(&connection, options).await;
        take(&session, 4).await;
        session.skip(1).expect("skipped");
        take(&session, usize::MAX).await;
        take(&session, usize::MAX).await;
        let entries = connection.call(ReadRunLog { run_id }).await.expect("entries");
        let entries: Vec<_> = entries.iter().map(|entry| (entry.event, entry.step, entry.position)).collect();
        let expected = [(RunEvent::Epoch, 0, 0), (RunEvent::Skip, 4, 50), (RunEvent::Epoch, 9, 0)];
        assert_eq!(entries, expected);
        let met: Vec<_> = session.substituted().iter().map(|bad| (bad.epoch, bad.row.row_addrs[0])).collect();
        assert!(met.len() >= 2 && met.iter().all(|(_, addr)| [17, 40].contains(addr)), "{met:?}");
        let bad = connection.table("stoker_bad_rows", &SnapshotRef::Latest).await.expect("a table");
        assert_eq!(bad.num_rows, met.len() as u64);
    });
}

/// A lake that loses its answer to the first write to each table of logs: the write is done, and the caller waits for
/// ever.
struct LosingLake {
    lake: LocalLake,
    num_entries: AtomicU32,
    num_bad_rows: AtomicU32,
    lost: Arc<Notify>,
}

impl Answering for LosingLake {
    type Error = Error;
}

impl<C: Call> Answers<C> for LosingLake
where
    LocalLake: Answers<C, Error = Error>,
{
    async fn answer(&self, context: &Context, call: C) -> Result<C::Answer> {
        let answer = self.lake.answer(context, call).await;
        let num_before = match C::NAME {
            LogRun::NAME => self.num_entries.fetch_add(1, Ordering::Relaxed),
            LogBadRows::NAME => self.num_bad_rows.fetch_add(1, Ordering::Relaxed),
            _ => return answer,
        };
        if num_before == 0 {
            self.lost.notify_one();
            return pending().await;
        }
        answer
    }
}

impl Lake for LosingLake {
    fn is_local(&self) -> bool {
        false
    }

    fn patience(&self) -> &Patience {
        self.lake.patience()
    }

    fn sql_schema<'a>(&'a self, sql: &'a str, params: &'a [ParamValue]) -> BoxFuture<'a, Result<SchemaRef>> {
        Lake::sql_schema(&self.lake, sql, params)
    }

    fn sql<'a>(
        &'a self,
        sql: &'a str,
        params: &'a [ParamValue],
        options: SqlOptions,
    ) -> BoxFuture<'a, Result<SqlResult>> {
        Lake::sql(&self.lake, sql, params, options)
    }

    fn execute<'a>(
        &'a self,
        context: &'a Context,
        sql: &'a str,
        params: &'a [ParamValue],
        progress: &'a ProgressSink<'a>,
    ) -> BoxFuture<'a, Result<StatementOutcome>> {
        Lake::execute(&self.lake, context, sql, params, progress)
    }

    fn plan<'a>(&'a self, source: StreamSource<'a>) -> BoxFuture<'a, Result<StreamHandle>> {
        Lake::plan(&self.lake, source)
    }
}

#[test]
fn a_write_that_was_cancelled_after_it_was_done_stands_once() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        damage(lake.engine().await.lake(), "t", &[17, 40]).await;
        let (local, lost) = (LocalLake::from(lake.engine().await), Arc::new(Notify::new()));
        let (num_entries, num_bad_rows) = (AtomicU32::new(0), AtomicU32::new(0));
        let connection = Connection::new(LosingLake { lake: local, num_entries, num_bad_rows, lost: lost.clone() });
        let run_id = RunId::try_new("exp-1").expect("a name");
        let read = ReadOptions { bad_rows: BadRows::Substitute, ..ReadOptions::default() };
        let options = SessionOptions { run_id: Some(run_id.clone()), read, ..rank(0, 1, 10) };
        let session = session(&connection, options).await;
        let cancelled = async |pass: PassId, session: &Session| {
            tokio::select! {
                () = lost.notified() => {}
                _ = take_in(session, pass, usize::MAX) => unreachable!("the answer is lost"),
            }
            session.leave(pass, Left::Early).expect("left");
        };
        cancelled(session.enter().expect("a pass"), &session).await;
        assert_eq!(session.status().step, 0, "the entry of the log is written before the first batch");
        cancelled(session.enter().expect("a pass"), &session).await;
        assert_eq!(session.status().remaining, 1, "the bad rows are written before the last batch counts");
        // A copy goes on; it, too, finishes the last batch twice.
        let copy = Session::restore(connection.clone(), session.save()).await.expect("a copy");
        let pass = copy.enter().expect("a pass");
        let last = copy.next(pass).await.expect("no error").expect("a batch");
        copy.finish(last.key).await.expect("written");
        assert_eq!(copy.advance(last.key).await.expect("written"), Advance::GoesOn);
        let entries = connection.call(ReadRunLog { run_id }).await.expect("entries");
        assert_eq!(entries.len(), 1, "{entries:?}");
        let bad = connection.table("stoker_bad_rows", &SnapshotRef::Latest).await.expect("a table");
        assert_eq!(bad.num_rows, copy.substituted().len() as u64);
        assert!(bad.num_rows >= 2, "{}", bad.num_rows);
    });
}

#[test]
fn a_saved_session_goes_on_elsewhere() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let connection = lake.local().await;
        let first = session(&connection, rank(0, 1, 10)).await;
        let mut taken = take(&first, 2).await;
        let text = serde_json::to_string(&first.save()).expect("JSON");
        let saved: SavedSession = serde_json::from_str(&text).expect("the same");
        assert_eq!((saved.status(), saved.receipt()), (first.status(), first.receipt()));
        let copy = Session::restore(lake.local().await, saved).await.expect("a copy");
        taken.extend(take(&copy, usize::MAX).await);
        assert_eq!(sorted(&taken), (0..NUM_ROWS).collect::<Vec<_>>());
        assert_eq!(is_exactly_once(&connection, &[&copy]).await, [true]);
    });
}

#[test]
fn a_pass_goes_on_in_a_child_with_the_batch_that_the_parent_did_not_read() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let connection = lake.local().await;
        let parent = session(&connection, rank(0, 1, 10)).await;
        let pass = parent.enter().expect("a pass");
        let turn = parent.turn(pass).expect("a turn").expect("an open pass");
        let first = parent.fetch(turn).await.expect("no error").expect("a batch");
        let second = parent.fetch(turn).await.expect("no error").expect("a batch");
        parent.count(first.key);
        let child =
            Session::restore(connection.clone(), parent.save_inherited().expect("no lock")).await.expect("a copy");
        let third = child.fetch(turn).await.expect("no error").expect("a batch");
        assert_eq!((third.key.step, child.status().position), (2, 10));
        assert_eq!([second.key, third.key].map(|key| child.count(key)), [Advance::GoesOn; 2]);
        let (rest, left) = take_in(&child, pass, usize::MAX).await.expect("batches");
        child.leave(pass, left).expect("left");
        assert_eq!((rest.len(), child.status().epoch, parent.status().position), (7, 1, 10));
    });
}

#[test]
fn a_worker_divides_the_batches_and_has_no_state() {
    run(async {
        let lake = TestLake::new(NUM_ROWS).await;
        let connection = lake.local().await;
        let mut taken = Vec::new();
        for number in 0..3 {
            let worker = session(&connection, rank(1, 2, 20)).await;
            worker.narrow(number, 3).expect("a worker");
            assert_eq!(worker.state().expect_err("no state").kind(), ErrorKind::InvalidRequest);
            taken.extend(take(&worker, usize::MAX).await);
        }
        let whole = take(&session(&connection, rank(1, 2, 20)).await, usize::MAX).await;
        assert_eq!(sorted(&taken), sorted(&whole));
    });
}
