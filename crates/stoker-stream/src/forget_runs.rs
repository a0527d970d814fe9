//! Forgets old runs, so that cleanups remove the versions which only these runs hold.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{TimestampMicrosecondType, UInt64Type};
use futures::TryStreamExt as _;
use stoker_batch::RUN_LOG_TABLE;
use stoker_lake::{ChangeNote, HeldVersion, LakeStore, ROW_ADDR, ScanRequest};
use stoker_types::{Digest, ErrorKind, Snapshot, SnapshotRef, TableName};

use crate::cleanup::{snapshots_of, specs};
use crate::run::{RUNS, stream_of};
use crate::{Error, Result};

/// What was forgotten, or would be in a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgottenRuns {
    /// The number of runs.
    pub num_runs: u64,
    /// The number of versions that no stream holds any more.
    pub num_versions: u64,
}

/// The entries of a run in the log.
#[derive(Default)]
struct LoggedRun {
    /// The addresses of the entries.
    row_addrs: Vec<u64>,
    /// The time of the last entry, in microseconds since 1970-01-01 UTC.
    last_micros: i64,
}

/// Forgets runs that began at least `age` ago, and since then logged nothing and read nothing: their names, and their
/// entries in the log. Versions that only these runs hold are released. In a dry run, both are only counted.
///
/// A run reads if a hold of one of its versions was renewed; streams renew holds every day. Streams without a run keep
/// what they hold.
///
/// # Errors
/// Storage errors. What was forgotten before the error stays forgotten; the call may be repeated.
pub async fn forget_runs(lake: &LakeStore, age: Duration, dry_run: bool) -> Result<ForgottenRuns> {
    let objects = lake.objects();
    let Some(specs) = specs(lake, &objects).await? else {
        tracing::warn!("keeping all runs: some specifications are damaged, or of another version of Stoker");
        return Ok(ForgottenRuns::default());
    };
    let logged = logged_runs(lake).await?;
    let snapshots: HashMap<Digest, BTreeSet<Snapshot>> = specs.iter().map(snapshots_of).collect();
    let held = held_versions(lake, snapshots.values().flatten()).await?;
    // A time in the future, by the clock of the store, is no time ago.
    let is_late = |held: &&HeldVersion| held.last_renewed.elapsed().map_or(true, |since| since < age);
    let read_lately: HashSet<&Snapshot> = held.iter().filter(is_late).map(|held| &held.snapshot).collect();
    let oldest = micros_before(age);
    let (mut forgotten, mut kept): (BTreeMap<String, Digest>, HashSet<Digest>) = Default::default();
    for entry in objects.entries(RUNS).await? {
        let run = entry.path.trim_start_matches(RUNS).trim_start_matches('/').to_string();
        // A run that cannot be read is one of another version of Stoker.
        let stream = objects.get(&entry.path).await?.and_then(|json| stream_of(&json).ok());
        let Some(stream) = stream else { continue };
        let is_logged = logged.get(&run).is_some_and(|logged| logged.last_micros >= oldest);
        let is_read = snapshots.get(&stream).is_some_and(|of_run| of_run.iter().any(|of| read_lately.contains(of)));
        if entry.is_older_than(age) && !is_logged && !is_read {
            forgotten.insert(run, stream);
        } else {
            kept.insert(stream);
        }
    }
    let of_forgotten: HashSet<Digest> = forgotten.values().copied().filter(|stream| !kept.contains(stream)).collect();
    let (old, others): (Vec<_>, Vec<_>) = snapshots.iter().partition(|(stream, _)| of_forgotten.contains(*stream));
    let mut freed: BTreeSet<&Snapshot> = old.into_iter().flat_map(|(_, of_stream)| of_stream).collect();
    for needed in others.into_iter().flat_map(|(_, of_stream)| of_stream) {
        freed.remove(needed);
    }
    let released: BTreeSet<&Snapshot> =
        held.iter().map(|held| &held.snapshot).filter(|snapshot| freed.contains(snapshot)).collect();
    let counted = ForgottenRuns { num_runs: forgotten.len() as u64, num_versions: released.len() as u64 };
    if !dry_run {
        for snapshot in released {
            lake.end_holds(snapshot).await?;
        }
        forget_entries(lake, forgotten.keys().filter_map(|run| logged.get(run))).await?;
        for run in forgotten.keys() {
            objects.delete(&format!("{RUNS}/{run}")).await?;
        }
    }
    Ok(counted)
}

/// The time `age` ago, in microseconds since 1970-01-01 UTC.
fn micros_before(age: Duration) -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(age);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the versions that streams hold, of the tables of these versions.
async fn held_versions(lake: &LakeStore, of: impl Iterator<Item = &Snapshot>) -> Result<Vec<HeldVersion>> {
    let tables: BTreeSet<TableName> = of.map(|snapshot| snapshot.table.root()).collect();
    let mut held = Vec::new();
    for table in tables {
        held.extend(lake.held_versions(&table).await?);
    }
    Ok(held)
}

/// Reads the log of all runs. It is empty for a lake without a log.
async fn logged_runs(lake: &LakeStore) -> Result<HashMap<String, LoggedRun>> {
    let mut runs: HashMap<String, LoggedRun> = HashMap::new();
    let table = match lake.table(&TableName::try_new(RUN_LOG_TABLE)?, &SnapshotRef::Latest).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(runs),
        table => table?,
    };
    let columns = ["run_id", "time"].map(String::from).to_vec();
    let request = ScanRequest { columns, with_row_addr: true, ..ScanRequest::default() };
    let mut batches = table.scan(&request).await?;
    while let Some(batch) = batches.try_next().await.map_err(stoker_sql::Error::from)? {
        let text = batch.column_by_name("run_id").and_then(|column| column.as_string_opt::<i32>());
        let time =
            batch.column_by_name("time").and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
        let addrs = batch.column_by_name(ROW_ADDR).and_then(|column| column.as_primitive_opt::<UInt64Type>());
        let (Some(text), Some(time), Some(addrs)) = (text, time, addrs) else {
            let reason = "columns run_id and time are not text and timestamps in microseconds".to_string();
            let what = "the run log, table stoker_run_log";
            return Err(Error::Types(stoker_types::Error::Malformed { what, reason }));
        };
        for row in 0..batch.num_rows() {
            let run = runs.entry(text.value(row).to_string()).or_default();
            run.row_addrs.push(addrs.value(row));
            run.last_micros = run.last_micros.max(time.value(row));
        }
    }
    Ok(runs)
}

/// Deletes the entries of runs from the log.
async fn forget_entries(lake: &LakeStore, runs: impl Iterator<Item = &LoggedRun>) -> Result<()> {
    let addrs: Vec<u64> = runs.flat_map(|run| &run.row_addrs).copied().collect();
    if addrs.is_empty() {
        return Ok(());
    }
    let note = |num_rows| ChangeNote { predicate: format!("entries of old runs: {num_rows}"), ..ChangeNote::default() };
    let name = TableName::try_new(RUN_LOG_TABLE)?;
    lake.delete_rows(&name, &addrs, "forgetting the entries of old runs", &note).await?;
    Ok(())
}
