//! The tasks that serve the requests of a connection.

use std::sync::Arc;

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use super::peer::Peer;

tokio::task_local! {
    static RESET: Reset;
}

/// Resets the HTTP/2 stream of one request. hyper polls no body while the client's flow-control window is closed, so a
/// body cannot end a response then. Dropping the future that hyper runs for the request resets the stream.
#[derive(Clone, Default)]
pub(crate) struct Reset(CancellationToken);

impl Reset {
    /// Returns the handle for the request that the current task serves; outside of such a task, one without effect.
    pub fn current() -> Self {
        RESET.try_with(Reset::clone).unwrap_or_default()
    }

    /// Resets the stream, with the code CANCEL.
    pub fn reset(&self) {
        self.0.cancel();
    }
}

/// Runs the requests of a connection as tasks, and records them in its [`Peer`].
#[derive(Clone)]
pub(super) struct StreamTasks {
    pub peer: Arc<Peer>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamTasks {
    fn execute(&self, request: F) {
        let running = Running::new(self.peer.clone());
        let reset = Reset::default();
        tokio::spawn(async move {
            let _running = running;
            tokio::select! {
                () = reset.0.cancelled() => {}
                () = RESET.scope(reset.clone(), request) => {}
            }
        });
    }
}

/// A request that is being served.
struct Running(Arc<Peer>);

impl Running {
    fn new(peer: Arc<Peer>) -> Self {
        peer.begin_request();
        Self(peer)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.end_request();
    }
}
