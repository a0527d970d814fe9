//! Runs: their logs, and the rows of their steps.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use stoker_stream::{
    BAD_ROWS_TABLE, BadRowEntry, RUN_LOG_TABLE, RunEntry, StreamPlan, log_bad_rows, log_run, run_entries, step_entry,
};
use stoker_types::{Digest, ErrorKind, RunId, Slice, SnapshotRef, Topology};

use crate::client::connection::ask;
use crate::client::{Connection, RemoteLake, StreamHandle};
use crate::server::{ActionRequest, ROWS_MAX};
use crate::write_key::WriteKey;
use crate::{Error, Result};

impl Connection {
    /// Appends an entry to the log of its run, exactly once, even when the answer is lost and the call is retried.
    ///
    /// # Errors
    /// Storage errors; a lake that cannot be written.
    pub async fn log_run(&self, entry: &RunEntry) -> Result<()> {
        let key = self.write_key(RUN_LOG_TABLE).await?;
        match self {
            Connection::Local(lake) => {
                let call = || async { Ok(log_run(lake, entry, Some(key.commit_key())).await?) };
                lake.patience().ask("adding to the run log", call).await
            }
            Connection::Remote(lake) => {
                let request = ActionRequest { entry: Some(entry.clone()), ..ActionRequest::default() };
                write(lake, "log_run", request, key).await
            }
        }
    }

    /// Appends rows to the table of bad rows, exactly once, even when the answer is lost and the call is retried.
    ///
    /// # Errors
    /// Storage errors; a lake that cannot be written.
    pub async fn log_bad_rows(&self, rows: &[BadRowEntry]) -> Result<()> {
        let key = self.write_key(BAD_ROWS_TABLE).await?;
        match self {
            Connection::Local(lake) => {
                let call = || async { Ok(log_bad_rows(lake, rows, Some(key.commit_key())).await?) };
                lake.patience().ask("adding to the table of bad rows", call).await
            }
            Connection::Remote(lake) => {
                let request = ActionRequest { bad_rows: rows.to_vec(), ..ActionRequest::default() };
                write(lake, "log_bad_rows", request, key).await
            }
        }
    }

    /// Creates the key of a new write to a table.
    async fn write_key(&self, table: &str) -> Result<WriteKey> {
        match self.table(table, &SnapshotRef::Latest).await {
            Ok(found) => Ok(WriteKey::new(found.version)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(WriteKey::new(0)),
            Err(error) => Err(error),
        }
    }

    /// Returns the log of a run, oldest entry first; empty for a run without a log.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn run_entries(&self, run_id: &RunId) -> Result<Vec<RunEntry>> {
        match self {
            Connection::Local(lake) => {
                let call = || async { Ok(run_entries(lake, run_id).await?) };
                lake.patience().ask("reading the run log", call).await
            }
            Connection::Remote(lake) => {
                let request = ActionRequest { run_id: Some(run_id.clone()), ..ActionRequest::default() };
                ask(lake, "run", request).await
            }
        }
    }

    /// Returns the stream of a step of a run, and the slice of a rank that begins with that step.
    ///
    /// # Errors
    /// `NotFound` for a run without a log, and for a step that the log does not contain; as for
    /// [`Connection::load_stream`].
    pub async fn replay(&self, run_id: &RunId, step: u64, topology: Topology) -> Result<(StreamHandle, Slice)> {
        let entries = self.run_entries(run_id).await?;
        let entry = step_entry(run_id, &entries, step)?;
        let handle = self.stream_by_id(entry.stream_id).await?;
        let slice = entry.slice(step, topology, handle.num_rows())?;
        Ok((handle, slice))
    }

    /// Returns the row addresses at some positions of an epoch: for each table of the stream, one address per position,
    /// which is `u64::MAX` where that table does not supply the row.
    ///
    /// # Errors
    /// `NotFound` for a stream that this lake does not know; `InvalidRequest` for positions beyond its rows; storage
    /// errors.
    pub async fn row_addrs(&self, stream_id: Digest, epoch: u64, positions: Range<u64>) -> Result<Vec<Vec<u64>>> {
        let plan = match self {
            Connection::Local(lake) => {
                let call = || async { Ok(StreamPlan::load_by_id(lake, stream_id).await?) };
                Some(lake.patience().ask("loading a stream", call).await?)
            }
            Connection::Remote(_) => None,
        };
        let mut all: Vec<Vec<u64>> = Vec::new();
        let mut start = positions.start;
        while start < positions.end {
            let part = start..positions.end.min(start + ROWS_MAX);
            start = part.end;
            let found = match (&plan, self) {
                (Some(plan), _) => {
                    let positions: Vec<u64> = part.collect();
                    let call = || async { Ok(plan.row_addrs(epoch, &positions).await?) };
                    self.patience().ask("looking rows up", call).await?
                }
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

/// Makes a server write once. A request with a key may be retried; a server that does not know keys gets the request
/// once, without a key.
async fn write(lake: &RemoteLake, action: &str, request: ActionRequest, key: WriteKey) -> Result<()> {
    let body = |key: Option<WriteKey>| {
        serde_json::to_vec(&ActionRequest { write_key: key, ..request.clone() }).map_err(Error::internal)
    };
    let keyed = body(Some(key))?;
    let is_uncertain = AtomicBool::new(false);
    let call = || async {
        match lake.do_action_once(action, keyed.clone()).await {
            Ok(_) => Ok(true),
            // Replicas may have different versions: after a failure of unknown outcome, another replica may have
            // written already.
            Err(error) if knows_no_keys(&error) && !(lake.has_replicas() && is_uncertain.load(Ordering::Relaxed)) => {
                Ok(false)
            }
            Err(error) => {
                is_uncertain.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    };
    match lake.patience().ask(&format!("action {action}"), call).await? {
        true => Ok(()),
        false => lake.do_action_once(action, body(None)?).await.map(|_| ()),
    }
}

/// Whether a server refused a request because of its key.
fn knows_no_keys(error: &Error) -> bool {
    let field = format!("unknown field `{}`", WriteKey::FIELD);
    error.kind() == ErrorKind::InvalidRequest && error.to_string().contains(&field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_know_no_keys_are_told_by_their_answer() {
        /// The request type of older servers.
        #[derive(Default, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Older {
            bad_rows: Vec<BadRowEntry>,
        }
        let request = ActionRequest { write_key: Some(WriteKey::new(3)), ..ActionRequest::default() };
        let body = serde_json::to_vec(&request).expect("JSON");
        let refused =
            serde_json::from_slice::<Older>(&body).map(|older| older.bad_rows.len()).expect_err("an unknown field");
        assert!(knows_no_keys(&Error::invalid(format!("the body of action log_run is not its JSON: {refused}"))));
        assert!(!knows_no_keys(&Error::invalid("unknown field `other`")));
        assert!(!knows_no_keys(&Error::broken("unknown field `write_key`")));
        let bare = serde_json::to_string(&ActionRequest::default()).expect("JSON");
        assert_eq!(bare, "{}", "without a key, older servers understand the request");
    }
}
