//! A socket that sends what waits in the output buffer whenever it is read.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout};

use super::frame::Kind;
use super::input::{INPUT_BYTES, Input};
use super::output::Output;
use crate::{Error, Result};

/// Reads of at least this many bytes of data go straight to the caller's memory.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// The transport of a connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// How long the client waits for a silent server.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// After this time without a byte, the client sends a ping. After the same time without an answer, the connection
    /// counts as broken.
    pub ping: Duration,
    /// After this time without a byte of the answer the connection counts as broken, even if the server answers pings.
    pub silence_max: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { ping: Duration::from_secs(20), silence_max: None }
    }
}

/// A socket with its input buffer and its output buffer.
pub(super) struct Link {
    io: Box<dyn Io>,
    input: Input,
    pub output: Output,
    patience: Patience,
    /// The reason why the server will close the connection.
    going_away: Option<String>,
    /// Since when the caller waits for a byte of the answer.
    silent_since: Option<Instant>,
}

/// The destination of a read.
enum Target<'a> {
    /// The input buffer, with the largest number of bytes to read.
    Input(usize),
    Memory(&'a mut [u8]),
}

impl Link {
    pub fn new(io: Box<dyn Io>, output: Output, patience: Patience) -> Self {
        Self { io, input: Input::new(), output, patience, going_away: None, silent_since: None }
    }

    /// Sets the longest time without a byte of the answer, counted from now.
    pub fn set_silence_max(&mut self, silence_max: Duration) {
        self.patience.silence_max = Some(silence_max);
        self.silent_since = None;
    }

    /// Records why the server will close the connection.
    pub fn set_going_away(&mut self, reason: String) {
        self.going_away = Some(reason);
    }

    /// Waits until at least `bytes` bytes are in the input buffer, and returns them without consuming them. `bytes`
    /// must not exceed the size of the input buffer. `fill_bytes` is the number of bytes to read at once, so that later
    /// bytes need no read of their own. Cancelling the future loses nothing.
    pub async fn peek(&mut self, bytes: usize, fill_bytes: usize) -> Result<&[u8]> {
        while self.input.buffered().len() < bytes {
            let missing = bytes - self.input.buffered().len();
            self.receive(Target::Input(missing.max(fill_bytes))).await?;
        }
        Ok(&self.input.buffered()[..bytes])
    }

    /// Drops bytes that [`Link::peek`] returned.
    pub fn consume(&mut self, bytes: usize) {
        self.input.consume(bytes);
    }

    /// Reads bytes of the answer: at least one, unless `out` is empty. Cancelling the future loses nothing.
    pub async fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut taken = self.input.take(out);
        if taken == 0 && !out.is_empty() {
            taken = match out.len() >= DIRECT_BYTES_MIN {
                true => self.receive(Target::Memory(out)).await?,
                false => {
                    self.receive(Target::Input(INPUT_BYTES)).await?;
                    self.input.take(out)
                }
            };
        }
        self.silent_since = None;
        Ok(taken)
    }

    /// Drops up to `bytes` bytes, at least one, and returns their number.
    pub async fn skip(&mut self, bytes: usize) -> Result<usize> {
        self.peek(1, INPUT_BYTES).await?;
        let skipped = bytes.min(self.input.buffered().len());
        self.input.consume(skipped);
        Ok(skipped)
    }

    /// Reads once and gets at least one byte. Pings a silent server.
    async fn receive(&mut self, mut target: Target<'_>) -> Result<usize> {
        let silent_since = *self.silent_since.get_or_insert_with(Instant::now);
        let mut pinged = false;
        loop {
            let silence_left = self.patience.silence_max.map(|max| max.saturating_sub(silent_since.elapsed()));
            let wait = self.patience.ping.min(silence_left.unwrap_or(Duration::MAX));
            match timeout(wait, poll_fn(|cx| self.poll_receive(&mut target, cx))).await {
                Ok(Ok(bytes @ 1..)) => return Ok(bytes),
                Ok(end) => return Err(self.broken(end)),
                Err(_) if pinged || silence_left.is_some_and(|left| left <= wait) => {
                    let silent_secs = silent_since.elapsed().as_secs_f64();
                    return Err(Error::broken(format!("the server sent no data for {silent_secs:.1} s")));
                }
                Err(_) => {
                    self.output.put(Kind::Ping, 0, 0, b"alive?  ")?;
                    pinged = true;
                }
            }
        }
    }

    fn broken(&self, end: io::Result<usize>) -> Error {
        let reason = end.map_or_else(|error| error.to_string(), |_| "the server closed it".into());
        Error::broken(self.going_away.clone().unwrap_or(reason))
    }

    fn poll_receive(&mut self, target: &mut Target<'_>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.output.poll_send(self.io.as_mut(), cx);
        let memory = match target {
            Target::Input(bytes) => self.input.space(*bytes),
            Target::Memory(memory) => memory,
        };
        let mut memory = ReadBuf::new(memory);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut memory))?;
        let bytes = memory.filled().len();
        if let Target::Input(_) = target {
            self.input.filled(bytes);
        }
        Poll::Ready(Ok(bytes))
    }
}
