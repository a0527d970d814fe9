//! Writes a data file, followed by the checksums of its sectors.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lance_io::object_writer::WriteResult;
use lance_io::traits::Writer;
use stoker_store::sectors::TrailerBuilder;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Passes on a data file and appends the trailer with the checksums when the file is closed.
pub(super) struct CheckedWriter {
    output: Box<dyn Writer>,
    trailer: TrailerBuilder,
}

impl CheckedWriter {
    /// Makes a writer of the file `name`, which will have at most `num_columns_max` columns in Lance's sense, one for
    /// each nested field, and at most `num_buffers_max` global buffers.
    pub fn new(name: &str, output: Box<dyn Writer>, num_columns_max: usize, num_buffers_max: usize) -> Self {
        Self { output, trailer: TrailerBuilder::new(name, num_columns_max, num_buffers_max) }
    }
}

impl AsyncWrite for CheckedWriter {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(self.output.as_mut()).poll_write(context, bytes))?;
        self.trailer.add(&bytes[..written]);
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
        let trailer = match self.trailer.finish() {
            Ok(trailer) => trailer,
            Err(what) => return Err(lance_core::Error::internal(what)),
        };
        self.output.write_all(&trailer).await?;
        Writer::shutdown(self.output.as_mut()).await
    }
}
