//! An open stream of training batches, for Python.

use std::collections::VecDeque;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stoker_stream::ReceiptBuilder;
use stoker_types::{ErrorKind, ReceiptPart, StreamStats};

use crate::batch::Batch;
use crate::exceptions::{Raise, error};
use crate::exit::detached;
use crate::fork::PerProcess;
use crate::runtime::{runtime, wait};
use crate::stream_handle::ReadRequest;

/// The batches of one rank and one epoch, prefetched by native threads.
///
/// The stream is closed at its end, by an error, by Ctrl-C, by `close` and when it is dropped.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct SampleStream {
    stream: Mutex<PerProcess<stoker_flight::SampleStream>>,
    stats: Mutex<StreamStats>,
    handed: Mutex<Handed>,
}

/// The steps that the training loop received. A batch that the engine delivered may still wait for its copy to a
/// device, or be dropped by Ctrl-C, before the loop receives it.
struct Handed {
    receipt: ReceiptBuilder,
    /// The steps that the engine delivered and the loop has not received yet, with what each of them adds to the
    /// receipt.
    pending: VecDeque<(u64, ReceiptPart)>,
    is_ended: bool,
}

impl Handed {
    /// Records that the loop received all steps before this one.
    fn up_to(&mut self, step: u64) {
        while let Some((_, part)) = self.pending.pop_front_if(|(first, _)| *first < step) {
            self.receipt.push(part);
        }
        if self.is_ended && self.pending.is_empty() {
            self.receipt.end();
        }
    }
}

impl SampleStream {
    /// Wraps an open stream, with an empty receipt.
    pub(crate) fn new(stream: stoker_flight::SampleStream, receipt: ReceiptBuilder) -> Self {
        let stats = Mutex::new(stream.stats());
        let handed = Mutex::new(Handed { receipt, pending: VecDeque::new(), is_ended: false });
        Self { stream: Mutex::new(PerProcess::new(stream)), stats, handed }
    }
}

#[pymethods]
impl SampleStream {
    /// Returns the next batch, or `None` at the end of the epoch. The caller says by `handed` that the loop received
    /// all steps before that one. If the last rows of the epoch begin to be read while this call waits, it calls
    /// `on_read`.
    #[pyo3(signature = (handed=0, on_read=None))]
    fn next(&self, py: Python<'_>, handed: u64, on_read: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Batch>> {
        let taken = self.stream.lock().take();
        let Some(mut stream) = taken else {
            let message = "the stream is closed, in use by another thread, or was opened before a fork";
            return Err(error(py, ErrorKind::InvalidRequest, &message));
        };
        let until_read = stream.until_read();
        let either = async {
            tokio::select! {
                biased;
                outcome = stream.take() => Some(outcome),
                () = until_read => None,
            }
        };
        let outcome = match wait(py, either)? {
            Some(outcome) => outcome,
            None => {
                on_read.map(|on_read| on_read.call0()).transpose()?;
                wait(py, stream.take())?
            }
        };
        *self.stats.lock() = stream.stats();
        let taken = outcome.raise(py)?;
        let mut noted = self.handed.lock();
        noted.up_to(handed);
        let Some((batch, part)) = taken else {
            noted.is_ended = true;
            return Ok(None);
        };
        noted.pending.push_back((batch.step, part));
        let share = noted.receipt.share(batch.step);
        *self.stream.lock() = PerProcess::new(stream);
        Batch::try_new(py, batch, share).map(Some)
    }

    /// Whether the last rows are being read, or have been received.
    fn is_read(&self) -> bool {
        self.stream.lock().get().is_none_or(|stream| stream.is_read())
    }

    /// Begins a stream that was opened as a prefetch: from now on it has its whole memory budget.
    fn begin(&self, py: Python<'_>, read: ReadRequest) -> PyResult<()> {
        let options = read.to_options(py)?;
        if let Some(stream) = self.stream.lock().get_mut() {
            stream.begin(options.memory_budget_bytes);
        }
        Ok(())
    }

    /// Returns the counters: rows, batches and requests as numbers, `bytes` and `bytes_read` in bytes, times in
    /// nanoseconds. The counters that begin with `stall_` break down the time of all steps, those that begin with
    /// `last_step_` the time of the last step.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if let Some(stream) = self.stream.lock().get() {
            *self.stats.lock() = stream.stats();
        }
        let stats = *self.stats.lock();
        let counters = PyDict::new(py);
        counters.set_item("hedges", stats.hedges)?;
        counters.set_item("request_limit", stats.request_limit)?;
        counters.set_item("verified_bytes", stats.verified_bytes)?;
        counters.set_item("rows", stats.rows)?;
        counters.set_item("batches", stats.batches)?;
        counters.set_item("bytes", stats.bytes)?;
        counters.set_item("bytes_read", stats.bytes_read)?;
        counters.set_item("requests", stats.requests)?;
        counters.set_item("cache_hit_bytes", stats.cache_hit_bytes)?;
        counters.set_item("cache_miss_bytes", stats.cache_miss_bytes)?;
        counters.set_item("cache_damaged", stats.cache_damaged)?;
        counters.set_item("retries", stats.retries)?;
        counters.set_item("wait_nanos", stats.wait_nanos)?;
        counters.set_item("first_batch_nanos", stats.first_batch_nanos)?;
        for (prefix, stalls) in [("stall", stats.stalls), ("last_step", stats.last_step)] {
            for (name, time) in stalls.named() {
                counters.set_item(format!("{prefix}_{name}_nanos"), time.as_nanos() as u64)?;
            }
        }
        Ok(counters)
    }

    /// Returns the JSON of a receipt for the steps before `handed`, which are those that the loop received.
    fn receipt(&self, handed: u64) -> String {
        let mut noted = self.handed.lock();
        noted.up_to(handed);
        noted.receipt.receipt().to_json()
    }

    /// Cancels running reads and frees the buffers. Closing a stream twice has no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let taken = self.stream.lock().take();
        if let Some(stream) = taken {
            *self.stats.lock() = stream.stats();
            let runtime = runtime(py)?;
            detached(py, || {
                let _context = runtime.enter();
                drop(stream);
            });
        }
        Ok(())
    }
}
