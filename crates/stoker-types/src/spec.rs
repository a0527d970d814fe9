//! The specification of a stream.

use serde::{Deserialize, Serialize};

use crate::differences::Differences;
use crate::pack_options::GROUP_PACKS_MAX;
use crate::{
    BucketOptions, Digest, DigestBuilder, EpochOptions, Error, MixtureSpec, OrderOptions, PackOptions, ParamValue,
    Result, Snapshot,
};

/// The version of the specification document.
pub const SPEC_VERSION: u32 = 2;

/// Everything that determines which rows a stream delivers, and in which order. Batching and topology are not part of
/// it.
///
/// The specification is stored in the lake as an immutable object at `_stoker/specs/<stream id>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// The version of the document, [`SPEC_VERSION`].
    pub version: u32,
    /// The queries whose rows the stream delivers: one, or all queries of the mixture.
    pub sources: Vec<SourceSpec>,
    /// How the rows of the sources are interleaved, or `None` for a stream with one source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixture: Option<MixtureSpec>,
    /// The number of rows in an epoch.
    pub num_rows: u64,
    /// The seed of the order.
    pub seed: u64,
}

/// One query of a stream at pinned snapshots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// The sample query as it was given.
    pub sql: String,
    /// Its positional parameters.
    pub params: Vec<ParamValue>,
    /// The pinned snapshot of every table that the query names, in order of first mention.
    pub snapshots: Vec<Snapshot>,
    /// The snapshots among these whose tables supply rows, in the order of row addresses.
    pub tables: Vec<Snapshot>,
    /// The digest of the row set.
    pub row_set: Digest,
    /// The number of rows in an epoch: those of the row set or, with weights, as many as the weights add up to.
    pub num_rows: u64,
    /// The options of the order.
    pub order: OrderOptions,
    /// How often each row comes in an epoch, or `None` if each comes once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<WeightSpec>,
    /// How rows are packed into sequences, or `None` if each row is delivered alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<PackSpec>,
    /// How rows of similar length are grouped into buckets, or `None` if each row is delivered alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketSpec>,
}

/// How the rows of a query, which are documents, are packed. The rows of an epoch are then packs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackSpec {
    /// The version of the definition of packs, [`PACK_VERSION`].
    pub version: u32,
    /// What was asked for.
    pub options: PackOptions,
    /// The number of packs that are filled together from neighbouring documents.
    pub group_packs: u64,
    /// The number of rows in the row set.
    pub num_rows: u64,
    /// The digest of the numbers of tokens, in the order of the rows.
    pub digest: Digest,
}

/// The version of the definition of packs (`crates/stoker-order/ORDER.md`).
pub const PACK_VERSION: u32 = 1;

/// How the rows of a query are grouped into buckets. The rows of an epoch are then buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketSpec {
    /// The version of the definition of buckets, [`BUCKET_VERSION`].
    pub version: u32,
    /// What was asked for.
    pub options: BucketOptions,
    /// The number of rows in the row set.
    pub num_rows: u64,
    /// The digest of the lengths, in the order of the rows.
    pub digest: Digest,
}

/// The version of the definition of buckets (`crates/stoker-order/ORDER.md`).
pub const BUCKET_VERSION: u32 = 1;

/// The weights of the rows of a query: how often each of them comes in an epoch, on average.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightSpec {
    /// The version of the definition of weighted epochs, [`WEIGHT_VERSION`].
    pub version: u32,
    /// The column of the query that has the weights.
    pub column: String,
    /// The number of rows in the row set.
    pub num_rows: u64,
    /// The digest of the weights, in the order of the rows.
    pub digest: Digest,
}

/// The version of the definition of weighted epochs (`crates/stoker-order/ORDER.md`).
pub const WEIGHT_VERSION: u32 = 1;

impl SourceSpec {
    /// Returns the number of rows in the row set.
    pub fn row_set_rows(&self) -> u64 {
        let packed = self.pack.as_ref().map(|pack| pack.num_rows);
        let grouped = packed.or(self.bucket.as_ref().map(|bucket| bucket.num_rows));
        self.weight.as_ref().map(|weight| weight.num_rows).or(grouped).unwrap_or(self.num_rows)
    }
}

impl StreamSpec {
    /// Returns the stream id, which is the digest of the specification.
    pub fn stream_id(&self) -> Digest {
        DigestBuilder::new("stoker.stream.v2").part(&self.to_json()).finish()
    }

    /// Returns whether the positions of the stream are those of buckets, each of which has several rows.
    pub fn has_buckets(&self) -> bool {
        self.sources.iter().any(|source| source.bucket.is_some())
    }

    /// Returns the number of tokens in a pack, if the rows are packs.
    pub fn pack_length(&self) -> Option<u64> {
        self.sources.iter().find_map(|source| source.pack.as_ref()).map(|pack| pack.options.length)
    }

    /// Returns the largest mean number of rows at a position over the queries: 1, or that of their buckets.
    pub fn rows_per_position(&self) -> u64 {
        let mean = |source: &SourceSpec| match &source.bucket {
            Some(bucket) => bucket.num_rows.div_ceil(source.num_rows.max(1)),
            None => 1,
        };
        self.sources.iter().map(mean).max().unwrap_or(1).max(1)
    }

    /// Returns the digest of the texts and parameters of all queries.
    pub fn query_digest(&self) -> Digest {
        let mut digest = DigestBuilder::new("stoker.query.v1");
        for source in &self.sources {
            digest.update(source.sql.as_bytes());
            digest.update(&serde_json::to_vec(&source.params).unwrap_or_default());
        }
        digest.finish()
    }

    /// Returns the pinned snapshots of all queries, in the order of the queries.
    pub fn snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        self.sources.iter().flat_map(|source| &source.snapshots)
    }

    /// Returns the tables that supply rows, over all queries, in the order of row addresses.
    pub fn tables(&self) -> impl Iterator<Item = &Snapshot> {
        self.sources.iter().flat_map(|source| &source.tables)
    }

    /// Checks that the stream has this epoch. The draws of a mixture are counted over all epochs in 64 bits, which
    /// limits its epochs. A stream of one query has no last epoch.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for an epoch of a mixture whose draws exceed 2^64.
    pub fn check_epoch(&self, epoch: u64) -> Result<()> {
        let end = epoch.checked_add(1).and_then(|epochs| epochs.checked_mul(self.num_rows));
        if self.mixture.is_none() || end.is_some() {
            return Ok(());
        }
        let num_epochs = u64::MAX / self.num_rows.max(1);
        let rows = self.num_rows;
        let reason = format!("{epoch} is beyond the {num_epochs} epochs of a mixture with {rows} rows per epoch");
        Err(Error::InvalidValue { what: "epoch", reason })
    }

    /// Returns whether one of the two streams results from the other by changing the weights of the mixture at some
    /// later draw.
    pub fn continues(&self, other: &StreamSpec) -> bool {
        let same = (&self.sources, self.num_rows, self.seed) == (&other.sources, other.num_rows, other.seed);
        match (&self.mixture, &other.mixture) {
            (Some(mine), Some(theirs)) => same && mine.continues(theirs),
            (None, None) => same,
            _ => false,
        }
    }

    /// Like [`StreamSpec::continues`], but two texts count as equal where `is_same_query` says that they are the same
    /// query. With `any_version`, so do orders of different versions.
    pub fn continues_query(
        &self,
        other: &StreamSpec,
        any_version: bool,
        is_same_query: impl Fn(&str, &str) -> bool,
    ) -> bool {
        let mut renamed = other.clone();
        for (mine, theirs) in self.sources.iter().zip(&mut renamed.sources) {
            if any_version && mine.order.is_other_version_of(&theirs.order) {
                theirs.order.clone_from(&mine.order);
            }
            if is_same_query(&mine.sql, &theirs.sql) {
                theirs.sql.clone_from(&mine.sql);
            }
        }
        self.continues(&renamed)
    }

    /// Returns the specification as canonical JSON: fields in order of declaration, no white space.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a specification.
    ///
    /// # Errors
    /// [`Error::Malformed`] for JSON that is not a valid specification, or a specification of another version.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        let spec: StreamSpec = serde_json::from_slice(json)
            .map_err(|source| Error::Malformed { what: "stream specification", reason: source.to_string() })?;
        if spec.version != SPEC_VERSION {
            return Err(Error::Malformed {
                what: "stream specification",
                reason: format!("its version is {}; this build of Stoker reads {SPEC_VERSION}", spec.version),
            });
        }
        spec.validate()?;
        Ok(spec)
    }

    fn validate(&self) -> Result<()> {
        let malformed =
            |reason: &str| Err(Error::Malformed { what: "stream specification", reason: reason.to_string() });
        for source in &self.sources {
            source.order.validate()?;
            if let Some(weight) = source.weight.as_ref().filter(|weight| weight.version != WEIGHT_VERSION) {
                let version = weight.version;
                return malformed(&format!(
                    "its weights have version {version}; this build of Stoker reads {WEIGHT_VERSION}"
                ));
            }
            if let Some(pack) = &source.pack {
                if pack.version != PACK_VERSION {
                    let version = pack.version;
                    let reason = format!("its packs have version {version}; this build of Stoker reads {PACK_VERSION}");
                    return malformed(&reason);
                }
                pack.options.validate()?;
                if pack.group_packs == 0 || pack.group_packs > GROUP_PACKS_MAX {
                    return malformed("its groups of packs have no packs, or more than 256");
                }
            }
            if let Some(bucket) = &source.bucket {
                if bucket.version != BUCKET_VERSION {
                    let version = bucket.version;
                    let reason =
                        format!("its buckets have version {version}; this build of Stoker reads {BUCKET_VERSION}");
                    return malformed(&reason);
                }
                bucket.options.validate()?;
            }
        }
        let is_bucketed = |source: &SourceSpec| source.bucket.is_some();
        if self.has_buckets() && !self.sources.iter().all(is_bucketed) {
            return malformed("some of its queries have buckets, and others have none");
        }
        match (&self.mixture, self.sources.as_slice()) {
            (_, []) => malformed("it has no query"),
            (None, [source]) if source.num_rows == self.num_rows => Ok(()),
            (None, [_]) => malformed("the numbers of rows of its epoch and of its query differ"),
            (None, _) => malformed("it has several queries and no mixture"),
            (Some(_), sources) if sources.iter().any(|source| source.num_rows == 0) => {
                malformed("a query of its mixture selects no rows")
            }
            (Some(mixture), sources) => mixture.validate(sources.len()),
        }
    }

    /// Returns one line for each field in which `self` and `other` differ. `names` are the names of the two in these
    /// lines, for example `the state` and `the stream`.
    pub fn differences(&self, other: &StreamSpec, names: (&str, &str)) -> Vec<String> {
        let mut found = Differences::new(names);
        let mut counts_same = true;
        found.check("queries", self.sources.len(), other.sources.len());
        for (mine, theirs) in self.sources.iter().zip(&other.sources) {
            found.check("query", format!("{:?}", mine.sql), format!("{:?}", theirs.sql));
            found.check("parameters", format!("{:?}", mine.params), format!("{:?}", theirs.params));
            found.check("snapshots", list(&mine.snapshots), list(&theirs.snapshots));
            found.check("row set", mine.row_set.short(), theirs.row_set.short());
            let (my_options, their_options) = (EpochOptions::of(mine), EpochOptions::of(theirs));
            my_options.compare(&their_options, &mut found);
            // Numbers of packs are no numbers of rows, and the sizes of blocks follow from those of packs.
            if my_options == their_options {
                found.check("rows", mine.num_rows, theirs.num_rows);
                found.check("order options", &mine.order, &theirs.order);
            } else {
                counts_same = false;
                mine.order.compare_asked(&theirs.order, &mut found);
            }
        }
        let weights = |spec: &StreamSpec| spec.mixture.as_ref().map_or("none".into(), MixtureSpec::to_string);
        found.check("mixture", weights(self), weights(other));
        if counts_same {
            found.check("rows of an epoch", self.num_rows, other.num_rows);
        }
        found.check("seed", self.seed, other.seed);
        found.into_lines()
    }
}

/// Returns the snapshots as text, separated by commas.
pub(crate) fn list(snapshots: &[Snapshot]) -> String {
    snapshots.iter().map(Snapshot::to_string).collect::<Vec<_>>().join(", ")
}
