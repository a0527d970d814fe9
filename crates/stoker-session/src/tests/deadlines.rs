//! The deadlines of calls.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::ready;
use stoker_clock::ManualClock;
use stoker_types::calls::{Answer, Answers, Call, Done, ListTables, TagVersion};
use stoker_types::{Context, ErrorKind, Moment};

use crate::tests::fixture::*;
use crate::{Connection, Error};

fn until(deadline: Moment) -> Context {
    Context { deadline: Some(deadline), ..Context::local() }
}

fn check(error: Error) {
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(error.to_string(), "action tables was cancelled: the deadline of the request passed");
}

#[test]
fn a_call_ends_at_its_deadline_and_begins_no_attempt_after_it() {
    // A lake that never answers, and one that cannot be reached, whose attempts begin after 0, 25 and 75 ms.
    for (answers_never, num_attempts) in [(true, 1), (false, 3)] {
        let (time, num_asked) = (ManualClock::new(), Arc::new(AtomicU32::new(0)));
        let counted = num_asked.clone();
        let lake = FakeLake::new(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            if answers_never { pending().boxed() } else { ready(Err(Error::Stopping)).boxed() }
        });
        let connection = Connection::new(lake.with_clock(&time));
        let ask = |deadline| {
            let context = until(deadline);
            check(time.run(connection.answer(&context, ListTables {})).expect_err("the deadline passed"));
            assert_eq!(time.now(), deadline);
        };
        ask(time.now());
        assert_eq!(num_asked.load(Ordering::Relaxed), 0);
        ask(time.now() + Duration::from_millis(100));
        assert_eq!(num_asked.load(Ordering::Relaxed), num_attempts);
    }
}

#[test]
fn writes_have_no_deadline() {
    let time = ManualClock::new();
    let lake = FakeLake::new(|name, _| {
        assert_eq!(name, TagVersion::NAME);
        ready(Done {}.encode().map_err(Error::internal)).boxed()
    });
    let connection = Connection::new(lake.with_clock(&time));
    let tag = TagVersion { table: Some("t".into()), new_tag: "kept".into(), ..TagVersion::default() };
    time.run(connection.answer(&until(time.now()), tag)).expect("a tag");
}
