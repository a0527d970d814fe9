//! What is kept of a job in the lake: finished units until the commit, then one marker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stoker_lake::{FragmentDraft, Objects, PutOutcome};
use stoker_types::Digest;

use crate::{Error, Result, Skipped};

/// Units older than this are written again: cleaning up a lake removes files that no version names after seven days.
pub(crate) const UNIT_AGE_MAX: Duration = Duration::from_secs(6 * 24 * 3600);

/// Where journals lie, relative to the lake's objects, each in a folder of its run.
pub(crate) const FOLDER: &str = "ingest";

/// Folders beside them that stay: markers of finished jobs, and lists of their files.
pub(crate) const KEPT_FOLDERS: [&str; 2] = ["done", "files"];

/// A finished unit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FinishedUnit {
    pub fragments: Vec<FragmentDraft>,
    pub rows: u64,
    pub skipped: Vec<Skipped>,
    /// The digest of each file that ends in it; `None` for unreadable ones. Units of older versions have none.
    #[serde(default)]
    pub digests: Vec<Option<Digest>>,
    /// When it was begun, in seconds since 1970.
    pub begun_secs: u64,
}

/// Where the first attempt of a run began.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// The newest version of the table then; 0 when there was none.
    pub version: u64,
}

/// A finished job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// How often these sources were ingested with these options.
    pub runs: u64,
    /// The last run, as the key of its commit.
    pub run: String,
    /// The version that the last run committed.
    pub version: u64,
    pub rows: u64,
    pub skipped: Vec<Skipped>,
}

/// Seconds since 1970.
pub(crate) fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

impl FinishedUnit {
    /// Whether its files can still be there.
    pub fn is_fresh(&self) -> bool {
        now_secs().saturating_sub(self.begun_secs) < UNIT_AGE_MAX.as_secs()
    }
}

/// The objects of one job.
pub(crate) struct Journal {
    objects: Objects,
    marker: String,
    folder: String,
}

impl Journal {
    /// The journal of the job with this digest, and the marker if it was finished before.
    pub async fn open(objects: Objects, source: &Digest) -> Result<(Self, Option<Marker>)> {
        let marker = format!("ingest/done/{source}.json");
        let journal = Self { objects, marker, folder: format!("ingest/{source}") };
        let done = journal.marker().await?;
        Ok((journal, done))
    }

    /// The marker, if the job was finished before.
    ///
    /// # Errors
    /// A marker that cannot be understood: the rows may be in the table already.
    pub async fn marker(&self) -> Result<Option<Marker>> {
        let Some(bytes) = self.objects.get(&self.marker).await? else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| Error::Journal { path: format!("_stoker/{}", self.marker), reason: source.to_string() })
    }

    /// Chooses the folder of the units: one for each run of a job.
    pub fn use_run(&mut self, run: &Digest) {
        self.folder = format!("ingest/{run}");
    }

    pub async fn unit(&self, index: usize) -> Result<Option<FinishedUnit>> {
        get(&self.objects, &self.unit_path(index)).await
    }

    /// Notes a finished unit in place of what is noted. A concurrent run of the same job may have its own fragments of the unit:
    /// each run commits those that it wrote or read, and only one commit succeeds.
    pub async fn put_unit(&self, index: usize, unit: &FinishedUnit) -> Result<()> {
        Ok(self.objects.put(&self.unit_path(index), to_json(unit)?.into()).await?)
    }

    /// Notes where a run begins, unless an attempt before this one did; returns what is noted.
    pub async fn begin(&self, begun: Begun) -> Result<Begun> {
        let path = format!("{}/begun.json", self.folder);
        match self.objects.claim(&path, to_json(&begun)?.into()).await? {
            PutOutcome::Created => Ok(begun),
            // What cannot be understood tells nothing: search all versions.
            PutOutcome::Exists => Ok(get(&self.objects, &path).await?.unwrap_or_default()),
        }
    }

    pub async fn put_marker(&self, marker: &Marker) -> Result<()> {
        Ok(self.objects.put(&self.marker, to_json(marker)?.into()).await?)
    }

    /// Forgets the units, and where the run began.
    pub async fn clear(&self) -> Result<()> {
        // Only names of its own: stores keep unfinished uploads of other processes in the same folder.
        for path in self.objects.list(&self.folder).await?.into_iter().filter(|path| path.ends_with(".json")) {
            self.objects.delete(&path).await?;
        }
        Ok(())
    }

    /// Forgets what a run left that ended after its marker was put.
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

/// An object, or `None` when there is none that can be understood: then its work is done again.
async fn get<T: DeserializeOwned>(objects: &Objects, path: &str) -> Result<Option<T>> {
    let Some(bytes) = objects.get(path).await? else { return Ok(None) };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            tracing::warn!(path, %error, "a part of an ingest's journal is not readable and is written again");
            Ok(None)
        }
    }
}
