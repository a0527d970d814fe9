//! An open stream of training batches, for Python.

use std::collections::VecDeque;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stoker_stream::{ReceiptBuilder, ReceiptPart, StreamStats};
use stoker_types::ErrorKind;

use crate::batch::Batch;
use crate::exceptions::{Raise, error};
use crate::exit::detached;
use crate::fork::PerProcess;
use crate::runtime::{runtime, wait};
use crate::stream_handle::ReadRequest;

/// Batches of one rank and one epoch, fetched ahead by native threads.
///
/// The stream is closed by its end, by an error, by Ctrl-C, by `close` and when it is dropped.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct SampleStream {
    stream: Mutex<PerProcess<stoker_flight::SampleStream>>,
    stats: Mutex<StreamStats>,
    handed: Mutex<Handed>,
}

/// What the loop got: a batch may wait for a device, or be dropped by Ctrl-C, between the engine and the loop.
struct Handed {
    receipt: ReceiptBuilder,
    /// What batches that the engine delivered add once the loop has them, with their steps.
    pending: VecDeque<(u64, ReceiptPart)>,
    is_ended: bool,
}

impl Handed {
    /// Notes that the loop got all steps before this one.
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
    /// Wraps a stream that was opened, with an empty receipt.
    pub(crate) fn new(stream: stoker_flight::SampleStream, receipt: ReceiptBuilder) -> Self {
        let stats = Mutex::new(stream.stats());
        let handed = Mutex::new(Handed { receipt, pending: VecDeque::new(), is_ended: false });
        Self { stream: Mutex::new(PerProcess::new(stream)), stats, handed }
    }
}

#[pymethods]
impl SampleStream {
    /// The next batch, or `None` at the end of the epoch, when the loop got all steps before `handed`. Calls `on_read` when the last
    /// rows of the epoch come to be read meanwhile.
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

    /// Whether the last rows are being read, or were received.
    fn is_read(&self) -> bool {
        self.stream.lock().get().is_none_or(|stream| stream.is_read())
    }

    /// Begins a stream that was opened ahead: it has its whole memory budget from now on.
    fn begin(&self, py: Python<'_>, read: ReadRequest) -> PyResult<()> {
        let options = read.to_options(py)?;
        if let Some(stream) = self.stream.lock().get_mut() {
            stream.begin(options.memory_budget_bytes);
        }
        Ok(())
    }

    /// The counters: rows, batches and requests as numbers, `bytes` and `bytes_read` in bytes, times in nanoseconds. Those that
    /// begin with `stall_` and `last_step_` say where the time of all steps, and of the last one, went.
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

    /// What the loop got, which are the steps before `handed`, as the JSON of a receipt.
    fn receipt(&self, handed: u64) -> String {
        let mut noted = self.handed.lock();
        noted.up_to(handed);
        noted.receipt.receipt().to_json()
    }

    /// Cancels what is under way and frees the buffers. Closing twice is fine.
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
