//! What a checkpoint keeps of a stream.

use serde::{Deserialize, Serialize};

use crate::spec::list;
use crate::{Cursor, Digest, Error, MixtureSpec, OrderOptions, Result, Snapshot, StreamSpec};

/// The version of the state document.
pub const STATE_VERSION: u32 = 2;

/// A state is smaller than this, in bytes, unless the specification travels with it.
const STATE_BYTES_MAX: usize = 1024;

/// Entries of the batch size log that a state keeps.
const LOG_ENTRIES_MAX: usize = 8;

/// Snapshots that a state repeats for people.
const SNAPSHOTS_MAX: usize = 4;

/// Characters of the query that a state repeats for people.
const QUERY_CHARS_MAX: usize = 120;

/// From which step and position on which global batch size was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLogEntry {
    /// The first step.
    pub step: u64,
    /// The first position.
    pub position: u64,
    /// Rows per global batch from there on.
    pub global_batch: u64,
}

/// Where a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The epoch, from zero.
    pub epoch: u64,
    /// The next position.
    pub position: u64,
    /// The next step, counted from the start of the training.
    pub step: u64,
}

/// The state of a stream: the same on all ranks, JSON, and under 1 KiB unless the specification travels with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamState {
    /// [`STATE_VERSION`].
    pub version: u32,
    /// The stream id: the digest of the specification.
    pub stream_id: Digest,
    /// The digest of query and parameters.
    pub query: Digest,
    /// The start of the query's text, for people.
    pub query_text: String,
    /// The first pinned snapshots, at most four; the specification has all.
    pub snapshots: Vec<Snapshot>,
    /// Rows per epoch.
    pub num_rows: u64,
    /// The seed.
    pub seed: u64,
    /// The options of the order; of the first query, if there are several.
    pub order: Option<OrderOptions>,
    /// The digest of the mixture, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixture: Option<Digest>,
    /// The epoch, from zero.
    pub epoch: u64,
    /// The next position.
    pub position: u64,
    /// Global batches that were delivered since the start of the training, over all epochs: the number of the next step.
    pub step: u64,
    /// The first entry of an epoch's batch size log, from which its steps count, and the latest ones: at most eight. The epoch is
    /// [`StreamState::logged_epoch`].
    pub log: Vec<BatchLogEntry>,
    /// The whole specification, only when the lake cannot keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<StreamSpec>,
}

impl StreamState {
    /// The state of `spec` at a cursor and step. `embed_spec` when the specification could not be stored in the lake.
    pub fn new(spec: &StreamSpec, place: Place, log: &[BatchLogEntry], embed_spec: bool) -> Self {
        let first = spec.sources.first();
        let mut state = Self {
            version: STATE_VERSION,
            stream_id: spec.stream_id(),
            query: spec.query_digest(),
            query_text: first.map_or_else(String::new, |source| source.sql.chars().take(QUERY_CHARS_MAX).collect()),
            snapshots: spec.snapshots().take(SNAPSHOTS_MAX).cloned().collect(),
            num_rows: spec.num_rows,
            seed: spec.seed,
            order: first.map(|source| source.order.clone()),
            mixture: spec.mixture.as_ref().map(mixture_digest),
            epoch: place.epoch,
            position: place.position,
            step: place.step,
            log: first_and_latest(log),
            spec: None,
        };
        state.trim();
        state.spec = embed_spec.then(|| spec.clone());
        state
    }

    /// Drops what is there for people only until the state fits.
    fn trim(&mut self) {
        while self.to_json().len() >= STATE_BYTES_MAX {
            if self.log.len() > 1 {
                self.log.remove(1);
            } else if self.snapshots.pop().is_none() && self.query_text.pop().is_none() {
                return;
            }
        }
    }

    /// The cursor in it.
    pub fn cursor(&self) -> Cursor {
        Cursor { stream_id: self.stream_id, epoch: self.epoch, position: self.position }
    }

    /// The epoch of the log: that of the state; the one before it where the state was taken with the last batch of that epoch.
    pub fn logged_epoch(&self) -> u64 {
        let is_behind = self.position == 0 && self.log.last().is_some_and(|last| last.step < self.step);
        if is_behind { self.epoch.saturating_sub(1) } else { self.epoch }
    }

    /// The state as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a state.
    ///
    /// # Errors
    /// [`Error::Malformed`] for text that is not a state, or one of another version.
    pub fn from_json(json: &str) -> Result<Self> {
        let state: StreamState = serde_json::from_str(json)
            .map_err(|source| Error::Malformed { what: "stream state", reason: source.to_string() })?;
        if state.version != STATE_VERSION {
            return Err(Error::Malformed {
                what: "stream state",
                reason: format!("its version is {}, this build knows {STATE_VERSION}", state.version),
            });
        }
        if state.spec.as_ref().is_some_and(|spec| spec.stream_id() != state.stream_id) {
            return Err(Error::Malformed {
                what: "stream state",
                reason: "the specification in it does not have the digest that the state names".into(),
            });
        }
        Ok(state)
    }

    /// Checks that this state belongs to the stream of `spec`.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] with one line for each difference; [`Error::InvalidValue`] for an epoch that the stream does not have.
    pub fn check(&self, spec: &StreamSpec) -> Result<()> {
        spec.check_epoch(self.epoch)?;
        if self.stream_id == spec.stream_id() && self.position <= spec.num_rows {
            return Ok(());
        }
        let mut differences = match &self.spec {
            Some(mine) => mine.differences(spec, ("the state", "the stream")),
            None => self.brief_differences(spec),
        };
        if self.position > spec.num_rows {
            differences
                .push(format!("position {} lies beyond the {} rows of the stream", self.position, spec.num_rows));
        }
        if differences.is_empty() {
            let ids = (self.stream_id.short(), spec.stream_id().short());
            differences.push(format!("row set: the state has stream id {}, the stream has {}", ids.0, ids.1));
        }
        Err(Error::StateMismatch { differences })
    }

    /// Whether nothing that the state tells differs from `spec`, texts of queries and weights of a mixture excepted: only the
    /// specification of the state's stream tells whether these are other queries.
    pub fn may_continue(&self, spec: &StreamSpec) -> bool {
        let first = spec.sources.first().map(|source| &source.order);
        let same = (self.num_rows, self.seed, self.order.as_ref()) == (spec.num_rows, spec.seed, first);
        same && self.mixture.is_some() == spec.mixture.is_some()
            && self.snapshots.iter().eq(spec.snapshots().take(self.snapshots.len()))
    }

    fn brief_differences(&self, spec: &StreamSpec) -> Vec<String> {
        let mut lines = Vec::new();
        let first = spec.sources.first();
        if self.query != spec.query_digest() {
            let sql = first.map_or("", |source| &source.sql);
            lines.push(format!("query: the state has {:?}, the stream has {sql:?}", self.query_text));
        }
        let theirs: Vec<_> = spec.snapshots().take(self.snapshots.len()).cloned().collect();
        if self.snapshots != theirs {
            let (mine, theirs) = (list(&self.snapshots), list(&theirs));
            lines.push(format!("snapshots: the state has {mine}, the stream has {theirs}"));
        }
        if self.num_rows != spec.num_rows {
            lines.push(format!("rows: the state has {}, the stream has {}", self.num_rows, spec.num_rows));
        }
        let orders = (self.order.as_ref(), first.map(|source| &source.order));
        if orders.0 != orders.1 {
            let (mine, theirs) = (orders.0.map(ToString::to_string), orders.1.map(ToString::to_string));
            lines.push(format!(
                "order options: the state has {}, the stream has {}",
                mine.unwrap_or_default(),
                theirs.unwrap_or_default()
            ));
        }
        if self.mixture != spec.mixture.as_ref().map(mixture_digest) {
            let theirs = spec.mixture.as_ref().map_or("none".into(), ToString::to_string);
            lines.push(format!("mixture: the state has other weights than the stream, which has {theirs}"));
        }
        if self.seed != spec.seed {
            lines.push(format!("seed: the state has {}, the stream has {}", self.seed, spec.seed));
        }
        lines
    }
}

fn first_and_latest(log: &[BatchLogEntry]) -> Vec<BatchLogEntry> {
    let latest = &log[log.len().saturating_sub(LOG_ENTRIES_MAX - 1).max(1).min(log.len())..];
    log.first().into_iter().chain(latest).copied().collect()
}

fn mixture_digest(mixture: &MixtureSpec) -> Digest {
    Digest::of(&serde_json::to_vec(mixture).unwrap_or_default())
}
