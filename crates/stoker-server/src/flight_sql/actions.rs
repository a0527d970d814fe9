//! `DoAction` for Flight SQL: prepared statements, cancelling, renewing and sessions.

use arrow_flight::sql::{ActionCancelQueryRequest, ActionCancelQueryResult, Command, ProstMessageExt};
use arrow_flight::{
    CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightEndpoint, FlightInfo,
    RenewFlightEndpointRequest,
};
use bytes::Bytes;
use prost::Message;
use stoker_flight_sql::{command_of, session_options};
use stoker_session::{Error, Result};
use stoker_types::Principal;

use crate::flight_sql::info::no_transaction;
use crate::state::ServerState;

/// The actions with what they do.
pub(crate) const ACTIONS: [(&str, &str); 8] = [
    ("CreatePreparedStatement", "Flight SQL: prepares a statement"),
    ("ClosePreparedStatement", "Flight SQL: closes a prepared statement, of which the server keeps nothing"),
    ("CancelQuery", "Flight SQL: cancels a query; superseded by CancelFlightInfo"),
    ("CancelFlightInfo", "Flight: cancels the answers to the tickets of a FlightInfo"),
    ("RenewFlightEndpoint", "Flight: renews the ticket of an endpoint"),
    ("SetSessionOptions", "Flight: sets options of the session"),
    ("GetSessionOptions", "Flight: returns the options of the session"),
    ("CloseSession", "Flight: closes the session, of which the server keeps nothing"),
];

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
                Some(packed(&self.prepare(&request.query).await?))
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
            "SetSessionOptions" => Some(session_options::set(body)?),
            "GetSessionOptions" => Some(session_options::get()),
            "CloseSession" => Some(session_options::close()),
            "CreatePreparedSubstraitPlan" => return Err(Error::invalid("Substrait plans are not supported; send SQL")),
            name => {
                return Err(Error::invalid(format!(
                    "{name}: transactions are not supported; each statement is committed by itself"
                )));
            }
        })
    }

    /// Cancels the answers of this server to the tickets of a client's FlightInfo, also to those that have expired.
    fn cancel(&self, asking: &Principal, info: &FlightInfo) -> Result<CancelStatus> {
        let mut status = CancelStatus::NotCancellable;
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
