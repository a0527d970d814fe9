//! From the work for an answer to its connection.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tonic::Status;

use crate::encode::Message;
use crate::server::answer_body::{Answer, Item};
use crate::server::caller::Caller;
use crate::server::edge::Reset;
use crate::server::places::{Place, Standing};
use crate::{Error, Result};

/// A client that takes nothing for so long keeps its place, whoever needs it.
const PAUSE: Duration = Duration::from_millis(400);

/// Where the messages of an answer go. An answer of which the client takes nothing is cut: after a while, or as soon as another client
/// needs its place.
pub(crate) struct Output {
    items: mpsc::Sender<Item>,
    place: Place<Caller>,
    reset: Reset,
    stall: Duration,
    /// Bytes that messages have, about: larger ones may take longer.
    message_bytes: usize,
}

impl Output {
    /// An output and the answer that it fills; `queue` messages wait between them.
    pub fn new(queue: usize, place: Place<Caller>, stall: Duration, message_bytes: usize) -> (Self, Answer) {
        let (items, received) = mpsc::channel(queue);
        (Self { items, place, reset: Reset::current(), stall, message_bytes }, Answer::new(received))
    }

    /// Hands a message over.
    ///
    /// # Errors
    /// `Stopping` for a client that went away; `Unread` for one that takes nothing.
    pub async fn send(&self, message: Message) -> Result<()> {
        let times = message.wire_bytes().div_ceil(self.message_bytes.max(1)).clamp(1, 1 << 10);
        match self.items.try_send(Item::Message(message)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Error::Stopping),
            Err(TrySendError::Full(item)) => {
                let sent = self.within(self.stall * times as u32, self.items.send(item)).await?;
                sent.map_err(|_| Error::Stopping)
            }
        }
    }

    /// Sends the end, and keeps the place until the client has taken all: what waits for it uses memory.
    pub async fn end(self, done: Result<()>, status: impl FnOnce(Error) -> Status) {
        if let Err(error @ Error::Unread { .. }) = &done {
            tracing::info!(%error, "cutting an answer");
            return self.reset.reset();
        }
        // A client that went away needs no answer.
        let ended = async {
            self.items.send(Item::End(done.map_or_else(status, |()| Status::ok("")))).await.ok();
            self.closed().await;
        };
        if let Err(error) = self.within(self.stall, ended).await {
            tracing::info!(%error, "cutting an answer that was complete");
            self.reset.reset();
        }
    }

    /// Waits until the client went away, or has taken the end.
    pub async fn closed(&self) {
        self.items.closed().await;
    }

    /// Waits for the client. Meanwhile others may have its place.
    async fn within<T>(&self, stall: Duration, taken: impl Future<Output = T>) -> Result<T> {
        self.place.set_standing(Standing::Idle(Instant::now() + PAUSE));
        let taken = tokio::select! {
            biased;
            () = self.place.displaced() => Err(Error::Unread { reason: "another client needs its place".into() }),
            taken = taken => Ok(taken),
            () = tokio::time::sleep(stall) => Err(Error::Unread { reason: format!("its client took nothing of it for {} s", stall.as_secs()) }),
        };
        self.place.set_standing(Standing::Busy);
        taken
    }
}
