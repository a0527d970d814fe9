//! Calls between batches while no server can be reached.

use std::time::Duration;

use stoker::{ClientOptions, ConnectOptions, Connection, LocalLake, connect, reconnect};
use stoker_clock::{Clock, Environment};
use stoker_session::new_write_key;
use stoker_stream::{log_run, run_entries};
use stoker_types::calls::{Answers, ListTables, LogRun, ReadRunLog};
use stoker_types::{BatchSize, Context, Digest, ErrorKind, LastBatch, RunEntry, RunEvent, RunId, SnapshotRef};
use tempfile::TempDir;

use crate::ServerConfig;
use crate::tests::fixture::*;

/// The address of a server that dies, and of the server that replaces it.
struct TestStore {
    folder: TempDir,
}

impl TestStore {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn address(&self) -> String {
        format!("unix://{}/stoker.sock", self.folder.path().display())
    }

    fn config(&self) -> ServerConfig {
        ServerConfig { listen: vec![self.address()], ..config() }
    }
}

fn patient() -> ConnectOptions {
    ConnectOptions::from(ClientOptions { retry_budget: Duration::from_secs(60), ..ClientOptions::default() })
}

fn entry(step: u64) -> RunEntry {
    RunEntry {
        run_id: RunId::try_new("exp-1").expect("a name"),
        event: RunEvent::Epoch,
        stream_id: Digest::of(b"a stream"),
        step,
        epoch: step,
        position: 0,
        global_batch: 10,
        last_batch: LastBatch::Pad,
        world_size: 1,
        time_micros: 0,
    }
}

#[test]
fn calls_wait_for_a_server_that_comes_back() {
    run(async {
        let (lake, place) = (TestLake::new(200).await, TestStore::new());
        let mut server = TestServer::start(&lake, place.config()).await;
        let remote = connect(&place.address(), &patient()).await.expect("a server");
        let hasty = connect(&place.address(), &impatient().into()).await.expect("a server");
        let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
        server.kill();
        let error = hasty.call(ListTables {}).await.expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        // This connection, like one in another process after unpickling, has not reached a server yet.
        let elsewhere = reconnect(&place.address(), &patient()).await.expect("nothing is asked");
        let state = handle.state(stoker_types::ResumePoint::default(), &[]);
        let at = SnapshotRef::Version(1);
        let calls = async {
            let (entry, options) = (entry(0), options());
            tokio::join!(
                remote.call(ListTables {}),
                remote.plan_stream(ALL, &[], &options),
                remote.sql("SELECT id FROM t", &[]),
                remote.log_run(&entry),
                remote.tag("t", &at, "kept"),
                elsewhere.load_stream(&state),
            )
        };
        let back = async {
            assert_eq!(hasty.call(ListTables {}).await.expect_err("nobody answers").kind(), ErrorKind::Unavailable);
            TestServer::start(&lake, place.config()).await
        };
        let (_server, (tables, planned, sql, logged, tagged, loaded)) = {
            let (server, answers) = tokio::join!(back, calls);
            (server, answers)
        };
        // The log of the run may already be a table.
        let tables: Vec<String> = tables.expect("tables").into_iter().filter(|name| name != "stoker_run_log").collect();
        assert_eq!(tables, ["t"]);
        assert_eq!(planned.expect("a plan").spec(), handle.spec());
        sql.map(|_| ()).expect("rows");
        logged.expect("logged");
        tagged.expect("tagged");
        assert_eq!(loaded.expect("a stream").spec(), handle.spec());
        let run_id = RunId::try_new("exp-1").expect("a name");
        assert_eq!(remote.call(ReadRunLog { run_id: run_id.clone() }).await.expect("a log").len(), 1);
        let again = remote.tag("t", &SnapshotRef::Version(1), "kept").await.expect_err("it exists");
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    });
}

#[test]
fn a_stream_of_its_own_budget_gives_up_by_it() {
    run(async {
        let (lake, place) = (TestLake::new(200).await, TestStore::new());
        let mut server = TestServer::start(&lake, place.config()).await;
        let remote = connect(&place.address(), &patient()).await.expect("a server");
        let handle = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
        server.kill();
        let slice = slice(0, 1, BatchSize::PerRank(32), LastBatch::Pad);
        let read = stoker_types::ReadOptions {
            retry_budget: Some(Duration::from_millis(200)),
            ..stoker_types::ReadOptions::default()
        };
        let mut stream = handle.open(&slice, &read).await.expect("a stream");
        let error = stream.next().await.expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().starts_with("receiving step 0 failed "), "{error}");
        assert!(error.to_string().contains(&place.address()), "{error}");
    });
}

#[test]
fn a_write_with_a_key_happens_once() {
    run(async {
        let lake = TestLake::new(5).await;
        let engine = lake.engine().await;
        let run_id = entry(0).run_id;
        log_run(&engine, &entry(0), None, &Clock::default()).await.expect("logged");
        let environment = Environment::default();
        let (key, local) = (new_write_key(1, &environment), LocalLake::from(engine.clone()));
        let log = async |write_key| {
            local
                .answer(&Context::local(), LogRun { entry: entry(1), write_key: Some(write_key) })
                .await
                .expect("logged")
        };
        for _ in 0..3 {
            log(key.clone()).await;
        }
        // The same entry with another key is another write.
        log(new_write_key(2, &environment)).await;
        let steps = async || {
            let entries = run_entries(&engine, &run_id).await.expect("a log");
            entries.iter().map(|entry| entry.step).collect::<Vec<_>>()
        };
        assert_eq!(steps().await, [0, 1, 1]);
        let local = Connection::new(LocalLake::from(engine.clone()));
        local.log_run(&entry(2)).await.expect("logged");
        assert_eq!(steps().await, [0, 1, 1, 2]);
    });
}
