//! How a SELECT is planned and answered, beside its text and its parameters.

use crate::Compression;

/// The options with which a SELECT is planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryOptions {
    /// How the rows of `ORDER BY` a distance with `LIMIT` are found. Default: exactly.
    pub order_by_distance: OrderByDistance,
}

/// How the rows that come first by the distance to a vector are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderByDistance {
    /// By comparing all rows.
    #[default]
    Exact,
    /// By an index of the column, if there is one: a row may be missing, while another one is there in its place.
    /// Distances are exact.
    Index,
}

/// The options with which a lake answers a SELECT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SqlOptions {
    /// The options with which it is planned.
    pub query: QueryOptions,
    /// The codec that compresses rows on their way from a server. A lake in this process ignores it. Default: none.
    pub compression: Option<Compression>,
}

impl QueryOptions {
    /// The options of messages and command lines, where a flag tells whether approximate results are allowed.
    pub fn approximate(is_approximate: bool) -> Self {
        let order_by_distance = if is_approximate { OrderByDistance::Index } else { OrderByDistance::Exact };
        Self { order_by_distance }
    }

    /// Tells whether approximate results are allowed.
    pub fn is_approximate(self) -> bool {
        self.order_by_distance == OrderByDistance::Index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_exact_unless_asked_otherwise() {
        assert!(!QueryOptions::default().is_approximate());
        for is_approximate in [true, false] {
            assert_eq!(QueryOptions::approximate(is_approximate).is_approximate(), is_approximate);
        }
    }
}
