//! Batches, from wherever they come.

use stoker_stream::{Batch, BatchStream, StreamStats};

use crate::Result;
use crate::client::remote_stream::RemoteStream;

/// A rank's batches in order, from the engine in this process or from servers. Dropping it stops everything.
pub struct SampleStream(pub(crate) Inner);

pub(crate) enum Inner {
    Local(BatchStream),
    Remote(RemoteStream),
}

impl SampleStream {
    /// The next batch; `None` after the last one. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// What stood in the way of the next batch; the stream ends with it.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        match &mut self.0 {
            Inner::Local(stream) => Ok(stream.next().await?),
            Inner::Remote(stream) => stream.next().await,
        }
    }

    /// What the stream did so far. Counts of requests and bytes read are known in process only.
    pub fn stats(&self) -> StreamStats {
        match &self.0 {
            Inner::Local(stream) => stream.stats(),
            Inner::Remote(stream) => stream.stats(),
        }
    }
}
