//! Removes what streams left in a lake and nobody can use any more.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use stoker_lake::{LakeStore, ObjectEntry, Objects};
use stoker_sql::unused_objects;
use stoker_types::{Digest, ErrorKind, Snapshot, SnapshotRef, StreamSpec, TableName};

use crate::plan::{SPECS, load_spec};
use crate::run::{RUNS, stream_of};
use crate::{Error, Result};

/// The largest number of objects that are read or deleted concurrently.
const OBJECTS_IN_FLIGHT: usize = 16;

/// The objects of streams that a cleanup removed, or would remove in a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanedStreams {
    /// The number of removed specifications: those of streams that lost a snapshot and that no run names.
    pub num_specs: u64,
    /// The number of removed objects of row sets, headers and pages: those that no stream with all of its snapshots
    /// names.
    pub num_row_set_objects: u64,
    /// The bytes of all these objects.
    pub bytes: u64,
}

/// A specification that is stored in the lake.
pub(crate) struct Stored {
    stream_id: Digest,
    entry: ObjectEntry,
    spec: StreamSpec,
}

/// Removes the specifications of streams that lost a snapshot and that no run names, and the row sets that no stream
/// with all its snapshots needs. Only objects that are older than `age` are removed. In a dry run the objects are only
/// counted, and `removed` are the versions that would be gone.
///
/// Runs are kept, together with the specifications that they name: a run's name is never given to another stream, and
/// the run shows what became of its stream.
///
/// # Errors
/// Storage errors. Objects that were removed before the error stay removed.
pub async fn clean_streams(
    lake: &LakeStore,
    age: Duration,
    dry_run: bool,
    removed: &HashMap<TableName, BTreeSet<u64>>,
) -> Result<CleanedStreams> {
    let objects = lake.objects();
    let Some(specs) = specs(lake, &objects).await? else {
        tracing::warn!("keeping all specifications and row sets: some are damaged, or of another version of Stoker");
        return Ok(CleanedStreams::default());
    };
    let mut versions: HashMap<&TableName, HashSet<u64>> = HashMap::new();
    for table in specs.iter().flat_map(Stored::snapshots).map(|snapshot| &snapshot.table).collect::<BTreeSet<_>>() {
        let mut there = versions_of(lake, table).await?;
        if let Some(gone) = removed.get(table).filter(|_| dry_run) {
            there.retain(|version| !gone.contains(version));
        }
        versions.insert(table, there);
    }
    let is_there = |of: &Snapshot| versions.get(&of.table).is_some_and(|there| there.contains(&of.version));
    let (whole, lost): (Vec<_>, Vec<_>) =
        specs.iter().partition(|stored| !stored.entry.is_older_than(age) || stored.snapshots().all(is_there));
    let needed = whole.iter().flat_map(|stored| &stored.spec.sources).map(|source| source.row_set).collect();
    let of_runs = if lost.is_empty() { HashSet::new() } else { streams_of_runs(&objects).await? };
    let lost = lost.into_iter().filter(|stored| !of_runs.contains(&stored.stream_id));
    let lost: Vec<ObjectEntry> = lost.map(|stored| stored.entry.clone()).collect();
    let row_sets = unused_objects(&objects, &needed, age).await?;
    let counted = CleanedStreams {
        num_specs: lost.len() as u64,
        num_row_set_objects: row_sets.len() as u64,
        bytes: lost.iter().chain(&row_sets).map(|entry| entry.bytes).sum(),
    };
    if !dry_run {
        // An object is removed before the objects that it names.
        for group in [lost, row_sets] {
            let objects = &objects;
            let deletions = stream::iter(group).map(|entry| async move { objects.delete(&entry.path).await });
            deletions.buffer_unordered(OBJECTS_IN_FLIGHT).try_collect::<()>().await?;
        }
    }
    Ok(counted)
}

impl Stored {
    fn snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        self.spec.snapshots().chain(self.spec.tables())
    }
}

/// Returns the id of a stream, and the versions that it reads.
pub(crate) fn snapshots_of(stored: &Stored) -> (Digest, BTreeSet<Snapshot>) {
    (stored.stream_id, stored.snapshots().cloned().collect())
}

/// Returns all specifications of a lake, or `None` if one of them cannot be read, because then it is unknown what that
/// one needs.
pub(crate) async fn specs(lake: &LakeStore, objects: &Objects) -> Result<Option<Vec<Stored>>> {
    let specs = stream::iter(objects.entries(SPECS).await?).map(|entry| async move {
        let Some(stream_id) = digest(&entry) else { return Ok(None) };
        match load_spec(lake, stream_id).await {
            Ok(spec) => Ok(Some(Stored { stream_id, entry, spec })),
            Err(Error::Lake(error)) => Err(Error::Lake(error)),
            Err(error) => {
                tracing::warn!(%error, "a specification cannot be read");
                Ok(None)
            }
        }
    });
    let specs: Vec<Option<Stored>> = specs.buffered(OBJECTS_IN_FLIGHT).try_collect().await?;
    Ok(specs.into_iter().collect())
}

/// Returns the streams of all runs. A run that cannot be parsed is ignored, because it has no stream of this build.
async fn streams_of_runs(objects: &Objects) -> Result<HashSet<Digest>> {
    let streams = stream::iter(objects.entries(RUNS).await?).map(|entry| async move {
        let json = objects.get(&entry.path).await?;
        Ok::<_, Error>(json.and_then(|json| stream_of(&json).ok()))
    });
    streams.buffered(OBJECTS_IN_FLIGHT).try_filter_map(|found| std::future::ready(Ok(found))).try_collect().await
}

/// Returns the digest in the path of a specification.
fn digest(entry: &ObjectEntry) -> Option<Digest> {
    entry.path.strip_prefix(SPECS)?.trim_start_matches('/').parse().ok()
}

/// Returns the versions of a table. There are none if the table does not exist.
async fn versions_of(lake: &LakeStore, table: &TableName) -> Result<HashSet<u64>> {
    match lake.table(table, &SnapshotRef::Latest).await {
        Ok(table) => Ok(table.version_numbers().await?.into_iter().collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(HashSet::new()),
        Err(error) => Err(error.into()),
    }
}
