//! Response bodies that are still in their socket.

use std::io::{self, IoSliceMut};

use bytes::{Buf, Bytes};
use http::uri::Authority;

use super::connections::Connections;
use super::stream::Stream;

/// The body of a response whose head was read. Dropping it before its end closes the connection.
#[derive(Debug)]
pub struct SocketBody {
    /// `None` once the body has ended.
    stream: Option<Stream>,
    /// The beginning of the body, which arrived together with the head.
    before: Bytes,
    /// The number of bytes still to be read, those in `before` included.
    left: u64,
    /// The pool to which the connection returns after the body. `None` when the connection cannot be used again.
    home: Option<(Connections, Authority)>,
    was_refused: bool,
    /// Whether a read may wait for many bytes.
    waits_for_many: bool,
}

impl SocketBody {
    /// A body of `length` bytes, whose beginning `before` arrived together with the head.
    pub(super) fn new(stream: Stream, before: Bytes, length: u64, home: Option<(Connections, Authority)>) -> Self {
        let mut body =
            Self { stream: Some(stream), before, left: length, home, was_refused: false, waits_for_many: true };
        body.before.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        body.end_if_empty();
        body
    }

    /// Marks the body as that of a retry, after the store had refused an earlier attempt.
    #[must_use]
    pub fn after_refusal(self) -> Self {
        Self { was_refused: true, ..self }
    }

    /// Whether the store had refused an earlier attempt of the same request because of too many requests.
    pub fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// Makes later reads return as soon as any byte has arrived, where they waited for many at once before, so that a
    /// slow body is told from one that stalls. Returns whether that changes anything.
    pub fn wait_for_any(&mut self) -> bool {
        self.waits_for_many = false;
        self.stream.as_mut().is_some_and(Stream::wait_for_any)
    }

    /// Reads the next bytes into slices, in order. Returns their number, 0 at the end of the body. It may wait for many
    /// bytes at once, which takes less time, up to [`SocketBody::wait_for_any`].
    ///
    /// Cancelling the future loses no bytes.
    ///
    /// # Errors
    /// Those of the socket; `UnexpectedEof` when the server closes the connection early.
    pub async fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.before.has_remaining() {
            let count = fill(slices, &self.before);
            self.before.advance(count);
            self.took(count);
            return Ok(count);
        }
        let Some(stream) = &mut self.stream else { return Ok(0) };
        match stream.read_into(slices, self.left, self.waits_for_many).await? {
            0 if slices.iter().all(|slice| slice.is_empty()) => Ok(0),
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.took(count);
                Ok(count)
            }
        }
    }

    fn took(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count as u64);
        self.end_if_empty();
    }

    /// Returns the connection to its pool once all bytes were read.
    fn end_if_empty(&mut self) {
        if self.left > 0 {
            return;
        }
        if let (Some(mut stream), Some((connections, authority))) = (self.stream.take(), self.home.take()) {
            stream.wait_for_any();
            connections.keep(&authority, stream);
        }
    }
}

/// Copies bytes into slices, as many as fit. Returns their number.
pub fn fill(slices: &mut [IoSliceMut<'_>], mut bytes: &[u8]) -> usize {
    let before = bytes.len();
    for slice in slices {
        let count = slice.len().min(bytes.len());
        let (head, rest) = bytes.split_at(count);
        slice[..count].copy_from_slice(head);
        bytes = rest;
    }
    before - bytes.len()
}
