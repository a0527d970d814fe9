//! `DoGet` over a connection of its own.

use std::time::Duration;

use arrow_flight::Ticket;
use prost::Message;
use stoker_net::http2::{Patience, Request, Server};
use stoker_wire::Result;
use stoker_wire::protocol::DO_GET_PATH;

use crate::grpc::{CALL_HEADERS, call, grpc_frame};
use crate::message_reader::MessageReader;
use crate::remote_lake::Token;

/// Connects to a server and requests the messages of a ticket.
///
/// # Errors
/// The server's error; `Unavailable` for a server that cannot be reached within `wait`, and for a connection that
/// broke.
pub(crate) async fn do_get(server: &Server, wait: Duration, ticket: &Ticket, token: &Token) -> Result<MessageReader> {
    let io = server.connect(wait).await?;
    let request = Request {
        tls: server.is_tls(),
        authority: server.authority(),
        path: DO_GET_PATH,
        headers: &CALL_HEADERS,
        authorization: token.value().map(|token| token.as_bytes()),
        body: grpc_frame(&ticket.encode_to_vec()),
    };
    Ok(MessageReader::new(call(io, &request, Patience::default()).await?))
}
