//! The bytes of a range, as they arrive from a store.

use std::io::IoSliceMut;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use futures::stream::BoxStream;
use stoker_net::http1::{SocketBody, fill};
use stoker_types::ErrorKind;

use crate::Error;

/// The body of a response with a range of bytes; the reader chooses the memory into which it is read. Its errors are
/// those of the crate that uses it.
pub struct RangeBody<E> {
    inner: Inner<E>,
}

enum Inner<E> {
    /// Chunks of bytes, each in its own memory, and the unread rest of the last chunk.
    Chunks(BoxStream<'static, Result<Bytes, E>>, Bytes),
    /// Bytes that are still in the connection's socket. `attempted` is for error messages.
    Socket { body: SocketBody, attempted: String },
}

impl<E: From<Error>> RangeBody<E> {
    /// Makes a body from a stream of chunks.
    pub fn from_chunks(chunks: BoxStream<'static, Result<Bytes, E>>) -> Self {
        Self { inner: Inner::Chunks(chunks, Bytes::new()) }
    }

    /// Makes a body whose bytes are read from a socket; `attempted` is for error messages.
    pub fn from_socket(body: SocketBody, attempted: String) -> Self {
        Self { inner: Inner::Socket { body, attempted } }
    }

    /// Returns whether the store refused an earlier attempt of this request because of too many requests. Always false
    /// for a body of chunks, for which this is not known.
    pub fn was_refused(&self) -> bool {
        matches!(&self.inner, Inner::Socket { body, .. } if body.was_refused())
    }

    /// Makes later reads return as soon as any byte has arrived, where they waited for many at once before. Returns
    /// whether that changes anything.
    pub fn wait_for_any(&mut self) -> bool {
        match &mut self.inner {
            Inner::Chunks(..) => false,
            Inner::Socket { body, .. } => body.wait_for_any(),
        }
    }

    /// Reads the next bytes into the slices, in order, and returns their number: 0 at the end of the body. Cancelling
    /// the future loses no bytes.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> Result<usize, E> {
        match &mut self.inner {
            Inner::Chunks(chunks, chunk) => {
                while !chunk.has_remaining() {
                    let Some(next) = chunks.next().await else { return Ok(0) };
                    *chunk = next?;
                }
                let count = fill(slices, chunk);
                chunk.advance(count);
                Ok(count)
            }
            Inner::Socket { body, attempted } => {
                let read = body.read(slices).await;
                read.map_err(|source| {
                    let attempted = attempted.clone();
                    // Any error of the connection is transient: a new connection may work.
                    E::from(Error::Storage { attempted, kind: ErrorKind::Unavailable, source: source.into() })
                })
            }
        }
    }
}
