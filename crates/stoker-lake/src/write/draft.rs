//! Fragments that are written and not yet committed.

use lance_table::format::Fragment;
use serde::{Deserialize, Serialize};

/// A fragment whose files are written and which no version names yet. Serialises to JSON, for journals of long ingests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FragmentDraft {
    fragment: Fragment,
    bytes: u64,
}

impl FragmentDraft {
    pub(crate) fn new(fragment: Fragment, bytes: u64) -> Self {
        Self { fragment, bytes }
    }

    /// Rows in it.
    pub fn num_rows(&self) -> u64 {
        self.fragment.physical_rows.unwrap_or(0) as u64
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The names of its data files.
    pub fn files(&self) -> Vec<String> {
        self.fragment.files.iter().map(|file| file.path.clone()).collect()
    }

    pub(crate) fn into_fragment(self) -> Fragment {
        self.fragment
    }
}
