//! Predicates on the names of tables, which exclude tables before these are opened.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result as DfResult};
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_plan::PhysicalExpr;
use datafusion::prelude::Expr;
use stoker_functions::needs_only;
use stoker_types::TableName;

use crate::LakeView;
use crate::of_lake::tables;

/// The columns that the listing of the lake tells.
const LISTED: [&str; 3] = ["table_catalog", "table_schema", "table_name"];

/// Selects tables by what the listing of the lake tells of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameFilter(Option<Arc<dyn PhysicalExpr>>);

impl NameFilter {
    /// Whether a predicate needs nothing but the listing.
    pub fn understands(predicate: &Expr) -> bool {
        needs_only(predicate, |column| LISTED.contains(&column))
    }

    pub fn try_new(state: &dyn Session, predicates: &[Expr]) -> DfResult<Self> {
        let Some(predicate) = conjunction(predicates.to_vec()) else { return Ok(Self::default()) };
        let listed = DFSchema::try_from(LakeView::Tables.schema())?;
        Ok(Self(Some(state.create_physical_expr(predicate, &listed)?)))
    }

    /// Returns the tables that the predicates keep.
    pub fn select(&self, names: Vec<TableName>) -> DfResult<Vec<TableName>> {
        let Some(predicate) = &self.0 else { return Ok(names) };
        let listed = tables(&names, &[])?;
        let kept = predicate.evaluate(&listed)?.into_array(listed.num_rows())?;
        let kept = kept.as_boolean().iter().map(|kept| kept == Some(true));
        Ok(names.into_iter().zip(kept).filter_map(|(name, kept)| kept.then_some(name)).collect())
    }
}
