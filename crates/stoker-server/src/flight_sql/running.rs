//! The answers that are being sent, for clients that cancel them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stoker_types::{Digest, PrincipalName};
use tokio_util::sync::CancellationToken;

/// The answers that this server is sending, by their clients and tickets. Clones are the same answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running(Arc<Mutex<HashMap<Key, Answers>>>);

/// Who asked, and the digest of the ticket.
type Key = (PrincipalName, Digest);

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
    key: Key,
    cancelled: CancellationToken,
}

impl Running {
    /// Notes that an answer to a ticket is being prepared or sent.
    pub fn begin(&self, name: &PrincipalName, ticket: &[u8]) -> RunningAnswer {
        let key = (name.clone(), Digest::of(ticket));
        let mut all = self.0.lock();
        let new = || Answers { cancelled: CancellationToken::new(), number: 0 };
        let answers = all.entry(key.clone()).or_insert_with(new);
        answers.number += 1;
        RunningAnswer { running: self.clone(), key, cancelled: answers.cancelled.clone() }
    }

    /// Cancels the answers to a ticket of a client. Returns whether there are any.
    pub fn cancel(&self, name: &PrincipalName, ticket: &[u8]) -> bool {
        let answers = self.0.lock().remove(&(name.clone(), Digest::of(ticket)));
        answers.map(|answers| answers.cancelled.cancel()).is_some()
    }
}

impl RunningAnswer {
    /// Waits until the answer is cancelled. The future does not keep the answer.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.cancelled.clone().cancelled_owned()
    }
}

impl Drop for RunningAnswer {
    fn drop(&mut self) {
        let mut all = self.running.0.lock();
        // A cancelled answer is not listed any more, and a later one to the same ticket is another one.
        if self.cancelled.is_cancelled() {
            return;
        }
        let Some(answers) = all.get_mut(&self.key) else { return };
        answers.number -= 1;
        if answers.number == 0 {
            all.remove(&self.key);
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
        let (anna, ben) =
            (PrincipalName::try_new("anna").expect("a name"), PrincipalName::try_new("ben").expect("a name"));
        let (first, second) = (running.begin(&anna, b"a"), running.begin(&anna, b"a"));
        let (other, bens) = (running.begin(&anna, b"b"), running.begin(&ben, b"a"));
        let is_cancelled = |answer: &RunningAnswer| answer.cancelled().now_or_never().is_some();
        assert!(!is_cancelled(&first));
        assert!(running.cancel(&anna, b"a"));
        assert!(!running.cancel(&anna, b"a"), "no answer is left to cancel");
        let again = running.begin(&anna, b"a");
        assert_eq!([&first, &second, &other, &bens, &again].map(is_cancelled), [true, true, false, false, false]);
        drop((first, second));
        assert!(running.cancel(&anna, b"a"), "the later answer is still there");
        assert!(is_cancelled(&again));
        drop((other, bens, again));
        assert!(running.0.lock().is_empty());
    }
}
