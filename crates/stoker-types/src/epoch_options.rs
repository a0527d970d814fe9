//! The options that say which rows an epoch has: weights, packs and buckets.

use serde::{Deserialize, Serialize};

use crate::differences::Differences;
use crate::{BucketOptions, PackOptions, SourceSpec};

/// The largest number of columns of packs in a state.
const COLUMNS_MAX: usize = 4;

/// The bytes of a column's name in a state, as JSON.
const NAME_BYTES_MAX: usize = 48;

/// The options, as the lines about them begin.
const WEIGHT: &str = "weight";
const PACK: &str = "pack";
const BUCKET: &str = "bucket";

/// The options of a query that say which rows an epoch has. All are `None` if it has each row of the query once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EpochOptions {
    /// The column that has the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// How rows are packed into sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<PackOptions>,
    /// How rows of similar length are grouped into buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketOptions>,
}

impl EpochOptions {
    /// Returns those of a query of a stream.
    pub fn of(source: &SourceSpec) -> Self {
        Self {
            weight: source.weight.as_ref().map(|weight| weight.column.clone()),
            pack: source.pack.as_ref().map(|pack| pack.options.clone()),
            bucket: source.bucket.as_ref().map(|bucket| bucket.options.clone()),
        }
    }

    /// Returns whether an epoch has each row of the query once.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the options with the beginnings of names, and with the first columns of packs: at most 600 bytes of JSON,
    /// for states. The beginnings of equal options are equal.
    #[must_use]
    pub(crate) fn shortened(mut self) -> Self {
        self.weight = self.weight.map(beginning);
        if let Some(pack) = &mut self.pack {
            pack.columns.truncate(COLUMNS_MAX);
            pack.columns = std::mem::take(&mut pack.columns).into_iter().map(beginning).collect();
            pack.lengths = pack.lengths.take().map(beginning);
        }
        if let Some(bucket) = &mut self.bucket {
            bucket.column = beginning(std::mem::take(&mut bucket.column));
        }
        self
    }

    /// Adds a line for each option in which `self` and `other` differ.
    pub(crate) fn compare(&self, other: &Self, found: &mut Differences<'_>) {
        found.check(WEIGHT, shown(self.weight.as_ref()), shown(other.weight.as_ref()));
        match (&self.pack, &other.pack) {
            (Some(mine), Some(theirs)) => {
                found.check("pack columns", mine.columns.join(", "), theirs.columns.join(", "));
                found.check("pack length", mine.length, theirs.length);
                found.check("pack lengths", shown(mine.lengths.as_ref()), shown(theirs.lengths.as_ref()));
                found.check("pack pad", mine.pad, theirs.pad);
            }
            (mine, theirs) => found.check(PACK, shown(mine.as_ref()), shown(theirs.as_ref())),
        }
        match (&self.bucket, &other.bucket) {
            (Some(mine), Some(theirs)) => {
                found.check("bucket column", &mine.column, &theirs.column);
                found.check("bucket max_tokens", mine.max_tokens, theirs.max_tokens);
                found.check("bucket max_rows", shown(mine.max_rows.as_ref()), shown(theirs.max_rows.as_ref()));
                found.check("bucket multiple", mine.multiple, theirs.multiple);
                found.check("bucket longer", mine.longer.as_str(), theirs.longer.as_str());
            }
            (mine, theirs) => found.check(BUCKET, shown(mine.as_ref()), shown(theirs.as_ref())),
        }
    }

    /// Returns whether a line is one of [`EpochOptions::compare`].
    pub(crate) fn is_line(line: &str) -> bool {
        let field = line.split(':').next().unwrap_or_default();
        let option = field.split(' ').next().unwrap_or_default();
        [WEIGHT, PACK, BUCKET].contains(&option)
    }
}

/// Returns an option as text.
fn shown(option: Option<&impl ToString>) -> String {
    option.map_or_else(|| "none".into(), ToString::to_string)
}

/// Returns the beginning of a name.
fn beginning(name: String) -> String {
    let mut name: String = name.chars().take(NAME_BYTES_MAX).collect();
    while serde_json::to_string(&name).is_ok_and(|json| json.len() > NAME_BYTES_MAX) {
        name.pop();
    }
    name
}
