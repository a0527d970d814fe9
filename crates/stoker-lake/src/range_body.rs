//! The bytes of a range, as they arrive.

use std::io::IoSliceMut;

use bytes::{Buf, Bytes};
use futures::StreamExt;
use futures::stream::BoxStream;
use stoker_types::ErrorKind;

use crate::direct::{SocketBody, fill};
use crate::{Error, Result};

/// The bytes of a range, to be put where the reader wants them.
pub struct RangeBody {
    inner: Inner,
}

enum Inner {
    /// Chunks in memory of their own, and what is left of the last one.
    Chunks(BoxStream<'static, Result<Bytes>>, Bytes),
    /// Bytes that are in their socket yet.
    Socket { body: SocketBody, attempted: String },
}

impl RangeBody {
    /// Bytes from a stream of chunks.
    pub fn from_chunks(chunks: BoxStream<'static, Result<Bytes>>) -> Self {
        Self { inner: Inner::Chunks(chunks, Bytes::new()) }
    }

    /// Bytes from a socket; `attempted` is for messages.
    pub(crate) fn from_socket(body: SocketBody, attempted: String) -> Self {
        Self { inner: Inner::Socket { body, attempted } }
    }

    /// Whether the store had asked for fewer requests before it answered, as far as is known.
    pub fn was_refused(&self) -> bool {
        matches!(&self.inner, Inner::Socket { body, .. } if body.was_refused())
    }

    /// Puts the next bytes into slices, in order; returns how many: 0 at the end of the body. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> Result<usize> {
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
            Inner::Socket { body, attempted } => body.read(slices).await.map_err(|source| Error::Storage {
                attempted: attempted.clone(),
                // Whatever breaks a connection, another one may work.
                kind: ErrorKind::Unavailable,
                source: source.into(),
            }),
        }
    }
}
