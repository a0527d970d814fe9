//! The specification of a stream.

use serde::{Deserialize, Serialize};

use crate::{Digest, DigestBuilder, Error, OrderOptions, ParamValue, Result, Snapshot};

/// The version of the specification document.
pub const SPEC_VERSION: u32 = 1;

/// Everything that determines which rows a stream delivers, and in which order. Batching and topology are not part of it.
///
/// Stored as an immutable object in the lake at `_stoker/specs/<stream id>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// [`SPEC_VERSION`].
    pub version: u32,
    /// The sample query as it was given.
    pub sql: String,
    /// Its positional parameters.
    pub params: Vec<ParamValue>,
    /// The pinned snapshot of every table that the query names, in order of first mention.
    pub snapshots: Vec<Snapshot>,
    /// The digest of the row set.
    pub row_set: Digest,
    /// Rows in the row set.
    pub num_rows: u64,
    /// The seed of the order.
    pub seed: u64,
    /// The options of the order.
    pub order: OrderOptions,
}

impl StreamSpec {
    /// The digest of the specification: the stream id.
    pub fn stream_id(&self) -> Digest {
        DigestBuilder::new("stoker.stream.v1").part(&self.to_json()).finish()
    }

    /// The digest of query text and parameters.
    pub fn query_digest(&self) -> Digest {
        let params = serde_json::to_vec(&self.params).unwrap_or_default();
        DigestBuilder::new("stoker.query.v1").part(self.sql.as_bytes()).part(&params).finish()
    }

    /// The specification as canonical JSON: fields in order of declaration, no white space.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a specification.
    ///
    /// # Errors
    /// [`Error::Malformed`] for JSON that is not a specification, or one of another version.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        let spec: StreamSpec = serde_json::from_slice(json)
            .map_err(|source| Error::Malformed { what: "stream specification", reason: source.to_string() })?;
        if spec.version != SPEC_VERSION {
            return Err(Error::Malformed {
                what: "stream specification",
                reason: format!("its version is {}, this build knows {SPEC_VERSION}", spec.version),
            });
        }
        spec.order.validate()?;
        Ok(spec)
    }

    /// One line for each field in which `self` (the state's) and `other` (the stream's) differ.
    pub fn differences(&self, other: &StreamSpec) -> Vec<String> {
        let mut lines = Vec::new();
        let mut check = |name: &str, mine: String, theirs: String| {
            if mine != theirs {
                lines.push(format!("{name}: the state has {mine}, the stream has {theirs}"));
            }
        };
        let list = |snapshots: &[Snapshot]| snapshots.iter().map(|s| s.to_string()).collect::<Vec<_>>().join(", ");
        check("query", format!("{:?}", self.sql), format!("{:?}", other.sql));
        check("parameters", format!("{:?}", self.params), format!("{:?}", other.params));
        check("snapshots", list(&self.snapshots), list(&other.snapshots));
        check("rows", self.num_rows.to_string(), other.num_rows.to_string());
        check("row set", self.row_set.short(), other.row_set.short());
        check("seed", self.seed.to_string(), other.seed.to_string());
        check("order options", self.order.to_string(), other.order.to_string());
        lines
    }
}
