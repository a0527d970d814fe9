//! A connection with a frame meter.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use stoker_clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame_meter::FrameMeter;
use super::peer::Peer;

/// Ends the connection of a client that floods it with frames, and reads nothing more from it.
pub(super) struct MeteredIo<T> {
    io: T,
    meter: FrameMeter,
    peer: Arc<Peer>,
    clock: Clock,
    is_flooded: bool,
}

impl<T> MeteredIo<T> {
    pub fn new(io: T, peer: Arc<Peer>, clock: Clock) -> Self {
        Self { io, meter: FrameMeter::new(clock.now()), peer, clock, is_flooded: false }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for MeteredIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        if this.is_flooded {
            return Poll::Pending;
        }
        let before = out.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, out))?;
        if !this.meter.received(&out.filled()[before..], this.clock.now()) {
            this.is_flooded = true;
            this.peer.end("it sent too many control frames");
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for MeteredIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write(cx, bytes))?;
        this.meter.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write_vectored(cx, parts))?;
        this.meter.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
