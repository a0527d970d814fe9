//! Whether new clients are welcome, and if not, why.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::server::state::ServerState;
use crate::wire::SERVICE;

/// How often the store is asked.
const ASKED_EVERY: Duration = Duration::from_secs(5);

/// After so long without an answer the store counts as down.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What was found out last about what a server needs.
#[derive(Default)]
pub(crate) struct Readiness {
    /// Why the store cannot be used.
    store: Mutex<Option<String>>,
}

impl Readiness {
    /// Why new clients are better served elsewhere; nothing where they are welcome.
    pub fn reasons(&self, state: &ServerState) -> Vec<String> {
        let mut reasons = Vec::new();
        if state.stopping.is_cancelled() {
            reasons.push("the server stops".to_string());
        }
        reasons.extend(self.store.lock().clone());
        if state.streams.is_full() {
            reasons.push(format!("{} streams are running, the most that this server takes", state.config.streams_max));
        }
        if state.engine.queue_status().is_full {
            reasons.push("as many queries run and wait as this server takes".to_string());
        }
        reasons
    }

    /// Asks the store every few seconds, and tells health checks. Never ends.
    pub async fn watch(self: Arc<Self>, state: Arc<ServerState>, health: HealthReporter) {
        let mut ticks = interval(ASKED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let found = match timeout(ANSWER_MAX, state.engine.lake().check_reachable()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("the store of the lake cannot be used: {:?}", error.kind())),
                Err(_) => Some(format!("the store of the lake has not answered for {} s", ANSWER_MAX.as_secs())),
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

/// Tells health checks of gRPC.
pub(crate) async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for service in ["", SERVICE] {
        health.set_service_status(service, status).await;
    }
}
