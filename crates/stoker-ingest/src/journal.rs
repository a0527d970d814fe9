//! The objects of a job in the lake: its finished units until the commit, then one marker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stoker_lake::{FragmentDraft, Objects, PutOutcome};
use stoker_types::Digest;

use crate::{Error, Result, Skipped};

/// Units older than this are written again, because a cleanup of the lake removes files that no version names after
/// seven days.
pub(crate) const UNIT_AGE_MAX: Duration = Duration::from_secs(6 * 24 * 3600);

/// The folder of journals among the lake's objects. Each run has its own folder in it.
pub(crate) const FOLDER: &str = "ingest";

/// Folders among the journals that stay: markers of finished jobs, and lists of their files.
pub(crate) const KEPT_FOLDERS: [&str; 2] = ["done", "files"];

/// A finished unit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FinishedUnit {
    pub fragments: Vec<FragmentDraft>,
    pub rows: u64,
    pub skipped: Vec<Skipped>,
    /// The digest of each file that ends in the unit; `None` for unreadable files. Empty in units of older versions of
    /// Stoker.
    #[serde(default)]
    pub digests: Vec<Option<Digest>>,
    /// When the unit was begun, in seconds since 1970.
    pub begun_secs: u64,
}

/// The state of the table when the first attempt of a run began.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// The newest version of the table; 0 when there was no table.
    pub version: u64,
}

/// A finished job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// The number of times that these sources were ingested with these options.
    pub runs: u64,
    /// The last run, which is the key of its commit.
    pub run: String,
    /// The version that the last run committed.
    pub version: u64,
    pub rows: u64,
    pub skipped: Vec<Skipped>,
}

/// Returns the seconds since 1970.
pub(crate) fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

impl FinishedUnit {
    /// Whether no cleanup can have removed the unit's files yet.
    pub fn is_fresh(&self) -> bool {
        now_secs().saturating_sub(self.begun_secs) < UNIT_AGE_MAX.as_secs()
    }
}

/// The journal of one job.
pub(crate) struct Journal {
    objects: Objects,
    marker: String,
    folder: String,
}

impl Journal {
    /// Opens the journal of the job with this digest. Also returns the marker if the job finished before.
    pub async fn open(objects: Objects, source: &Digest) -> Result<(Self, Option<Marker>)> {
        let marker = format!("ingest/done/{source}.json");
        let journal = Self { objects, marker, folder: format!("ingest/{source}") };
        let done = journal.marker().await?;
        Ok((journal, done))
    }

    /// Returns the marker if the job finished before.
    ///
    /// # Errors
    /// A marker that cannot be parsed: the rows may already be in the table.
    pub async fn marker(&self) -> Result<Option<Marker>> {
        let Some(bytes) = self.objects.get(&self.marker).await? else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| Error::Journal { path: format!("_stoker/{}", self.marker), reason: source.to_string() })
    }

    /// Selects the folder of a run's units. Each run of a job has its own folder.
    pub fn use_run(&mut self, run: &Digest) {
        self.folder = format!("ingest/{run}");
    }

    pub async fn unit(&self, index: usize) -> Result<Option<FinishedUnit>> {
        get(&self.objects, &self.unit_path(index)).await
    }

    /// Records a finished unit, and replaces an earlier record. A concurrent run of the same job may have its own
    /// fragments of the unit: each run commits the fragments that it wrote or read, and only one commit succeeds.
    pub async fn put_unit(&self, index: usize, unit: &FinishedUnit) -> Result<()> {
        Ok(self.objects.put(&self.unit_path(index), to_json(unit)?.into()).await?)
    }

    /// Records where a run begins, unless an earlier attempt did. Returns the record that is in the journal.
    pub async fn begin(&self, begun: Begun) -> Result<Begun> {
        let path = format!("{}/begun.json", self.folder);
        match self.objects.claim(&path, to_json(&begun)?.into()).await? {
            PutOutcome::Created => Ok(begun),
            // After a record that cannot be parsed, the default makes the commit search all versions.
            PutOutcome::Exists => Ok(get(&self.objects, &path).await?.unwrap_or_default()),
        }
    }

    pub async fn put_marker(&self, marker: &Marker) -> Result<()> {
        Ok(self.objects.put(&self.marker, to_json(marker)?.into()).await?)
    }

    /// Deletes the records of the units and of the beginning of the run.
    pub async fn clear(&self) -> Result<()> {
        // Only names of the journal's own objects: stores keep unfinished uploads of other processes in the same
        // folder.
        for path in self.objects.list(&self.folder).await?.into_iter().filter(|path| path.ends_with(".json")) {
            self.objects.delete(&path).await?;
        }
        Ok(())
    }

    /// Deletes the records of a run that ended after it wrote its marker.
    pub async fn clear_finished(&mut self, done: &Marker) -> Result<()> {
        self.folder = format!("ingest/{}", done.run);
        self.clear().await
    }

    fn unit_path(&self, index: usize) -> String {
        format!("{}/{index:06}.json", self.folder)
    }
}

fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|source| Error::internal("writing the journal of an ingest", source))
}

/// Reads an object. Returns `None` when it does not exist or cannot be parsed, so that its work is done again.
async fn get<T: DeserializeOwned>(objects: &Objects, path: &str) -> Result<Option<T>> {
    let Some(bytes) = objects.get(path).await? else { return Ok(None) };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            tracing::warn!(path, %error, "cannot read a part of an ingest's journal; its work is repeated");
            Ok(None)
        }
    }
}
