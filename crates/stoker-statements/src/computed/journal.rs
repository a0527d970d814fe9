//! The journal of a computed column in the lake, until its commit.
//!
//! ```text
//! _stoker/columns/<digest of the call>/begun.json              the key of the commit
//!                                      schema.arrow            the columns, as soon as there is a value
//!                                      <fragment>.json         a fragment that is finished: the names of its data files
//!                                      <fragment>/<n>.arrow    values of the first rows of a fragment that is not
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_ipc::reader::StreamReader;
use arrow_schema::SchemaRef;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stoker_ingest::COLUMN_JOURNALS;
use stoker_lake::{ColumnDraft, LakeStore, Objects, PutOutcome};
use stoker_types::Digest;

use super::parts::to_ipc;
use crate::{Error, Result};

/// Fragments that were begun longer ago are computed again, because a cleanup of the lake removes files that no version
/// names after seven days.
const DRAFT_AGE_MAX: Duration = Duration::from_secs(6 * 24 * 3_600);

/// Where a job begins.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Begun {
    /// The key of the commit, which all processes with the same call share.
    pub key: String,
    /// The newest version of the table at that time.
    pub version: u64,
    /// The id of the first column, so that drafts fit in all attempts.
    pub first_id: i32,
}

/// A fragment that is finished.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FinishedFragment {
    pub draft: ColumnDraft,
    pub num_rows: u64,
    /// When the fragment was begun, in seconds since 1970.
    pub begun_secs: u64,
}

/// The journal of one job.
pub(super) struct ColumnJournal {
    pub(super) objects: Objects,
    folder: String,
}

/// The paths of the parts of fragments that are not finished, in order.
pub(super) type Parts = BTreeMap<u32, Vec<String>>;

/// The seconds since 1970.
pub(super) fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

impl FinishedFragment {
    /// Whether no cleanup can have removed the files yet.
    fn is_fresh(&self) -> bool {
        now_secs().saturating_sub(self.begun_secs) < DRAFT_AGE_MAX.as_secs()
    }
}

impl ColumnJournal {
    pub fn new(lake: &LakeStore, job: &Digest) -> Self {
        Self { objects: lake.unlimited().objects(), folder: format!("{COLUMN_JOURNALS}/{job}") }
    }

    /// Returns where the job began, if it did.
    pub async fn begun(&self) -> Result<Option<Begun>> {
        self.json("begun.json").await
    }

    /// Records where the job begins, unless another process did. Returns the record that is in the journal.
    pub async fn begin(&self, begun: Begun) -> Result<Begun> {
        let path = self.path("begun.json");
        match self.objects.claim(&path, to_json(&begun)?.into()).await? {
            PutOutcome::Created => Ok(begun),
            PutOutcome::Exists => Ok(self.begun().await?.unwrap_or(begun)),
        }
    }

    /// Returns the columns, if a value is known.
    pub async fn schema(&self) -> Result<Option<SchemaRef>> {
        let Some(bytes) = self.objects.get(&self.path("schema.arrow")).await? else { return Ok(None) };
        Ok(StreamReader::try_new(bytes.as_ref(), None).ok().map(|reader| reader.schema()))
    }

    pub async fn put_schema(&self, schema: &SchemaRef) -> Result<()> {
        Ok(self.objects.put(&self.path("schema.arrow"), to_ipc(schema, &[])?.into()).await?)
    }

    /// Returns the fragments that are finished and whose files cannot have been removed, and the parts of others.
    pub async fn progress(&self) -> Result<(Vec<FinishedFragment>, Parts)> {
        let (mut finished, mut parts) = (Vec::new(), Parts::new());
        for path in self.objects.list(&self.folder).await? {
            let Some(name) = path.strip_prefix(&format!("{}/", self.folder)) else { continue };
            match name.split_once('/') {
                Some((fragment, _)) if name.ends_with(".arrow") => {
                    let Ok(fragment) = fragment.parse() else { continue };
                    parts.entry(fragment).or_default().push(path);
                }
                None if name.strip_suffix(".json").is_some_and(|stem| stem.parse::<u32>().is_ok()) => {
                    let found: Option<FinishedFragment> = self.json(name).await?;
                    finished.extend(found.filter(FinishedFragment::is_fresh));
                }
                _ => {}
            }
        }
        Ok((finished, parts))
    }

    /// Records a finished fragment, whose parts are not needed any more.
    pub async fn put_fragment(&self, finished: &FinishedFragment) -> Result<()> {
        let fragment = finished.draft.fragment();
        self.objects.put(&self.path(&format!("{fragment:010}.json")), to_json(finished)?.into()).await?;
        for path in self.objects.list(&self.path(&format!("{fragment:010}"))).await? {
            self.objects.delete(&path).await?;
        }
        Ok(())
    }

    /// Deletes all records.
    pub async fn clear(&self) -> Result<()> {
        // Only names of the journal's own objects: stores keep unfinished uploads in the same folder.
        let is_own = |path: &String| path.ends_with(".json") || path.ends_with(".arrow");
        for path in self.objects.list(&self.folder).await?.into_iter().filter(is_own) {
            self.objects.delete(&path).await?;
        }
        Ok(())
    }

    /// Reads a record; `None` for one that does not exist or cannot be read, so that its work is done again.
    async fn json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let bytes = self.objects.get(&self.path(name)).await?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// The path of a record.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }
}

fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|source| Error::internal(format!("writing the journal of a column: {source}")))
}
