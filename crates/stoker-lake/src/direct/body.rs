//! Bodies that are still in their socket.

use std::io::{self, IoSliceMut};

use bytes::{Buf, Bytes};
use http::uri::Authority;
use tokio::net::TcpStream;

use crate::direct::connections::Connections;

/// The body of an answer, whose head was read. Dropping it before its end closes the connection.
#[derive(Debug)]
pub(crate) struct SocketBody {
    /// `None` once the body has ended.
    stream: Option<TcpStream>,
    /// What came with the head.
    before: Bytes,
    /// Bytes that are still to come, with those in `before`.
    left: u64,
    /// Where the connection goes after the body, unless the server closes it.
    home: Option<(Connections, Authority)>,
    was_refused: bool,
}

impl SocketBody {
    /// The body of `length` bytes that follows what came with the head.
    pub(super) fn new(stream: TcpStream, before: Bytes, length: u64, home: Option<(Connections, Authority)>) -> Self {
        let mut body = Self { stream: Some(stream), before, left: length, home, was_refused: false };
        body.before.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        body.end_if_empty();
        body
    }

    /// Notes that the store refused the request before.
    pub(super) fn after_refusal(self) -> Self {
        Self { was_refused: true, ..self }
    }

    /// Whether the store refused the request before, as one too many.
    pub fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// Puts the next bytes into slices, in order; returns how many, 0 at the end of the body.
    ///
    /// Cancelling the future loses nothing.
    ///
    /// # Errors
    /// What the socket says; `UnexpectedEof` when the server closes it early.
    pub async fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.before.has_remaining() {
            let count = fill(slices, &self.before);
            self.before.advance(count);
            self.took(count);
            return Ok(count);
        }
        let Some(stream) = &self.stream else { return Ok(0) };
        loop {
            stream.readable().await?;
            match try_read(stream, slices, self.left) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.took(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn took(&mut self, count: usize) {
        self.left = self.left.saturating_sub(count as u64);
        self.end_if_empty();
    }

    /// Keeps the connection once all bytes were taken.
    fn end_if_empty(&mut self) {
        if self.left > 0 {
            return;
        }
        if let (Some(stream), Some((connections, authority))) = (self.stream.take(), self.home.take()) {
            connections.keep(&authority, stream);
        }
    }
}

/// Reads what is there, but nothing beyond the body.
fn try_read(stream: &TcpStream, slices: &mut [IoSliceMut<'_>], left: u64) -> io::Result<usize> {
    let room: usize = slices.iter().map(|slice| slice.len()).sum();
    if room as u64 <= left {
        return stream.try_read_vectored(slices);
    }
    let Some(first) = slices.iter_mut().find(|slice| !slice.is_empty()) else { return Ok(0) };
    let length = first.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    stream.try_read(&mut first[..length])
}

/// Copies bytes into slices, as many as there is room for.
pub(crate) fn fill(slices: &mut [IoSliceMut<'_>], mut bytes: &[u8]) -> usize {
    let before = bytes.len();
    for slice in slices {
        let count = slice.len().min(bytes.len());
        let (head, rest) = bytes.split_at(count);
        slice[..count].copy_from_slice(head);
        bytes = rest;
    }
    before - bytes.len()
}
