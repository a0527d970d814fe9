//! `DoAction`: the calls of a lake, as JSON.

use arrow_flight::ActionType;
use stoker_types::Context;
use stoker_types::calls::{CALLS, answer_action};
use tokio::time::{Instant, timeout_at};

use crate::server::state::ServerState;
use crate::{Error, Result};

/// What `ListActions` answers.
pub(crate) fn action_types() -> Vec<ActionType> {
    let action =
        |call: &stoker_types::calls::CallInfo| ActionType { r#type: call.name.into(), description: call.about.into() };
    CALLS.iter().map(action).collect()
}

impl ServerState {
    /// Answers an action, within its deadline if it may be repeated: a write that was begun is finished.
    ///
    /// # Errors
    /// `Cancelled` after the deadline; the errors of the call.
    pub(crate) async fn do_action(&self, context: &Context, name: &str, body: &[u8]) -> Result<Vec<u8>> {
        let answer = answer_action(self, context, name, body);
        let is_repeatable = CALLS.iter().any(|call| call.name == name && call.is_repeatable);
        match context.deadline.filter(|_| is_repeatable) {
            None => answer.await,
            Some(deadline) => timeout_at(Instant::from_std(deadline), answer)
                .await
                .unwrap_or_else(|_| Err(Error::Deadline { attempted: format!("action {name}") })),
        }
    }
}
