//! The sending side of a response: from the task that produces its messages to the connection.

use std::time::Duration;

use stoker_clock::Clock;
use stoker_session::{Error, Result};
use stoker_wire::encode::Message;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tonic::Status;

use crate::caller::Caller;
use crate::edge::Reset;
use crate::flight::answer_body::{Answer, Item};
use crate::permits::{Permit, Standing};

/// The time for which a client may read nothing before another client can displace its response.
const PAUSE: Duration = Duration::from_millis(400);

/// The sending side of a response. A response whose client reads nothing is cut: after `stall`, or as soon as another
/// client needs its permit.
pub(crate) struct Output {
    items: mpsc::Sender<Item>,
    place: Permit<Caller>,
    reset: Reset,
    stall: Duration,
    /// The usual size of a message in bytes; larger messages get proportionally more time.
    message_bytes: usize,
    clock: Clock,
}

impl Output {
    /// Creates an output and the response that it fills. At most `queue` messages wait between them.
    pub fn new(
        queue: usize,
        place: Permit<Caller>,
        stall: Duration,
        message_bytes: usize,
        clock: Clock,
    ) -> (Self, Answer) {
        let (items, received) = mpsc::channel(queue);
        (Self { items, place, reset: Reset::current(), stall, message_bytes, clock }, Answer::new(received))
    }

    /// Sends a message to the connection; waits while the queue is full.
    ///
    /// # Errors
    /// `Stopping` if the client went away; `Unread` if the client reads nothing.
    pub async fn send(&self, message: Message) -> Result<()> {
        #[expect(clippy::cast_possible_truncation, reason = "the number is clamped")]
        let times = message.wire_bytes().div_ceil(self.message_bytes.max(1)).clamp(1, 1 << 10) as u32;
        match self.items.try_send(Item::Message(message)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Error::Stopping),
            Err(TrySendError::Full(item)) => {
                let sent = self.within(self.stall * times, self.items.send(item)).await?;
                sent.map_err(|_| Error::Stopping)
            }
        }
    }

    /// Sends the end of the response, and keeps the permit until the client has read everything, because the messages
    /// in the queue use memory.
    pub async fn end(self, done: Result<()>, status: impl FnOnce(Error) -> Status) {
        if let Err(error @ Error::Unread { .. }) = &done {
            tracing::info!(%error, "cancelling an answer that its client does not read");
            return self.reset.reset();
        }
        // A client that went away needs no end.
        let ended = async {
            self.items.send(Item::End(done.map_or_else(status, |()| Status::ok("")))).await.ok();
            self.closed().await;
        };
        if let Err(error) = self.within(self.stall, ended).await {
            tracing::info!(%error, "cancelling a complete answer that its client does not read");
            self.reset.reset();
        }
    }

    /// Waits until the client has gone away or has read the end.
    pub async fn closed(&self) {
        self.items.closed().await;
    }

    /// Waits until the client reads, for at most `stall`. Meanwhile another client may displace the response.
    async fn within<T>(&self, stall: Duration, taken: impl Future<Output = T>) -> Result<T> {
        self.place.set_standing(Standing::Idle(self.clock.now() + PAUSE));
        let taken = tokio::select! {
            biased;
            () = self.place.displaced() => {
                Err(Error::Unread { reason: "its client read nothing, and another client waits to start".into() })
            }
            taken = taken => Ok(taken),
            () = self.clock.sleep(stall) => {
                Err(Error::Unread { reason: format!("its client read nothing for {} s", stall.as_secs()) })
            }
        };
        self.place.set_standing(Standing::Busy);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use arrow_schema::Schema;
    use futures::future::join;
    use futures::{FutureExt, StreamExt};
    use stoker_clock::ManualClock;
    use stoker_wire::encode::schema_message;
    use tonic::codegen::http::{Extensions, HeaderMap};

    use super::*;
    use crate::permits::{Full, Permits, Shares};

    const STALL: Duration = Duration::from_secs(20);

    fn caller() -> Caller {
        Caller::of(&Extensions::new(), &HeaderMap::new())
    }

    fn message() -> Message {
        schema_message(&Schema::empty())
    }

    /// Makes an output whose queue is full, and the permits of which it has the only one. Its messages have
    /// `times` times the usual size.
    async fn full(time: &ManualClock, times: usize) -> (Output, Answer, Permits<Caller>) {
        let clock = Clock::from(time);
        let permits = Permits::new(Shares { total: 1, per_client: 1 }, clock.clone());
        let place = permits.take(caller(), Standing::Busy, time.now()).expect("a permit");
        let message_bytes = message().wire_bytes().div_ceil(times);
        let (output, answer) = Output::new(1, place, STALL, message_bytes, clock);
        output.send(message()).await.expect("room in the queue");
        (output, answer, permits)
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_is_cut_when_its_time_is_over() {
        for times in [1, 3] {
            let time = ManualClock::new();
            let (output, _answer, _permits) = full(&time, times).await;
            let mut sent = pin!(output.send(message()));
            assert!(sent.as_mut().now_or_never().is_none());
            time.advance(STALL * times as u32 - Duration::from_nanos(1));
            assert!(sent.as_mut().now_or_never().is_none(), "{times}");
            time.advance(Duration::from_nanos(1));
            let error = sent.now_or_never().expect("at once").expect_err("nobody reads");
            assert!(matches!(error, Error::Unread { .. }), "{error}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_makes_room_after_a_pause() {
        let time = ManualClock::new();
        let (output, _answer, permits) = full(&time, 1).await;
        let begun = time.now();
        let newcomer = permits.take_within(caller(), 2 * PAUSE);
        let (sent, newcomer) = time.run(join(output.send(message()), newcomer));
        assert!(sent.is_err_and(|error| error.to_string().contains("another client waits")));
        newcomer.expect("the permit of the other");
        assert_eq!(time.now() - begun, PAUSE);
    }

    #[tokio::test]
    async fn an_answer_that_is_read_keeps_its_permit() {
        let time = ManualClock::new();
        let (output, mut answer, permits) = full(&time, 1).await;
        let mut sent = pin!(output.send(message()));
        assert!(sent.as_mut().now_or_never().is_none());
        time.advance(STALL - Duration::from_nanos(1));
        assert!(answer.next().await.is_some());
        sent.await.expect("the client reads");
        let refused = permits.take_within(caller(), STALL).await;
        assert_eq!(refused.err(), Some(Full { ripe_at: None }));
    }
}
