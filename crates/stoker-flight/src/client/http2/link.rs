//! Reading from a socket, and sending what waits whenever there is nothing to read.

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

/// Reads of data of at least so many bytes go straight to their destination.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// What a connection runs over.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// How long a silent server is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// A server that sent nothing for so long is asked whether it lives, and then has the same time to say so.
    pub ping: Duration,
    /// A server that sent no byte of the answer for so long is gone, even if it answers pings.
    pub silence_max: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { ping: Duration::from_secs(20), silence_max: None }
    }
}

/// A socket with what was read too early and what waits to be sent.
pub(super) struct Link {
    io: Box<dyn Io>,
    input: Input,
    pub output: Output,
    patience: Patience,
    /// Why the server will close the connection.
    going_away: Option<String>,
    /// Since when no byte of the answer came, while it was waited for.
    silent_since: Option<Instant>,
}

/// Where to read to.
enum Target<'a> {
    /// The input buffer, so many bytes at most.
    Input(usize),
    Memory(&'a mut [u8]),
}

impl Link {
    pub fn new(io: Box<dyn Io>, output: Output, patience: Patience) -> Self {
        Self { io, input: Input::new(), output, patience, going_away: None, silent_since: None }
    }

    /// Sets how long silence is borne from now on.
    pub fn set_silence_max(&mut self, silence_max: Duration) {
        self.patience.silence_max = Some(silence_max);
        self.silent_since = None;
    }

    /// Takes note of why the server will close the connection.
    pub fn set_going_away(&mut self, reason: String) {
        self.going_away = Some(reason);
    }

    /// Waits until `bytes` bytes are there, and leaves them there. `bytes` must not be more than the input buffer takes.
    /// `fill_bytes` says how many bytes to read at once, for what comes after them. Cancelling the future loses nothing.
    pub async fn peek(&mut self, bytes: usize, fill_bytes: usize) -> Result<&[u8]> {
        while self.input.buffered().len() < bytes {
            let missing = bytes - self.input.buffered().len();
            self.receive(Target::Input(missing.max(fill_bytes))).await?;
        }
        Ok(&self.input.buffered()[..bytes])
    }

    /// Drops bytes that were peeked at.
    pub fn consume(&mut self, bytes: usize) {
        self.input.consume(bytes);
    }

    /// Reads bytes of the answer: one at least, unless there is no room. Cancelling the future loses nothing.
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

    /// Drops up to `bytes` bytes, and returns how many they were: one at least.
    pub async fn skip(&mut self, bytes: usize) -> Result<usize> {
        self.peek(1, INPUT_BYTES).await?;
        let skipped = bytes.min(self.input.buffered().len());
        self.input.consume(skipped);
        Ok(skipped)
    }

    /// One read of one byte at least. Asks a silent server whether it lives.
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
                    return Err(Error::broken("the server gives no sign of life"));
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
