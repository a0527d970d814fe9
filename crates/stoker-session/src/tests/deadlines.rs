//! The deadlines of calls.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::ready;
use stoker_types::calls::{Answer, Answers, Call, Done, ListTables, TagVersion};
use stoker_types::{Context, ErrorKind};
use tokio::time::timeout;

use crate::tests::fixture::*;
use crate::{Connection, Error};

/// The longest wait for a call that must end at its deadline.
const WAIT_MAX: Duration = Duration::from_secs(30);

fn until(deadline: Instant) -> Context {
    Context { deadline: Some(deadline), ..Context::local() }
}

fn check(error: Error) {
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(error.to_string(), "action tables was cancelled: the deadline of the request passed");
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_begins_no_attempt_after_it() {
    // A lake that never answers, and one that cannot be reached.
    for answers_never in [true, false] {
        let num_asked = Arc::new(AtomicU32::new(0));
        let counted = num_asked.clone();
        let connection = Connection::new(FakeLake::new(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            if answers_never { pending().boxed() } else { ready(Err(Error::Stopping)).boxed() }
        }));
        let ask = async |deadline| {
            let context = until(deadline);
            let answer = timeout(WAIT_MAX, connection.answer(&context, ListTables {})).await.expect("an end");
            check(answer.expect_err("the deadline passed"));
        };
        ask(Instant::now()).await;
        assert_eq!(num_asked.load(Ordering::Relaxed), 0);
        let soon = Instant::now() + Duration::from_millis(100);
        ask(soon).await;
        assert!(Instant::now() >= soon);
        assert!(num_asked.load(Ordering::Relaxed) > 0);
    }
}

#[tokio::test]
async fn writes_have_no_deadline() {
    let connection = Connection::new(FakeLake::new(|name, _| {
        assert_eq!(name, TagVersion::NAME);
        ready(Done {}.encode().map_err(Error::internal)).boxed()
    }));
    let tag = TagVersion { table: Some("t".into()), new_tag: "kept".into(), ..TagVersion::default() };
    connection.answer(&until(Instant::now()), tag).await.expect("a tag");
}
