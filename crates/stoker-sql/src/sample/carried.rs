//! The hidden columns that a lifted plan passes to its output.

use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::Expr;

use crate::error::INTERNAL_PREFIX;
use crate::provider::CarriedNames;

/// The content of a hidden column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// The distance of a search for vectors, which sorts before addresses.
    Distance,
    /// The rank of a row in another search, which sorts before addresses.
    Rank,
    /// The row address of a scan.
    RowAddr,
}

/// A hidden column of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Carried {
    pub(super) role: Role,
    pub(super) source: usize,
}

/// Returns the names of the hidden columns of a scan.
pub(super) fn names(source: usize) -> CarriedNames {
    CarriedNames {
        row_addr: Carried { role: Role::RowAddr, source }.name(),
        distance: Carried { role: Role::Distance, source }.name(),
        rank: Carried { role: Role::Rank, source }.name(),
    }
}

impl Carried {
    pub(super) fn name(self) -> String {
        match self.role {
            Role::RowAddr => format!("{INTERNAL_PREFIX}_row_addr_{}", self.source),
            Role::Distance => format!("{INTERNAL_PREFIX}_distance_{}", self.source),
            Role::Rank => format!("{INTERNAL_PREFIX}_rank_{}", self.source),
        }
    }

    /// Returns a NULL of the column's type.
    pub(super) fn null(self) -> Expr {
        let null = match self.role {
            Role::RowAddr => ScalarValue::UInt64(None),
            Role::Distance => ScalarValue::Float32(None),
            Role::Rank => ScalarValue::Int64(None),
        };
        Expr::Literal(null, None).alias(self.name())
    }

    /// Returns the hidden column in a plan's output, or `None` if the plan does not output it.
    pub(super) fn column(self, plan: &LogicalPlan) -> Option<Expr> {
        let name = self.name();
        let (qualifier, field) = plan.schema().iter().find(|(_, field)| *field.name() == name)?;
        Some(Expr::Column(Column::from((qualifier, field))))
    }
}

/// Returns the columns of a plan that users see, in order.
pub(super) fn visible(plan: &LogicalPlan) -> Vec<Column> {
    let visible = plan.schema().iter().filter(|(_, field)| !is_carried(field.name()));
    visible.map(Column::from).collect()
}

fn is_carried(name: &str) -> bool {
    let roles = ["_row_addr_", "_distance_", "_rank_"];
    name.strip_prefix(INTERNAL_PREFIX).is_some_and(|rest| roles.iter().any(|role| rest.starts_with(role)))
}
