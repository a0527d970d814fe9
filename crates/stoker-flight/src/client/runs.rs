//! Runs: their logs, and the rows of their steps.

use std::ops::Range;

use stoker_stream::{BadRowEntry, RunEntry, StreamPlan, log_bad_rows, log_run, run_entries, step_entry};
use stoker_types::{Digest, RunId, Slice, Topology};

use crate::client::connection::ask;
use crate::client::{Connection, StreamHandle};
use crate::server::{ActionRequest, ROWS_MAX};
use crate::{Error, Result};

impl Connection {
    /// Adds an entry to the log of its run.
    ///
    /// # Errors
    /// Storage errors; a lake that cannot be written.
    pub async fn log_run(&self, entry: &RunEntry) -> Result<()> {
        match self {
            Connection::Local(engine) => Ok(log_run(engine, entry).await?),
            Connection::Remote(lake) => {
                let request = ActionRequest { entry: Some(entry.clone()), ..ActionRequest::default() };
                ask::<serde_json::Value>(lake, "log_run", request).await.map(|_| ())
            }
        }
    }

    /// Adds rows to the table of bad rows.
    ///
    /// # Errors
    /// Storage errors; a lake that cannot be written.
    pub async fn log_bad_rows(&self, rows: &[BadRowEntry]) -> Result<()> {
        match self {
            Connection::Local(engine) => Ok(log_bad_rows(engine, rows).await?),
            Connection::Remote(lake) => {
                let request = ActionRequest { bad_rows: rows.to_vec(), ..ActionRequest::default() };
                ask::<serde_json::Value>(lake, "log_bad_rows", request).await.map(|_| ())
            }
        }
    }

    /// The log of a run, oldest entry first; empty for a run without one.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn run_entries(&self, run_id: &RunId) -> Result<Vec<RunEntry>> {
        match self {
            Connection::Local(engine) => Ok(run_entries(engine, run_id).await?),
            Connection::Remote(lake) => {
                let request = ActionRequest { run_id: Some(run_id.clone()), ..ActionRequest::default() };
                ask(lake, "run", request).await
            }
        }
    }

    /// The stream of a step of a run, and the slice of a rank that begins with that step.
    ///
    /// # Errors
    /// `NotFound` for a run without a log, and for a step that it does not hold; as for [`Connection::load_stream`].
    pub async fn replay(&self, run_id: &RunId, step: u64, topology: Topology) -> Result<(StreamHandle, Slice)> {
        let entries = self.run_entries(run_id).await?;
        let entry = step_entry(run_id, &entries, step)?;
        let handle = self.stream_by_id(entry.stream_id).await?;
        let slice = entry.slice(step, topology, handle.num_rows())?;
        Ok((handle, slice))
    }

    /// The addresses of the rows at some positions of an epoch: for each table of the stream, one for each position;
    /// `u64::MAX` where the table does not supply the row.
    ///
    /// # Errors
    /// `NotFound` for a stream that this lake does not know, `InvalidRequest` for positions beyond its rows; storage errors.
    pub async fn row_addrs(&self, stream_id: Digest, epoch: u64, positions: Range<u64>) -> Result<Vec<Vec<u64>>> {
        let plan = match self {
            Connection::Local(engine) => Some(StreamPlan::load_by_id(engine, stream_id).await?),
            Connection::Remote(_) => None,
        };
        let mut all: Vec<Vec<u64>> = Vec::new();
        let mut start = positions.start;
        while start < positions.end {
            let part = start..positions.end.min(start + ROWS_MAX);
            start = part.end;
            let found = match (&plan, self) {
                (Some(plan), _) => plan.row_addrs(epoch, &part.collect::<Vec<u64>>()).await?,
                (None, Connection::Remote(lake)) => {
                    let (stream_id, epoch, positions) = (Some(stream_id), Some(epoch), Some(part));
                    ask(lake, "rows", ActionRequest { stream_id, epoch, positions, ..ActionRequest::default() }).await?
                }
                (None, Connection::Local(_)) => return Err(Error::internal("a stream without a plan")),
            };
            if !all.is_empty() && all.len() != found.len() {
                return Err(Error::internal("the answers have rows of different tables"));
            }
            all.resize(found.len(), Vec::new());
            all.iter_mut().zip(found).for_each(|(all, found)| all.extend(found));
        }
        Ok(all)
    }
}
