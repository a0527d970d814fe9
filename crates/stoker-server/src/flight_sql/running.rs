//! The answers that are being sent, for clients that cancel them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stoker_types::Digest;
use tokio_util::sync::CancellationToken;

/// The answers that this server is sending, by their tickets. Clones are the same answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<HashMap<Digest, Answers>>>);

/// The answers to one ticket.
#[derive(Debug)]
struct Answers {
    cancelled: CancellationToken,
    number: usize,
}

/// One answer that is being sent, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningAnswer {
    running: Running,
    ticket: Digest,
    cancelled: CancellationToken,
}

impl Running {
    /// Notes that an answer to a ticket is being sent.
    pub fn begin(&self, ticket: &[u8]) -> RunningAnswer {
        let ticket = Digest::of(ticket);
        let mut all = self.0.lock();
        let answers =
            all.entry(ticket).or_insert_with(|| Answers { cancelled: CancellationToken::new(), number: 0 });
        answers.number += 1;
        RunningAnswer { running: self.clone(), ticket, cancelled: answers.cancelled.clone() }
    }

    /// Cancels the answers to a ticket. Returns whether there are any.
    pub fn cancel(&self, ticket: &[u8]) -> bool {
        let answers = self.0.lock().remove(&Digest::of(ticket));
        answers.map(|answers| answers.cancelled.cancel()).is_some()
    }
}

impl RunningAnswer {
    /// Waits until the answer is cancelled.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for RunningAnswer {
    fn drop(&mut self) {
        let mut all = self.running.0.lock();
        // A cancelled answer is not listed any more, and a later one to the same ticket is another one.
        if self.cancelled.is_cancelled() {
            return;
        }
        let Some(answers) = all.get_mut(&self.ticket) else { return };
        answers.number -= 1;
        if answers.number == 0 {
            all.remove(&self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn answers_to_a_ticket_are_cancelled_together_and_others_are_not() {
        let running = Running::default();
        let (first, second, other) = (running.begin(b"a"), running.begin(b"a"), running.begin(b"b"));
        let is_cancelled = |answer: &RunningAnswer| answer.cancelled().now_or_never().is_some();
        assert!(!is_cancelled(&first));
        assert!(running.cancel(b"a"));
        assert!(!running.cancel(b"a"), "no answer is left to cancel");
        let again = running.begin(b"a");
        assert_eq!([&first, &second, &other, &again].map(is_cancelled), [true, true, false, false]);
        drop((first, second));
        assert!(running.cancel(b"a"), "the later answer is still there");
        assert!(is_cancelled(&again));
        drop((other, again));
        assert!(running.0.lock().is_empty());
    }
}
