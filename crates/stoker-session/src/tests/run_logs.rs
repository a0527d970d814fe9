//! The writes of a session to the log of its run.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_schema::Schema;
use futures::FutureExt;
use futures::future::ready;
use parking_lot::Mutex;
use stoker_types::RunId;
use stoker_types::calls::{Answer, Call, Done, LogRun, OpenTable, SchemaText, TableAnswer, WriteKey};

use crate::session::{Left, SavedSession, SessionOptions};
use crate::tests::fixture::*;
use crate::{Connection, Error, Result, Session};

/// A lake that keeps the writes to the run log, and does not answer the first one. `later` answers the others.
fn logging_lake(
    written: Arc<Mutex<Vec<LogRun>>>,
    later: impl Fn(&LogRun) -> Result<Done> + Send + Sync + 'static,
) -> FakeLake {
    let is_asked = AtomicBool::new(false);
    FakeLake::new(move |name, body| {
        if name == OpenTable::NAME {
            let schema = SchemaText(Arc::new(Schema::empty()));
            let (name, tags) = ("t".into(), BTreeMap::new());
            let table = TableAnswer { name, version: 7, num_rows: 0, schema, tags, size: None };
            return ready(table.encode().map_err(Error::internal)).boxed();
        }
        assert_eq!(name, LogRun::NAME);
        let call: LogRun = serde_json::from_slice(&body).expect("a call");
        let done = later(&call);
        written.lock().push(call);
        match is_asked.swap(true, Ordering::Relaxed) {
            false => pending().boxed(),
            true => ready(done.and_then(|done| done.encode().map_err(Error::internal))).boxed(),
        }
    })
}

#[tokio::test]
async fn a_write_that_was_cancelled_is_repeated_with_its_key() {
    let (written, run_id) = (Arc::default(), RunId::try_new("exp-1").expect("a name"));
    let connection = Connection::new(logging_lake(Arc::clone(&written), |_| Ok(Done {})));
    let options = SessionOptions { run_id: Some(run_id), ..options() };
    let session = Session::new(connection.clone(), numbers(), options, 0).expect("a session");
    let pass = session.enter().expect("a pass");
    assert!(poll_once(pin!(session.next(pass))).is_pending(), "the write is not answered");
    assert_eq!(written.lock().len(), 1);
    session.leave(pass, Left::Early).expect("left");
    let text = serde_json::to_string(&session.save()).expect("JSON");
    let saved: SavedSession = serde_json::from_str(&text).expect("the same");
    let copy = Session::restore(connection, saved).await.expect("a copy");
    for session in [&session, &copy] {
        let pass = session.enter().expect("a pass");
        assert!(session.next(pass).await.expect("no error").is_some());
    }
    let keys = |written: &[LogRun]| -> Vec<WriteKey> {
        written.iter().map(|call| call.write_key.clone().expect("a key")).collect()
    };
    let first = keys(&written.lock());
    assert_eq!(first, vec![first[0].clone(); 3]);
    assert_eq!(first[0].since_version, 7);
    // The write is done: the same entry is another write from now on.
    session.restart().expect("restarted");
    let pass = session.enter().expect("a pass");
    assert!(session.next(pass).await.expect("no error").is_some());
    let all = written.lock();
    assert_eq!((all.len(), &all[3].entry), (4, &all[0].entry));
    assert_ne!(keys(&all)[3], first[0]);
}

#[tokio::test]
async fn a_write_that_another_server_may_have_done_is_not_repeated_without_its_key() {
    let older = |call: &LogRun| match call.write_key {
        Some(_) => Err(Error::invalid("unknown field `write_key`")),
        None => Ok(Done {}),
    };
    let written: Arc<Mutex<Vec<LogRun>>> = Arc::default();
    let connection = Connection::new(logging_lake(Arc::clone(&written), older).with_replicas());
    let options = SessionOptions { run_id: Some(RunId::try_new("exp-1").expect("a name")), ..options() };
    let session = Session::new(connection, numbers(), options, 0).expect("a session");
    let pass = session.enter().expect("a pass");
    assert!(poll_once(pin!(session.next(pass))).is_pending(), "the write is not answered");
    let error = session.next(pass).await.expect_err("an older server");
    assert!(error.to_string().contains("write_key"), "{error}");
    assert!(written.lock().iter().all(|call| call.write_key.is_some()));
    assert_eq!(written.lock().len(), 2);
}
