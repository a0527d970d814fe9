//! Tells a server with TLS from one that is down, for a client without TLS.

use std::time::Duration;

use stoker_net::http2::Server;
use stoker_net::http2::frame::PREFACE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// The first bytes of an alert of TLS, with which servers answer what is not TLS: the type of the record, and the major
/// version (<https://www.rfc-editor.org/rfc/rfc8446#section-5.1>).
const ALERT: [u8; 2] = [21, 3];

/// Whether a server that is reached without TLS expects it: it answers HTTP/2 with an alert of TLS within `wait`. The
/// question takes a connection of its own.
pub async fn expects_tls(server: &Server, wait: Duration) -> bool {
    if server.is_tls() {
        return false;
    }
    let answer = async {
        let mut io = server.connect(wait).await.ok()?;
        io.write_all(PREFACE).await.ok()?;
        let mut head = [0; ALERT.len()];
        io.read_exact(&mut head).await.ok()?;
        Some(head)
    };
    timeout(wait, answer).await.is_ok_and(|head| head == Some(ALERT))
}
