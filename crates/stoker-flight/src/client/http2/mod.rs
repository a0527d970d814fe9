//! HTTP/2 for DoGet: one connection, one request, and an answer that is read straight to where it belongs.
//!
//! ```text
//! socket ─poll_read─┬─► Input ─► heads of frames, headers, small data ─┐
//!                   └─► large data: memory of a batch                  ├─► Connection::read
//! socket ◄─poll_write── Output ◄── request, WINDOW_UPDATE, ACKs ◄──────┘
//! ```
//!
//! A general client hands out frames, which somebody must copy to their places. Here the caller says where the next bytes
//! belong before they are read, so that the kernel puts them there. There is no task: frames are handled when the answer is
//! read, which also means that a server is held up by what nobody reads.
//!
//! The protocol is that of <https://www.rfc-editor.org/rfc/rfc9113>. Servers that do not keep to it get an error, never a panic,
//! and cannot take more memory than the limits here.

mod connection;
mod dial;
pub(crate) mod frame;
mod headers;
pub(crate) mod hpack;
mod input;
mod link;
mod output;
mod payload;
mod request;
mod window;

use std::fmt::Display;

pub(crate) use connection::Connection;
pub(crate) use dial::{Server, tls_config};
pub(crate) use link::{Io, Patience};
pub(crate) use request::{Request, grpc_frame};

use crate::Error;

/// An error for a server that breaks a rule. Another server may keep it.
fn violation(reason: impl Display) -> Error {
    Error::broken(format!("the server does not keep to HTTP/2: {reason}"))
}

/// The name of an error code: <https://www.rfc-editor.org/rfc/rfc9113#name-error-codes>.
fn reason_name(code: u32) -> String {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    NAMES.get(code as usize).map_or_else(|| format!("error {code}"), ToString::to_string)
}
