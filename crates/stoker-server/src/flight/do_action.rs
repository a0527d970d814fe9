//! `DoAction`: the calls of a lake, as JSON.

use arrow_flight::ActionType;
use stoker_session::{Error, Result};
use stoker_types::Context;
use stoker_types::calls::{CALLS, answer_action};
use tracing::Instrument;

use crate::flight_sql::ACTIONS;
use crate::state::ServerState;

/// What `ListActions` answers.
pub(crate) fn action_types() -> Vec<ActionType> {
    let action =
        |call: &stoker_types::calls::CallInfo| ActionType { r#type: call.name.into(), description: call.about.into() };
    let of_flight_sql = |(name, about): (&str, &str)| ActionType { r#type: name.into(), description: about.into() };
    CALLS.iter().map(action).chain(ACTIONS.into_iter().map(of_flight_sql)).collect()
}

impl ServerState {
    /// Answers an action, within its deadline if it may be repeated: a write that was begun is finished.
    ///
    /// # Errors
    /// `Cancelled` after the deadline; the errors of the call.
    pub(crate) async fn do_action(&self, context: &Context, name: &str, body: &[u8]) -> Result<Vec<u8>> {
        let span =
            tracing::info_span!("action", name, principal = %context.principal.name, trace = context.trace.as_deref());
        let answer = answer_action(self, context, name, body).instrument(span);
        let is_repeatable = CALLS.iter().any(|call| call.name == name && call.is_repeatable);
        let late = || Err(Error::Deadline { attempted: format!("action {name}") });
        let clock = &self.environment.clock;
        match context.deadline.filter(|_| is_repeatable) {
            None => answer.await,
            Some(deadline) if deadline <= clock.now() => late(),
            Some(deadline) => clock.timeout_at(deadline, answer).await.unwrap_or_else(late),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stoker_clock::Environment;
    use stoker_types::{Context, ErrorKind};

    use crate::state::ServerState;
    use crate::tests::fixture::{TestLake, config, run};
    use stoker_wire::TicketSigner;

    #[test]
    fn reads_end_at_the_deadline_and_writes_do_not() {
        run(async {
            let lake = TestLake::new(10).await;
            let keys = vec![("test".to_string(), b"a secret of enough bytes".to_vec())];
            let signer = TicketSigner::try_new(keys, Duration::from_secs(60)).expect("a key");
            let state = ServerState::try_new(lake.engine().await, config(), signer, None, Environment::default())
                .expect("a server");
            let late = Context { deadline: Some(state.environment.clock.now()), ..Context::local() };
            let error = state.do_action(&late, "tables", b"").await.expect_err("the deadline passed");
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            assert!(error.to_string().starts_with("action tables was cancelled: the deadline"), "{error}");
            let tag = br#"{"table": "t", "new_tag": "v1"}"#;
            assert_eq!(state.do_action(&late, "tag", tag).await.expect("a tag"), b"{}");
            assert_eq!(state.do_action(&Context::local(), "tables", b"").await.expect("tables"), br#"["t"]"#);
        });
    }
}
