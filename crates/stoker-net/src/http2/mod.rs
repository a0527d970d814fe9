//! HTTP/2 for one request on a connection of its own, whose response is read straight into the caller's memory.
//!
//! ```text
//! socket ─poll_read─┬─► Input ─► heads of frames, headers, small data ─┐
//!                   └─► large data: memory of a batch                  ├─► Connection::read
//! socket ◄─poll_write── Output ◄── request, WINDOW_UPDATE, ACKs ◄──────┘
//! ```
//!
//! A general HTTP/2 client hands out frames, which the caller must copy into its buffers. Here the caller passes the
//! destination of the next bytes before they are read, so that the kernel writes them there. There is no background
//! task: frames are handled only while the caller reads the answer. So a server whose answer nobody reads must wait.
//!
//! The protocol is that of <https://www.rfc-editor.org/rfc/rfc9113>. A server that violates it causes an error, never a
//! panic, and cannot make this client allocate more memory than the limits here.

mod connection;
mod dial;
pub mod frame;
#[cfg(test)]
mod fuzz;
mod headers;
pub mod hpack;
mod input;
mod link;
mod output;
mod payload;
mod request;
mod window;

use std::fmt::Display;

pub use connection::Connection;
pub use dial::Server;
pub use headers::Headers;
pub use link::{Io, Patience};
pub use request::Request;

use crate::Error;

/// The size of the flow-control windows for responses: the bytes that a server may send before the client acknowledges them.
pub const WINDOW_BYTES: u32 = 32 << 20;

/// The maximum size of frames in responses. HTTP/2's default of 16 KiB costs more processor time.
pub const FRAME_BYTES: u32 = 1 << 20;

/// The error for a server that violates HTTP/2. Another server may be correct.
fn violation(reason: impl Display) -> Error {
    Error::broken(format!("the server violates HTTP/2: {reason}"))
}

/// Returns the name of an error code: <https://www.rfc-editor.org/rfc/rfc9113#name-error-codes>.
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
