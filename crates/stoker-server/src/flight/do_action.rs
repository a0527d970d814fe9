//! `DoAction`: the calls of a lake, as JSON. The answer to `execute` is a sequence of messages.

use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::ActionType;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use stoker_clock::Clock;
use stoker_dialect::Inquiry;
use stoker_session::{Error, Result};
use stoker_types::calls::{CALLS, CallInfo, EXECUTE, ExecuteStatement, StatementMessage, answer_action, decode_call};
use stoker_types::{Context, ParamValue, Principal, ProgressSink, Role, StatementOutcome, StatementProgress};
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tracing::Instrument;

use crate::auth::check_role;
use crate::caller::Caller;
use crate::flight::status::status;
use crate::flight_sql::ACTIONS;
use crate::permits::Permit;
use crate::request_id::for_request;
use crate::state::ServerState;

/// The interval without progress of a statement after which the server sends the last progress again, so that proxies
/// keep the connection.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// What a server answers that does not allow statements that change the lake.
const READ_ONLY: &str = "this server does not support writing: start it with --allow-writes, or with allow_writes = true in \
                         its configuration file; or write to the lake itself";

/// What `ListActions` answers.
pub(crate) fn action_types() -> Vec<ActionType> {
    let action = |call: &CallInfo| ActionType { r#type: call.name.into(), description: call.about.into() };
    let of_flight_sql = |(name, about): (&str, &str)| ActionType { r#type: name.into(), description: about.into() };
    CALLS.iter().chain([&EXECUTE]).map(action).chain(ACTIONS.into_iter().map(of_flight_sql)).collect()
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

    /// Checks that a principal may execute statements that change the lake.
    ///
    /// # Errors
    /// `PermissionDenied` if the role of the principal does not allow it, or the server.
    pub(crate) fn check_writes(&self, principal: &Principal, what: &str) -> Result<()> {
        check_role(principal, Role::Write, what)?;
        match self.config.allow_writes {
            true => Ok(()),
            false => Err(Error::Forbidden { reason: READ_ONLY.into() }),
        }
    }

    /// Executes a statement for each row of its parameters, for a principal that may do so, see
    /// [`ServerState::check_writes`]. It has no deadline.
    ///
    /// # Errors
    /// Those of the statement.
    pub(crate) async fn execute(
        &self,
        context: &Context,
        sql: &str,
        rows_of_params: &[Vec<ParamValue>],
        progress: &ProgressSink<'_>,
    ) -> Result<StatementOutcome> {
        let name = &context.principal.name;
        let span = tracing::info_span!("statement", principal = %name, trace = context.trace.as_deref());
        let outcome = self.lake.execute_many(sql, rows_of_params, progress).instrument(span).await?;
        let (statement, table) = (outcome.statement.as_str(), outcome.table.as_deref());
        tracing::info!(principal = %name, statement, table, version = outcome.version, "executed a statement");
        Ok(StatementOutcome { message: self.place_filter.filter(&outcome.message), ..outcome })
    }

    /// Begins to execute a statement, and returns the messages of the answer. The statement is cancelled when they are
    /// dropped.
    ///
    /// # Errors
    /// A principal or a server that must not write, and no permit. All other errors end the messages.
    pub(crate) async fn execute_action(
        self: Arc<Self>,
        caller: Caller,
        context: Context,
        body: Bytes,
    ) -> Result<BoxStream<'static, Result<arrow_flight::Result, Status>>> {
        self.check_writes(&context.principal, "action execute")?;
        let permit = self.result_permit(caller).await?;
        let (reports, progress) = watch::channel(StatementProgress::phase("executing the statement"));
        let (threads, clock) = (self.query_threads.handle().clone(), self.environment.clock.clone());
        let work = async move {
            let report = |progress| {
                reports.send_replace(progress);
            };
            let done = match decode_call::<ExecuteStatement>(&body) {
                Err(error) => Err(error.into()),
                Ok(call) => tokio::select! {
                    biased;
                    () = self.cut.cancelled() => Err(outcome_unknown(&call.sql, &Error::Stopping)),
                    done = self.execute(&context, &call.sql, from_ref(&call.params), &report) => done,
                },
            };
            done.map_err(|error| self.place_filter.status(status(error)))
        };
        let task = AbortOnDropHandle::new(threads.spawn(for_request(work)));
        let execution = Execution { task, progress, clock, _permit: permit };
        Ok(stream::unfold(Some(execution), next_message).boxed())
    }
}

/// Returns the error of a statement that may have taken effect, although its answer was lost by `error`.
pub(crate) fn outcome_unknown(sql: &str, error: &Error) -> Error {
    let Inquiry { statement, question } = Inquiry::about(sql);
    Error::OutcomeUnknown { attempted: statement, reason: error.to_string(), look: question }
}

/// A statement that is being executed, until this is dropped.
struct Execution {
    task: AbortOnDropHandle<Result<StatementOutcome, Status>>,
    progress: watch::Receiver<StatementProgress>,
    clock: Clock,
    _permit: Permit<Caller>,
}

impl Execution {
    /// Waits for the outcome, or for new progress for a limited time.
    async fn next(&mut self) -> Result<StatementMessage, Status> {
        let changed = self.clock.timeout(KEEPALIVE, self.progress.changed());
        let is_over = tokio::select! {
            biased;
            done = &mut self.task => return outcome(done),
            changed = changed => matches!(changed, Some(Err(_))),
        };
        match is_over {
            true => outcome((&mut self.task).await),
            false => Ok(StatementMessage::Progress(self.progress.borrow_and_update().clone())),
        }
    }
}

fn outcome(done: Result<Result<StatementOutcome, Status>, JoinError>) -> Result<StatementMessage, Status> {
    done.unwrap_or_else(|panicked| Err(status(Error::internal(panicked)))).map(StatementMessage::Outcome)
}

/// Returns the next message of an answer as the result of an action, with the statement if it is still being executed.
async fn next_message(
    execution: Option<Execution>,
) -> Option<(Result<arrow_flight::Result, Status>, Option<Execution>)> {
    let mut execution = execution?;
    let message = execution.next().await;
    let goes_on = matches!(message, Ok(StatementMessage::Progress(_)));
    let body = message.and_then(|message| message.encode().map_err(status));
    Some((body.map(|body| arrow_flight::Result { body: body.into() }), goes_on.then_some(execution)))
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
