//! Connections to servers, in plain text or over TLS.

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http::uri::Authority;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::low_water::LowWater;

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream, LowWater),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Opens a new connection, over TLS where a connector is given.
    pub async fn connect(authority: &Authority, tls: Option<&TlsConnector>) -> io::Result<Self> {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if tls.is_some() { HTTPS_PORT } else { HTTP_PORT });
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Stream::Plain(stream, LowWater::default())) };
        let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(tls.connect(name, stream).await?)))
    }

    /// Makes the connection readable as soon as any byte has arrived. Returns whether it waited for more bytes before.
    pub fn wait_for_any(&mut self) -> bool {
        match self {
            Stream::Plain(stream, low_water) => low_water.wait_for_any(stream),
            Stream::Tls(_) => false,
        }
    }

    /// Returns whether nothing has arrived on an idle connection: no byte, and not its end.
    pub fn is_silent(&mut self) -> bool {
        let (mut byte, mut cx) = ([0; 1], Context::from_waker(Waker::noop()));
        Pin::new(self).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// Reads the bytes that have arrived into slices, in order, and at most `left` bytes. Waits for at least one byte;
    /// returns 0 when the server closed the connection. Cancelling the future loses no bytes.
    ///
    /// With `waits_for_many`, it may wait for many bytes, or for all that are left.
    pub async fn read_into(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        left: u64,
        waits_for_many: bool,
    ) -> io::Result<usize> {
        match self {
            Stream::Plain(stream, low_water) => {
                match waits_for_many {
                    true => low_water.wait_for_many(stream, left),
                    false => _ = low_water.wait_for_any(stream),
                }
                loop {
                    stream.readable().await?;
                    match try_read(stream, slices, left) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        done => return done,
                    }
                }
            }
            // TLS decrypts into one slice at a time.
            Stream::Tls(stream) => {
                let Some(slice) = first(slices, left) else { return Ok(0) };
                let mut into = ReadBuf::new(slice);
                poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut into)).await?;
                Ok(into.filled().len())
            }
        }
    }
}

/// Reads the bytes that have arrived, but none beyond the end of the body.
fn try_read(stream: &TcpStream, slices: &mut [IoSliceMut<'_>], left: u64) -> io::Result<usize> {
    let room: usize = slices.iter().map(|slice| slice.len()).sum();
    if room as u64 <= left {
        return stream.try_read_vectored(slices);
    }
    first(slices, left).map_or(Ok(0), |slice| stream.try_read(slice))
}

/// The first slice that is not empty, cut to `left` bytes.
fn first<'a>(slices: &'a mut [IoSliceMut<'_>], left: u64) -> Option<&'a mut [u8]> {
    let first = slices.iter_mut().find(|slice| !slice.is_empty())?;
    let length = first.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    Some(&mut first[..length])
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream, _) => Pin::new(stream).poll_read(cx, out),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, out),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Stream::Plain(stream, _) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream, _) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Stream::Plain(stream, _) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
