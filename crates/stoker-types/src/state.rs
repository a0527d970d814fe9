//! The state of a stream, which checkpoints keep.

use serde::{Deserialize, Serialize};

use crate::differences::Differences;
use crate::spec::list;
use crate::{Cursor, Digest, EpochOptions, Error, MixtureSpec, OrderOptions, Result, Snapshot, StreamSpec};

/// The version of the state document.
pub const STATE_VERSION: u32 = 2;

/// The size below which a state stays, in bytes, unless it contains the specification.
const STATE_BYTES_MAX: usize = 1024;

/// The largest number of entries of the batch size log in a state.
const LOG_ENTRIES_MAX: usize = 8;

/// The largest number of snapshots in a state, where they are for people to read.
const SNAPSHOTS_MAX: usize = 4;

/// The largest number of characters of the query in a state, where they are for people to read.
const QUERY_CHARS_MAX: usize = 120;

/// An entry of the batch size log: from one step and position on, global batches had this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchLogEntry {
    /// The first step with this batch size.
    pub step: u64,
    /// The first position with this batch size.
    pub position: u64,
    /// The number of rows in each global batch; 0 for an entry in whose place further ones were dropped.
    pub global_batch: u64,
}

impl BatchLogEntry {
    /// Returns whether entries were dropped here, so that the batch sizes are unknown from this step to that of the next
    /// entry.
    pub fn is_gap(&self) -> bool {
        self.global_batch == 0
    }
}

/// The point that a stream has reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResumePoint {
    /// The epoch, from zero.
    pub epoch: u64,
    /// The next position of the epoch.
    pub position: u64,
    /// The next step, counted from the start of the training.
    pub step: u64,
}

/// The state of a stream. It is the same on all ranks, and it is JSON of less than 1 KiB unless it contains the
/// specification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamState {
    /// The version of the document, [`STATE_VERSION`].
    pub version: u32,
    /// The stream id, which is the digest of the specification.
    pub stream_id: Digest,
    /// The digest of the queries and their parameters.
    pub query: Digest,
    /// The first 120 characters of the first query at most, for people to read.
    pub query_text: String,
    /// The first pinned snapshots, at most four. The specification has all of them.
    pub snapshots: Vec<Snapshot>,
    /// The number of rows in an epoch.
    pub num_rows: u64,
    /// The seed of the order.
    pub seed: u64,
    /// The options of the order. If there are several queries, they are those of the first one.
    pub order: Option<OrderOptions>,
    /// The weights, packs or buckets that make up an epoch, with the first 48 bytes of names and the first four columns of
    /// packs. If there are several queries, all have the same.
    #[serde(default, skip_serializing_if = "EpochOptions::is_default")]
    pub epoch_options: EpochOptions,
    /// The digest of the mixture, or `None` for a stream with one source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixture: Option<Digest>,
    /// The epoch, from zero.
    pub epoch: u64,
    /// The next position.
    pub position: u64,
    /// The number of the next step: the global batches that were delivered since the start of the training, over all
    /// epochs.
    pub step: u64,
    /// The batch size log of the epoch [`StreamState::logged_epoch`]: its first entry, from which the steps of the
    /// epoch are counted, and its latest entries, at most eight together. Where entries between them were dropped, there
    /// is a gap ([`BatchLogEntry::is_gap`]).
    pub log: Vec<BatchLogEntry>,
    /// The whole specification. It is present only if the lake cannot store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<StreamSpec>,
}

impl StreamState {
    /// Makes the state of a stream at `place`. The state contains the specification if `embed_spec` is set, which is
    /// for specifications that could not be stored in the lake.
    pub fn new(spec: &StreamSpec, place: ResumePoint, log: &[BatchLogEntry], embed_spec: bool) -> Self {
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
            epoch_options: first.map(EpochOptions::of).unwrap_or_default().shortened(),
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

    /// Shortens the state until it fits: drops the entries between the first and the last one of the log, the oldest
    /// first, then snapshots, then the end of the query's text, and only then other entries.
    fn trim(&mut self) {
        while self.to_json().len() >= STATE_BYTES_MAX {
            let is_shorter = drop_inner_entry(&mut self.log)
                || self.snapshots.pop().is_some()
                || self.query_text.pop().is_some()
                || drop_entry_after_first(&mut self.log);
            if !is_shorter {
                return;
            }
        }
    }

    /// Returns the cursor of this state.
    pub fn cursor(&self) -> Cursor {
        Cursor { stream_id: self.stream_id, epoch: self.epoch, position: self.position }
    }

    /// Returns the epoch of the batch size log. It is the epoch of the state, or the epoch before it if the state was
    /// taken after that epoch's last batch.
    pub fn logged_epoch(&self) -> u64 {
        let is_behind = self.position == 0 && self.log.last().is_some_and(|last| last.step < self.step);
        if is_behind { self.epoch.saturating_sub(1) } else { self.epoch }
    }

    /// Returns the state as JSON text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a state from JSON text.
    ///
    /// # Errors
    /// [`Error::Malformed`] for text that is not a state, for a state of another version, and for one whose
    /// specification does not have the digest that the state names.
    pub fn from_json(json: &str) -> Result<Self> {
        let state: StreamState = serde_json::from_str(json)
            .map_err(|source| Error::Malformed { what: "stream state", reason: source.to_string() })?;
        if state.version != STATE_VERSION {
            return Err(Error::Malformed {
                what: "stream state",
                reason: format!("its version is {}; this build of Stoker reads {STATE_VERSION}", state.version),
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
    /// [`Error::StateMismatch`] with one line for each difference, and [`Error::InvalidValue`] for an epoch that the
    /// stream does not have.
    pub fn check(&self, spec: &StreamSpec) -> Result<()> {
        spec.check_epoch(self.epoch)?;
        if self.stream_id == spec.stream_id() && self.position <= spec.num_rows {
            return Ok(());
        }
        let mut differences = match &self.spec {
            Some(mine) => mine.differences(spec, ("the state", "the stream")),
            None => self.brief_differences(spec),
        };
        if differences.is_empty() && self.position > spec.num_rows {
            differences
                .push(format!("position {} lies beyond the {} rows of the stream", self.position, spec.num_rows));
        }
        if differences.is_empty() {
            let ids = (self.stream_id.short(), spec.stream_id().short());
            differences.push(format!("row set: the state has stream id {}, the stream has {}", ids.0, ids.1));
        }
        Err(Error::StateMismatch { differences })
    }

    /// Returns whether everything in the state agrees with `spec`, except for the texts of queries and the weights of a
    /// mixture: only the specification of the state's stream shows whether its queries are different ones. With
    /// `any_version`, an order of another version agrees.
    pub fn may_continue(&self, spec: &StreamSpec, any_version: bool) -> bool {
        let first = spec.sources.first().map(|source| &source.order);
        let orders = self.order.as_ref().zip(first);
        let is_other_version = any_version && orders.is_some_and(|(mine, theirs)| mine.is_other_version_of(theirs));
        let same_order = self.order.as_ref() == first || is_other_version;
        let same = (self.num_rows, self.seed) == (spec.num_rows, spec.seed);
        same && same_order
            && self.mixture.is_some() == spec.mixture.is_some()
            && self.snapshots.iter().eq(spec.snapshots().take(self.snapshots.len()))
    }

    fn brief_differences(&self, spec: &StreamSpec) -> Vec<String> {
        let mut found = Differences::new(("the state", "the stream"));
        let first = spec.sources.first();
        // Texts of queries may be equal as far as the state has them.
        if self.query != spec.query_digest() {
            let sql = first.map_or("", |source| &source.sql);
            found.add("query", format!("{:?}", self.query_text), format!("{sql:?}"));
        }
        let theirs: Vec<_> = spec.snapshots().take(self.snapshots.len()).cloned().collect();
        found.check("snapshots", list(&self.snapshots), list(&theirs));
        let theirs = first.map(EpochOptions::of).unwrap_or_default().shortened();
        self.epoch_options.compare(&theirs, &mut found);
        let orders = (self.order.as_ref(), first.map(|source| &source.order));
        // Numbers of packs are no numbers of rows, and the sizes of blocks follow from those of packs.
        if self.epoch_options == theirs {
            found.check("rows", self.num_rows, spec.num_rows);
            let text = |order: Option<&OrderOptions>| order.map(ToString::to_string).unwrap_or_default();
            found.check("order options", text(orders.0), text(orders.1));
        } else if let (Some(mine), Some(theirs)) = orders {
            mine.compare_asked(theirs, &mut found);
        }
        if self.mixture != spec.mixture.as_ref().map(mixture_digest) {
            let theirs = spec.mixture.as_ref().map_or("none".into(), MixtureSpec::to_string);
            let mine = if self.mixture.is_some() { "other weights" } else { "none" };
            found.add("mixture", mine, theirs);
        }
        found.check("seed", self.seed, spec.seed);
        found.into_lines()
    }
}

/// Returns a log of at most [`LOG_ENTRIES_MAX`] entries: the first one, a gap if there are more, and the latest ones.
fn first_and_latest(log: &[BatchLogEntry]) -> Vec<BatchLogEntry> {
    let mut entries = log.to_vec();
    let num_dropped = log.len().saturating_sub(LOG_ENTRIES_MAX);
    if num_dropped > 0 {
        entries[1].global_batch = 0;
        entries.drain(2..2 + num_dropped);
    }
    entries
}

/// Drops the oldest entry between the first and the last one, of which the oldest becomes the gap. Returns false if there
/// is only the gap between them, or nothing.
fn drop_inner_entry(log: &mut Vec<BatchLogEntry>) -> bool {
    match log.as_mut_slice() {
        [_, second, _, ..] if !second.is_gap() => second.global_batch = 0,
        [_, _, _, _, ..] => {
            log.remove(2);
        }
        _ => return false,
    }
    true
}

/// Drops the entry after the first one, which becomes the gap. Returns false if there is none.
fn drop_entry_after_first(log: &mut Vec<BatchLogEntry>) -> bool {
    let [first, _, ..] = log.as_mut_slice() else { return false };
    first.global_batch = 0;
    log.remove(1);
    true
}

fn mixture_digest(mixture: &MixtureSpec) -> Digest {
    Digest::of(&serde_json::to_vec(mixture).unwrap_or_default())
}
