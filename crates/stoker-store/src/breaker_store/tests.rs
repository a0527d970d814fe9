use std::future::{pending, ready};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use futures::future::join;
use object_store::{Error, Result};
use stoker_types::ErrorKind;

use super::{is_outage, through, through_anew};
use crate::breaker::{Breaker, FAILURES_MAX, Out};
use crate::error::{is_of_outage, uninterpreted};

fn away() -> Error {
    Error::Generic { store: "S3", source: "error sending request".into() }
}

/// Lets an outage begin and end. This takes the second that the breaker waits before its first probe.
async fn goes_out_and_comes_back(breaker: &Breaker) {
    for number in 1..=FAILURES_MAX {
        let error = through(breaker, ready(Err::<(), _>(away()))).await.expect_err("the store is away");
        assert_eq!(is_outage(&error), number == FAILURES_MAX, "failure {number}");
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
        // The request ends when the store answers again.
        breaker.until_back().await;
        Ok(())
    };
    let (written, ()) = join(through(&breaker, write), goes_out_and_comes_back(&breaker)).await;
    written.expect("an answer");
    assert_eq!(made.load(SeqCst), 1);
}

#[test]
fn errors_of_outages_are_known_whatever_wraps_them() {
    let of_outage = || Error::from(Out::default().after(away()));
    let wrapped = std::io::Error::other(of_outage());
    assert!(of_outage().to_string().contains("error sending request"), "{}", of_outage());
    for (source, expected) in [(Out::default().into(), true), (of_outage(), true), (away(), false)] {
        assert_eq!((is_of_outage(&source), is_outage(&source)), (expected, expected), "{source}");
        let error = crate::Error::storage("reading", source, uninterpreted);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert!(is_of_outage(&wrapped));
}
