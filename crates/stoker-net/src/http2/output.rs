//! The output buffer: the request, and answers to control frames.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::frame::{
    ACK, END_HEADERS, END_STREAM, Kind, PAYLOAD_BYTES_DEFAULT, PREFACE, STREAM, WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MAX,
    put_frame, setting,
};
use super::hpack::HEADER_BYTES_MAX;
use super::window::SendWindow;
use super::{FRAME_BYTES, Io, Request, WINDOW_BYTES, request, violation};
use crate::Result;

/// While more than this many bytes wait, no more of the request is framed.
const WAITING_BYTES: usize = 64 << 10;
/// The most bytes that wait. A server that requests more answers than it reads is cut off.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Frames that wait for the socket, and the part of the request's body that the server's windows do not allow yet.
pub(super) struct Output {
    waiting: BytesMut,
    body: Bytes,
    body_ended: bool,
    connection_window: SendWindow,
    stream_window: SendWindow,
    /// The server's initial window of a stream.
    initial_window: u32,
    payload_bytes_max: usize,
    /// Whether the socket may buffer bytes that it accepted.
    unflushed: bool,
    /// Whether writing failed. A read then tells why, and whether the answer came before that.
    failed: bool,
}

impl Output {
    /// Queues the preface, the settings and the headers of the request.
    pub fn new(request: &Request<'_>) -> Self {
        let mut waiting = BytesMut::with_capacity(1 << 10);
        waiting.put_slice(PREFACE);
        put_frame(&mut waiting, Kind::Settings, 0, 0, &settings());
        // Only a WINDOW_UPDATE frame can change the window of the connection.
        put_frame(&mut waiting, Kind::WindowUpdate, 0, 0, &(WINDOW_BYTES - WINDOW_BYTES_DEFAULT).to_be_bytes());
        let block = request::header_block(request);
        let mut parts = block.chunks(PAYLOAD_BYTES_DEFAULT).peekable();
        let mut kind = Kind::Headers;
        while let Some(part) = parts.next() {
            let flags = if parts.peek().is_none() { END_HEADERS } else { 0 };
            put_frame(&mut waiting, kind, flags, STREAM, part);
            kind = Kind::Continuation;
        }
        Self {
            waiting,
            body: request.body.clone(),
            body_ended: false,
            connection_window: SendWindow::new(WINDOW_BYTES_DEFAULT),
            stream_window: SendWindow::new(WINDOW_BYTES_DEFAULT),
            initial_window: WINDOW_BYTES_DEFAULT,
            payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
            unflushed: false,
            failed: false,
        }
    }

    /// Queues a frame.
    ///
    /// # Errors
    /// The server requests more answers than it reads.
    pub fn put(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
        if self.failed {
            return Ok(());
        }
        if self.waiting.len() > WAITING_BYTES_MAX {
            return Err(violation("it sends more pings and settings than it reads answers to them"));
        }
        put_frame(&mut self.waiting, kind, flags, stream, payload);
        Ok(())
    }

    /// Applies the server's settings, and queues their acknowledgement.
    ///
    /// # Errors
    /// Settings with values that are not allowed.
    pub fn follow(&mut self, settings: &[u8]) -> Result<()> {
        for entry in settings.chunks_exact(6) {
            let (mut name, mut value) = entry.split_at(2);
            match (name.get_u16(), value.get_u32()) {
                (setting::ENABLE_PUSH, 1..) => return Err(violation("it enables server push")),
                (setting::INITIAL_WINDOW_SIZE, window) => {
                    if window > WINDOW_BYTES_MAX {
                        return Err(violation("it enlarges a flow-control window beyond 2^31 - 1 bytes"));
                    }
                    self.stream_window.change(i64::from(window) - i64::from(self.initial_window))?;
                    self.initial_window = window;
                }
                (setting::MAX_FRAME_SIZE, bytes) => {
                    let bytes =
                        usize::try_from(bytes).ok().filter(|bytes| (PAYLOAD_BYTES_DEFAULT..1 << 24).contains(bytes));
                    self.payload_bytes_max = bytes.ok_or_else(|| violation("its frame size is outside the limits"))?;
                }
                // The other settings are about compression, which this client does not use, and limits that one request
                // cannot reach.
                _ => {}
            }
        }
        self.put(Kind::Settings, ACK, 0, &[])
    }

    /// Enlarges the window of the connection or of the stream by `increment` bytes.
    pub fn open(&mut self, stream: u32, increment: u32) -> Result<()> {
        match (stream, increment) {
            (_, 0) => Err(violation("it enlarges a flow-control window by 0 bytes")),
            (0, _) => self.connection_window.change(increment.into()),
            (STREAM, _) => self.stream_window.change(increment.into()),
            _ => Err(violation("it enlarges the flow-control window of a stream that does not exist")),
        }
    }

    /// Writes what the socket accepts, without waiting. The socket wakes the task when it accepts more.
    pub fn poll_send(&mut self, io: &mut dyn Io, cx: &mut Context<'_>) {
        let mut io = Pin::new(io);
        loop {
            self.frame_body();
            if self.waiting.is_empty() || self.failed {
                break;
            }
            match io.as_mut().poll_write(cx, &self.waiting) {
                Poll::Pending => break,
                Poll::Ready(Ok(bytes @ 1..)) => {
                    self.waiting.advance(bytes);
                    self.unflushed = true;
                }
                Poll::Ready(_) => self.fail(),
            }
        }
        if self.unflushed {
            match io.poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(_)) => self.fail(),
            }
        }
    }

    fn fail(&mut self) {
        self.failed = true;
        self.unflushed = false;
        self.waiting.clear();
    }

    /// Frames as much of the request's body as the windows allow.
    fn frame_body(&mut self) {
        while !self.body_ended && self.waiting.len() < WAITING_BYTES {
            let window = self.connection_window.left().min(self.stream_window.left());
            let bytes = self.body.len().min(window).min(self.payload_bytes_max).min(WAITING_BYTES);
            if bytes == 0 && !self.body.is_empty() {
                return;
            }
            let part = self.body.split_to(bytes);
            self.body_ended = self.body.is_empty();
            self.connection_window.send(bytes);
            self.stream_window.send(bytes);
            let flags = if self.body_ended { END_STREAM } else { 0 };
            put_frame(&mut self.waiting, Kind::Data, flags, STREAM, &part);
        }
    }
}

/// Encodes the client's settings.
#[expect(clippy::cast_possible_truncation, reason = "the limit on headers is 64 KiB")]
fn settings() -> BytesMut {
    let mut settings = BytesMut::new();
    for (name, value) in [
        (setting::HEADER_TABLE_SIZE, 0),
        (setting::ENABLE_PUSH, 0),
        (setting::INITIAL_WINDOW_SIZE, WINDOW_BYTES),
        (setting::MAX_FRAME_SIZE, FRAME_BYTES),
        (setting::MAX_HEADER_LIST_SIZE, HEADER_BYTES_MAX as u32),
    ] {
        settings.put_u16(name);
        settings.put_u32(value);
    }
    settings
}
