//! Writes a data file, followed by the checksums of its sectors.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lance_io::object_writer::WriteResult;
use lance_io::traits::Writer;
use stoker_checksum::checksum;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::SECTOR_BYTES;
use super::trailer::{ENTRY_BYTES, FOOTER_BYTES, trailer};

/// Passes on a data file and appends the trailer with the checksums when the file is closed.
pub(crate) struct CheckedWriter {
    name: String,
    output: Box<dyn Writer>,
    sums: Vec<u32>,
    /// The bytes of the last sector, which is not full yet.
    partial: Vec<u8>,
    /// The last bytes that were written: at least tables and footer.
    end: Vec<u8>,
    end_bytes: usize,
    num_bytes: u64,
}

impl CheckedWriter {
    /// Makes a writer of the file `name`, which will have at most `num_columns_max` columns in Lance's sense, one for
    /// each nested field, and at most `num_buffers_max` global buffers.
    pub fn new(name: &str, output: Box<dyn Writer>, num_columns_max: usize, num_buffers_max: usize) -> Self {
        let end_bytes = FOOTER_BYTES + ENTRY_BYTES * (num_columns_max + num_buffers_max);
        let (sums, partial, end) = (Vec::new(), Vec::with_capacity(SECTOR_BYTES as usize), Vec::new());
        Self { name: name.to_string(), output, sums, partial, end, end_bytes, num_bytes: 0 }
    }

    /// Adds bytes that were written to the checksums.
    fn add(&mut self, bytes: &[u8]) {
        self.num_bytes += bytes.len() as u64;
        let last = &bytes[bytes.len().saturating_sub(self.end_bytes)..];
        self.end.extend_from_slice(last);
        if self.end.len() > 4 * self.end_bytes {
            self.end.drain(..self.end.len() - self.end_bytes);
        }
        let mut rest = bytes;
        if !self.partial.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(SECTOR_BYTES as usize - self.partial.len()));
            self.partial.extend_from_slice(head);
            rest = tail;
            if self.partial.len() < SECTOR_BYTES as usize {
                return;
            }
            self.sums.push(checksum(&self.partial));
            self.partial.clear();
        }
        let (sectors, partial) = rest.as_chunks::<{ SECTOR_BYTES as usize }>();
        self.sums.extend(sectors.iter().map(|sector| checksum(sector)));
        self.partial.extend_from_slice(partial);
    }
}

impl AsyncWrite for CheckedWriter {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(self.output.as_mut()).poll_write(context, bytes))?;
        self.add(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.output.as_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.output.as_mut()).poll_shutdown(context)
    }
}

#[async_trait::async_trait]
impl Writer for CheckedWriter {
    async fn tell(&mut self) -> lance_core::Result<usize> {
        self.output.tell().await
    }

    async fn shutdown(&mut self) -> lance_core::Result<WriteResult> {
        if !self.partial.is_empty() {
            self.sums.push(checksum(&self.partial));
        }
        let Some(trailer) = trailer(&self.name, self.num_bytes, &self.sums, &self.end) else {
            let what = format!("data file {} does not end with Lance's footer: cannot add its checksums", self.name);
            return Err(lance_core::Error::internal(what));
        };
        self.output.write_all(&trailer).await?;
        Writer::shutdown(self.output.as_mut()).await
    }
}
