//! The origins of columns while a plan is lifted.

/// The source of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An unchanged column of a scan whose row address is carried. After a UNION there are several.
    Bare(Vec<(usize, String)>),
    /// Another source, in plain words that follow the column's name, such as `goes through an aggregate`.
    Other(String),
}

impl Origin {
    pub(super) fn other(reason: &str) -> Self {
        Origin::Other(reason.to_string())
    }

    /// Returns the origin after an operator that drops row addresses.
    pub(super) fn without_address(self, reason: &str) -> Self {
        match self {
            Origin::Bare(_) => Origin::other(reason),
            other => other,
        }
    }

    /// Returns the origin of a column of a UNION.
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
