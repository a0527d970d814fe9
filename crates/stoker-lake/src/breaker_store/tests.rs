use std::future::{pending, ready};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use futures::future::join;
use object_store::{Error, Result};
use stoker_types::ErrorKind;

use super::{out, through, through_anew};
use crate::breaker::{Breaker, FAILURES_MAX, Out};

fn away() -> Error {
    Error::Generic { store: "S3", source: "error sending request".into() }
}

/// Lets an outage begin and end, which takes the second until the store is asked again.
async fn goes_out_and_comes_back(breaker: &Breaker) {
    for _ in 0..FAILURES_MAX {
        through(breaker, ready(Err::<(), _>(away()))).await.expect_err("the store is away");
    }
    through(breaker, ready(Ok(()))).await.expect("the store is back");
}

#[tokio::test]
async fn a_read_that_hangs_is_made_again_once_when_the_store_is_back() {
    let (breaker, made) = (Breaker::default(), AtomicU32::new(0));
    let read = || async {
        match made.fetch_add(1, SeqCst) {
            0 => pending::<Result<u32>>().await,
            number => Ok(number),
        }
    };
    let (read, ()) = join(through_anew(&breaker, read), goes_out_and_comes_back(&breaker)).await;
    assert_eq!(read.expect("the second answer"), 1);
    let requests = breaker.requests();
    assert_eq!((requests.answered, requests.failed), (2, u64::from(FAILURES_MAX)), "what was given up counts nowhere");
}

#[tokio::test]
async fn a_request_that_changes_something_is_made_once() {
    let (breaker, made) = (Breaker::default(), AtomicU32::new(0));
    let write = async {
        made.fetch_add(1, SeqCst);
        // It ends when the store is back.
        breaker.until_back().await;
        Ok(())
    };
    let (written, ()) = join(through(&breaker, write), goes_out_and_comes_back(&breaker)).await;
    written.expect("an answer");
    assert_eq!(made.load(SeqCst), 1);
}

#[test]
fn what_was_held_back_is_known_whatever_wraps_it() {
    let held_back = || out(Out::default());
    let wrapped = lance_core::Error::io_source(Box::new(held_back()));
    for (source, expected) in [(held_back(), true), (away(), false)] {
        let error = crate::Error::storage("reading", source);
        assert_eq!((error.kind(), error.was_held_back()), (ErrorKind::Unavailable, expected), "{error}");
    }
    assert!(crate::Error::storage("reading", wrapped).was_held_back());
}
