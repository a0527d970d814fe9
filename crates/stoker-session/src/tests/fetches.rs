//! Fetches of a session.

use std::pin::pin;
use std::task::Poll;

use futures::FutureExt;
use futures::future::ready;

use crate::session::{Advance, Left};
use crate::tests::fixture::*;
use crate::{Connection, Error, Session};

#[tokio::test]
async fn a_fetch_that_is_cancelled_where_it_waits_loses_no_batch() {
    let lake = FakeLake::new(|name, _| ready(Err(Error::internal(name))).boxed());
    let session = Session::new(Connection::new(lake), numbers(), options(), 0).expect("a session");
    for epoch in 0..3 {
        let pass = session.enter().expect("a pass");
        let (mut steps, mut num_cancelled) = (Vec::new(), 0);
        let turn = session.turn(pass).expect("a turn").expect("an open pass");
        loop {
            // Each fetch is cancelled when it waits for the first time, whatever it waits for.
            let Poll::Ready(fetched) = poll_once(pin!(session.fetch(turn))) else {
                num_cancelled += 1;
                continue;
            };
            let Some(fetched) = fetched.expect("no error") else { break };
            assert_eq!(session.count(fetched.key), Advance::GoesOn);
            steps.push(fetched.step);
        }
        assert_eq!(steps, (epoch * 5..epoch * 5 + 5).collect::<Vec<_>>());
        assert!(num_cancelled >= steps.len(), "{num_cancelled}");
        assert!(session.open_streams().1.is_some(), "the next epoch is prefetched");
        session.leave(pass, Left::AtEnd).expect("left");
    }
}
