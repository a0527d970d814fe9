//! `DoAction` for Flight SQL: prepared statements, cancelling, renewing and sessions.

use arrow_flight::sql::{ActionCancelQueryRequest, ActionCancelQueryResult, Command, ProstMessageExt};
use arrow_flight::{
    CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightEndpoint, FlightInfo,
    RenewFlightEndpointRequest,
};
use bytes::Bytes;
use prost::Message;
use stoker_flight_sql::session_options::SessionCookie;
use stoker_flight_sql::{command_of, session_options};
use stoker_session::{Error, Result};
use stoker_types::{Principal, QueryOptions};
use stoker_wire::proto::{FlightSession, TicketBody, ticket_body};

use crate::flight::Poll;
use crate::flight_sql::info::no_transaction;
use crate::state::ServerState;

/// The actions with what they do.
pub(crate) const ACTIONS: [(&str, &str); 8] = [
    ("CreatePreparedStatement", "Flight SQL: prepares a statement"),
    ("ClosePreparedStatement", "Flight SQL: closes a prepared statement, of which the server keeps nothing"),
    ("CancelQuery", "Flight SQL: cancels a query; superseded by CancelFlightInfo"),
    ("CancelFlightInfo", "Flight: cancels the answers to the tickets of a FlightInfo, or the plan of a PollInfo"),
    ("RenewFlightEndpoint", "Flight: renews the ticket of an endpoint"),
    ("SetSessionOptions", "Flight: sets options of the session"),
    ("GetSessionOptions", "Flight: returns the options of the session"),
    ("CloseSession", "Flight: closes the session, of which the server keeps nothing"),
];

/// The answer to an action on a session, and the header that it has.
pub(crate) struct SessionAnswer {
    pub body: Bytes,
    pub set_cookie: Option<String>,
}

/// The actions of Flight SQL that this server refuses.
const TRANSACTIONS: [&str; 4] = ["BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint"];

/// Returns whether an action is one of Flight SQL, or one of Flight that drivers use with it.
pub(crate) fn is_action(name: &str) -> bool {
    ACTIONS.iter().any(|(known, _)| *known == name)
        || TRANSACTIONS.contains(&name)
        || name == "CreatePreparedSubstraitPlan"
}

impl ServerState {
    /// Answers an action of Flight SQL. Some have no answer.
    ///
    /// # Errors
    /// A body that cannot be read; those of what is asked for.
    pub(crate) async fn flight_sql_action(&self, asking: &Principal, name: &str, body: Bytes) -> Result<Option<Bytes>> {
        Ok(match name {
            "CreatePreparedStatement" => {
                let Some(Command::ActionCreatePreparedStatementRequest(request)) = command_of(&body)? else {
                    return Err(wrong_body(name));
                };
                no_transaction(request.transaction_id.as_deref())?;
                Some(packed(&self.prepare(asking, &request.query).await?))
            }
            "ClosePreparedStatement" => match command_of(&body)? {
                Some(Command::ActionClosePreparedStatementRequest(_)) => None,
                _ => return Err(wrong_body(name)),
            },
            "CancelQuery" => {
                let Some(Command::ActionCancelQueryRequest(ActionCancelQueryRequest { info })) = command_of(&body)?
                else {
                    return Err(wrong_body(name));
                };
                let info = FlightInfo::decode(info).map_err(|_| wrong_body(name))?;
                Some(packed(&ActionCancelQueryResult { result: self.cancel(asking, &info)? as i32 }))
            }
            "CancelFlightInfo" => {
                let request = CancelFlightInfoRequest::decode(body).map_err(|_| wrong_body(name))?;
                let status = self.cancel(asking, &request.info.unwrap_or_default())?;
                Some(CancelFlightInfoResult { status: status as i32 }.encode_to_vec().into())
            }
            "RenewFlightEndpoint" => {
                let request = RenewFlightEndpointRequest::decode(body).map_err(|_| wrong_body(name))?;
                Some(self.renewed(request.endpoint.unwrap_or_default())?.encode_to_vec().into())
            }
            "CreatePreparedSubstraitPlan" => return Err(Error::invalid("Substrait plans are not supported; send SQL")),
            name => {
                return Err(Error::invalid(format!(
                    "{name}: transactions are not supported; each statement is committed by itself"
                )));
            }
        })
    }

    /// Answers an action on a session; `None` for other actions.
    ///
    /// # Errors
    /// A body that cannot be read; those of [`ServerState::session_options`].
    pub(crate) fn session_action(
        &self,
        name: &str,
        cookie: Option<&SessionCookie>,
        body: &Bytes,
    ) -> Result<Option<SessionAnswer>> {
        let (body, options) = match name {
            "SetSessionOptions" => session_options::set(body.clone(), self.session_options(cookie)?)?,
            "GetSessionOptions" => {
                let options = self.session_options(cookie)?;
                (session_options::get(options), options)
            }
            // A session whose cookie is not valid can be closed, too.
            "CloseSession" => (session_options::close(), QueryOptions::default()),
            _ => return Ok(None),
        };
        Ok(Some(SessionAnswer { body, set_cookie: self.set_cookie(cookie, options) }))
    }

    /// Verifies the cookie of a session, and returns the session's options. Without a cookie they have their defaults.
    ///
    /// # Errors
    /// A cookie that was changed, that expired, or that another key signed.
    pub(crate) fn session_options(&self, cookie: Option<&SessionCookie>) -> Result<QueryOptions> {
        let Some(cookie) = cookie else { return Ok(QueryOptions::default()) };
        let verified = self.signer.verify(cookie.signed(), self.now_unix_secs()).map_err(|error| match error {
            stoker_wire::Error::InvalidTicket { reason } => stoker_wire::Error::InvalidSession { reason },
            stoker_wire::Error::ExpiredTicket { reason } => stoker_wire::Error::ExpiredSession { reason },
            other => other,
        });
        match verified?.kind {
            Some(ticket_body::Kind::Session(session)) => Ok(QueryOptions::approximate(session.approximate)),
            _ => Err(stoker_wire::Error::InvalidSession { reason: "it is a ticket" }.into()),
        }
    }

    /// Returns the header `set-cookie` by which a session has these options from now on, for as long as tickets are valid.
    /// `None` if the client has no cookie and needs none.
    pub(crate) fn set_cookie(&self, cookie: Option<&SessionCookie>, options: QueryOptions) -> Option<String> {
        if options == QueryOptions::default() {
            return cookie.map(|_| SessionCookie::forget());
        }
        let session = FlightSession { approximate: options.is_approximate() };
        let body = TicketBody { kind: Some(ticket_body::Kind::Session(session)), ..TicketBody::default() };
        Some(SessionCookie::header(&self.signer.sign(body, self.now_unix_secs())))
    }

    /// Cancels the answers of this server to the tickets of a client's FlightInfo, also to those that have expired; or
    /// the stream that it plans, if the FlightInfo is that of a poll.
    fn cancel(&self, asking: &Principal, info: &FlightInfo) -> Result<CancelStatus> {
        let mut status = CancelStatus::NotCancellable;
        let poll = info.flight_descriptor.as_ref().map(|descriptor| self.poll_of(asking, descriptor)).transpose()?;
        if let Some(Some(Poll::Next(poll))) = poll
            && self.polled_plans.cancel(&(asking.name.clone(), poll.nonce))
        {
            status = CancelStatus::Cancelled;
        }
        for ticket in info.endpoint.iter().filter_map(|endpoint| endpoint.ticket.as_ref()) {
            if self.running.cancel(&asking.name, &ticket.ticket) {
                status = CancelStatus::Cancelled;
            } else if let Err(error @ stoker_wire::Error::InvalidTicket { .. }) =
                self.signer.verify(&ticket.ticket, self.now_unix_secs())
            {
                return Err(error.into());
            }
        }
        Ok(status)
    }

    /// Returns an endpoint whose ticket is valid for longer.
    fn renewed(&self, endpoint: FlightEndpoint) -> Result<FlightEndpoint> {
        let ticket = endpoint.ticket.unwrap_or_default();
        let kind = self.signer.verify(&ticket.ticket, self.now_unix_secs())?.kind;
        let kind = kind.ok_or(stoker_wire::Error::InvalidTicket { reason: "it names nothing" })?;
        Ok(FlightEndpoint { app_metadata: endpoint.app_metadata, ..self.endpoint(kind) })
    }
}

fn packed(message: &impl ProstMessageExt) -> Bytes {
    message.as_any().encode_to_vec().into()
}

fn wrong_body(name: &str) -> Error {
    Error::invalid(format!("the body of the action {name} cannot be read"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stoker_clock::{Clock, Environment, ManualClock};
    use stoker_types::ErrorKind;
    use stoker_wire::TicketSigner;

    use super::*;
    use crate::tests::fixture::{TestLake, config, run};

    /// A server whose clock stands, with this secret of its key.
    async fn state(lake: &TestLake, time: &ManualClock, secret: &str) -> ServerState {
        let keys = vec![("test".to_string(), secret.as_bytes().to_vec())];
        let signer = TicketSigner::try_new(keys, Duration::from_secs(60)).expect("a key");
        let environment = Environment { clock: Clock::from(time), ..Environment::default() };
        ServerState::try_new(lake.engine().await, config(), signer, None, environment).expect("a server")
    }

    /// What a client sends after it got a header `set-cookie`.
    fn sent(set_cookie: &str) -> SessionCookie {
        SessionCookie::of([set_cookie.split(';').next().unwrap_or_default()]).expect("a cookie")
    }

    #[test]
    fn sessions_are_valid_as_long_as_tickets() {
        run(async {
            let (lake, time) = (TestLake::new(1).await, ManualClock::new());
            let state = state(&lake, &time, "a secret of enough bytes").await;
            let (yes, no) = (QueryOptions::approximate(true), QueryOptions::default());
            assert_eq!(state.set_cookie(None, no), None, "defaults need no cookie");
            assert_eq!(state.session_options(None).expect("options"), no);
            let cookie = sent(&state.set_cookie(None, yes).expect("a cookie"));
            assert_eq!(state.session_options(Some(&cookie)).expect("options"), yes);
            assert!(state.set_cookie(Some(&cookie), no).expect("a header").contains("Max-Age=0"));
            time.advance(Duration::from_secs(59));
            assert_eq!(state.session_options(Some(&cookie)).expect("options"), yes);
            let renewed = sent(&state.set_cookie(Some(&cookie), yes).expect("a cookie"));
            time.advance(Duration::from_secs(1));
            let error = state.session_options(Some(&cookie)).expect_err("an old cookie");
            assert_eq!(error.kind(), ErrorKind::Expired);
            assert_eq!(
                error.to_string(),
                "the session is no longer valid: it expired 0 s ago; connect again and set its options"
            );
            assert_eq!(state.session_options(Some(&renewed)).expect("options"), yes);
            // Any session can be closed.
            let closed = state.session_action("CloseSession", Some(&cookie), &Bytes::new()).expect("an answer");
            assert!(closed.expect("an answer").set_cookie.expect("a header").contains("Max-Age=0"));
            assert!(state.session_action("tables", Some(&cookie), &Bytes::new()).expect("no action").is_none());
        });
    }

    #[test]
    fn cookies_that_were_changed_or_signed_elsewhere_are_refused() {
        run(async {
            let (lake, time) = (TestLake::new(1).await, ManualClock::new());
            let here = state(&lake, &time, "a secret of enough bytes").await;
            let there = state(&lake, &time, "another secret of enough bytes").await;
            let cookie = here.set_cookie(None, QueryOptions::approximate(true)).expect("a cookie");
            let mut changed = cookie.clone().into_bytes();
            let at = changed.iter().position(|byte| *byte == b';').expect("an end") - 4;
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = sent(&String::from_utf8(changed).expect("UTF-8"));
            let ticket = SessionCookie::header(&here.signer.sign(TicketBody::default(), here.now_unix_secs()));
            for (state, cookie, part) in [
                (&here, changed, "its signature does not fit"),
                (&there, sent(&cookie), "its signature does not fit"),
                (&here, sent(&ticket), "it is a ticket"),
                (&here, sent("stoker-session=forged!"), "it is not a ticket of Stoker"),
            ] {
                let error = state.session_options(Some(&cookie)).expect_err("a cookie that is not valid");
                assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
                assert!(error.to_string().starts_with("the cookie of the session is not valid: "), "{error}");
                assert!(error.to_string().contains(part), "{error}");
            }
        });
    }
}
