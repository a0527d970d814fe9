//! Readiness: whether the server wants new clients, and if not, why.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stoker_wire::protocol::SERVICE;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::state::ServerState;

/// The interval between two checks of the object store.
const ASKED_EVERY: Duration = Duration::from_secs(5);

/// The timeout of a check, after which the store counts as down.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The result of the last check.
#[derive(Default)]
pub(crate) struct Readiness {
    /// The reason why the store cannot be used; `None` if it can.
    store: Mutex<Option<String>>,
}

impl Readiness {
    /// Returns the reasons why new clients should use another server; none if this server wants them.
    pub fn reasons(&self, state: &ServerState) -> Vec<String> {
        let mut reasons = Vec::new();
        if state.stopping.is_cancelled() {
            reasons.push("the server is stopping".to_string());
        }
        reasons.extend(self.store.lock().clone());
        if state.streams.is_full() {
            let limit = state.config.streams_max;
            reasons.push(format!("{limit} streams are running, the limit (streams_max) of this server"));
        }
        if state.lake.queue_status().is_full {
            reasons.push("the limits of running and waiting queries are reached".to_string());
        }
        reasons
    }

    /// Checks the store every five seconds, and updates the gRPC health service. Never ends.
    pub async fn watch(self: Arc<Self>, state: Arc<ServerState>, health: HealthReporter) {
        let clock = &state.environment.clock;
        let mut ticks = clock.ticks(ASKED_EVERY);
        loop {
            ticks.next().await;
            let found = match clock.timeout(ANSWER_MAX, state.lake.lake().check_reachable()).await {
                Some(Ok(())) => None,
                Some(Err(error)) => Some(format!("the store of the lake cannot be used: {:?}", error.kind())),
                None => Some(format!("the store of the lake has not answered for {} s", ANSWER_MAX.as_secs())),
            };
            let before = std::mem::replace(&mut *self.store.lock(), found.clone());
            match (&before, &found) {
                (None, Some(reason)) => tracing::warn!(reason, "not ready"),
                (Some(_), None) => tracing::info!("ready: the store answers again"),
                _ => {}
            }
            let is_ready = self.reasons(&state).is_empty();
            set_health(&health, if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
        }
    }
}

/// Sets the status that gRPC health checks get.
pub(crate) async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for service in ["", SERVICE] {
        health.set_service_status(service, status).await;
    }
}
