//! Runs: their logs, and the rows of their steps.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stoker_batch::{BAD_ROWS_TABLE, RUN_LOG_TABLE, entry_slice, step_entry};
use stoker_types::calls::{BoxedAnswers, Call, FindRows, LogBadRows, LogRun, ROW_ADDRS_MAX, ReadRunLog, WriteKey};
use stoker_types::{BadRowEntry, Digest, ErrorKind, ReadOptions, RunEntry, RunId, Slice, SnapshotRef, Topology};

use crate::session::{BatchKey, Fetched, Turn};
use crate::write_key::new_write_key;
use crate::{Connection, Error, Lake, Result, StreamHandle};

impl Connection {
    /// Appends an entry to the log of its run, exactly once, even when the answer is lost and the call is retried.
    ///
    /// # Errors
    /// Storage errors; a lake that cannot be written.
    pub async fn log_run(&self, entry: &RunEntry) -> Result<()> {
        let entry = |write_key| LogRun { entry: entry.clone(), write_key };
        self.write(entry, self.write_key(RUN_LOG_TABLE).await?, false).await
    }

    /// Appends rows to the table of bad rows, exactly once, even when the answer is lost and the call is retried.
    ///
    /// # Errors
    /// Storage errors; a lake that cannot be written.
    pub async fn log_bad_rows(&self, rows: &[BadRowEntry]) -> Result<()> {
        let rows = |write_key| LogBadRows { bad_rows: rows.to_vec(), write_key };
        self.write(rows, self.write_key(BAD_ROWS_TABLE).await?, false).await
    }

    /// Writes once: with a key the request may be repeated, also by a later call with the same key. A server that knows
    /// no keys gets the request once, without a key. `may_be_done` tells that an earlier call may have done the write.
    pub(crate) async fn write<C: Call>(
        &self,
        request: impl Fn(Option<WriteKey>) -> C,
        key: WriteKey,
        may_be_done: bool,
    ) -> Result<()>
    where
        dyn Lake: BoxedAnswers<C, Error = Error>,
    {
        let keyed = request(Some(key));
        let is_uncertain = AtomicBool::new(may_be_done);
        let call = || async {
            match self.call_once(keyed.clone()).await {
                Ok(_) => Ok(true),
                // Another one of several servers with different versions may have done the write.
                Err(error)
                    if knows_no_keys(&error) && !(self.has_replicas() && is_uncertain.load(Ordering::Relaxed)) =>
                {
                    Ok(false)
                }
                Err(error) => {
                    is_uncertain.store(true, Ordering::Relaxed);
                    Err(error)
                }
            }
        };
        match self.patience().ask(C::DOING, call).await? {
            true => Ok(()),
            false => self.call_once(request(None)).await.map(|_| ()),
        }
    }

    /// Whether a call may have been done by another server than the one that answered.
    fn has_replicas(&self) -> bool {
        self.lake().has_replicas()
    }

    /// The key of a new write to a table.
    pub(crate) async fn write_key(&self, table: &str) -> Result<WriteKey> {
        let new_key = |since_version| new_write_key(since_version, self.patience().environment());
        match self.table(table, &SnapshotRef::Latest).await {
            Ok(found) => Ok(new_key(found.version)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(new_key(0)),
            Err(error) => Err(error),
        }
    }

    /// The stream of a step of a run, and the slice of a rank that begins with that step.
    ///
    /// # Errors
    /// `NotFound` for a run without a log, and for a step that the log does not contain; as for
    /// [`Connection::load_stream`].
    pub async fn replay(&self, run_id: &RunId, step: u64, topology: Topology) -> Result<(StreamHandle, Slice)> {
        let entries = self.call(ReadRunLog { run_id: run_id.clone() }).await?;
        let entry = step_entry(run_id, &entries, step)?;
        let handle = self.stream_by_id(entry.stream_id).await?;
        let slice = entry_slice(entry, step, topology, handle.num_rows())?;
        Ok((handle, slice))
    }

    /// Reads the batch of all ranks at a step of a run. Returns `None` if the step has no rows.
    ///
    /// # Errors
    /// As for [`Connection::replay`]; errors of reading the rows.
    pub async fn replay_batch(&self, run_id: &RunId, step: u64, read: &ReadOptions) -> Result<Option<Fetched>> {
        let (handle, slice) = self.replay(run_id, step, Topology::SINGLE).await?;
        let spec = Arc::new(handle.spec().clone());
        let next = handle.open(&slice, read).await?.next().await?;
        Ok(next.map(|batch| {
            let key =
                BatchKey { turn: Turn::default(), step: batch.step, position: batch.cursor.position, is_last: false };
            Fetched { share: slice.share(batch.step, spec.num_rows), packs: None, step, key, spec, batch }
        }))
    }

    /// Returns the row addresses at some positions of an epoch: for each table of the stream, one address per position,
    /// which is `u64::MAX` where that table does not supply the row.
    ///
    /// # Errors
    /// `NotFound` for a stream that this lake does not know; `InvalidRequest` for positions beyond its rows; storage
    /// errors.
    pub async fn row_addrs(&self, stream_id: Digest, epoch: u64, positions: Range<u64>) -> Result<Vec<Vec<u64>>> {
        let handle = match self.lake().is_local() {
            true => Some(self.stream_by_id(stream_id).await?),
            // A server finds the rows by the id of the stream.
            false => None,
        };
        let mut all: Vec<Vec<u64>> = Vec::new();
        let mut start = positions.start;
        while start < positions.end {
            let part = start..positions.end.min(start + ROW_ADDRS_MAX);
            start = part.end;
            let found = match &handle {
                Some(handle) => handle.row_addrs(epoch, part).await?,
                None => self.call(FindRows { stream_id, epoch, positions: part }).await?,
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

/// Whether a server refused a request because of its key.
fn knows_no_keys(error: &Error) -> bool {
    let field = format!("unknown field `{}`", WriteKey::FIELD);
    error.kind() == ErrorKind::InvalidRequest && error.to_string().contains(&field)
}

#[cfg(test)]
mod tests {
    use stoker_clock::Environment;
    use stoker_types::calls::encode_call;

    use super::*;

    #[test]
    fn servers_that_know_no_keys_are_told_by_their_answer() {
        /// The request type of older servers.
        #[derive(Default, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Older {
            bad_rows: Vec<BadRowEntry>,
        }
        let request = |write_key| encode_call(&LogBadRows { bad_rows: Vec::new(), write_key }).expect("JSON");
        let refused = serde_json::from_slice::<Older>(&request(Some(new_write_key(3, &Environment::default()))))
            .map(|older| older.bad_rows.len())
            .expect_err("an unknown field");
        let refused = format!("the body of action log_run is not valid JSON for this action: {refused}");
        assert!(knows_no_keys(&Error::invalid(refused)));
        assert!(!knows_no_keys(&Error::invalid("unknown field `other`")));
        assert!(!knows_no_keys(&Error::Stopping));
        assert_eq!(request(None), b"{}", "without a key, older servers understand the request");
    }
}
