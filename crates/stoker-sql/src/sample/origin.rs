//! What is known about a column while a plan is lifted.

/// Where a column's values come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The unchanged column of a scan whose row address is carried; several after a UNION.
    Bare(Vec<(usize, String)>),
    /// Something else; in plain words, to follow the column's name: `goes through an aggregate`.
    Other(String),
}

impl Origin {
    pub(super) fn other(reason: &str) -> Self {
        Origin::Other(reason.to_string())
    }

    /// The origin after an operator that drops row addresses.
    pub(super) fn without_address(self, reason: &str) -> Self {
        match self {
            Origin::Bare(_) => Origin::other(reason),
            other => other,
        }
    }

    /// The origin of a column of a UNION.
    pub(super) fn union(branches: impl IntoIterator<Item = Origin>) -> Self {
        let mut all = Vec::new();
        for branch in branches {
            match branch {
                Origin::Bare(candidates) => all.extend(candidates),
                other => return other,
            }
        }
        Origin::Bare(all)
    }
}
