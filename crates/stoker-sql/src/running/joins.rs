//! Makes joins yield to other queries, and stop when no client waits for them.
//!
//! In DataFusion 54 a join may compare all its rows in one step. This step does not end when its task is cancelled, and
//! blocks the other tasks of its thread.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use stoker_functions::{Activity, beside_others};

/// Wraps each join of a plan so that it yields, and stops when no client waits. This rule runs after all of
/// DataFusion's rules.
#[derive(Debug)]
pub(crate) struct InterruptibleJoins {
    pub(crate) activity: Arc<Activity>,
}

impl PhysicalOptimizerRule for InterruptibleJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> DfResult<Arc<dyn ExecutionPlan>> {
        let interruptible = plan.transform_up(|node| {
            let any: &dyn Any = node.as_ref();
            let join: Arc<dyn ExecutionPlan> = if let Some(join) = any.downcast_ref::<NestedLoopJoinExec>() {
                let filter = join.filter().map(|filter| self.interruptible(filter));
                Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(filter).build()?)
            } else if let Some(join) = any.downcast_ref::<HashJoinExec>() {
                let filter = join.filter().map(|filter| self.interruptible(filter));
                HashJoinExecBuilder::from(join).with_filter(filter).build_exec()?
            } else if any.is::<CrossJoinExec>() || any.is::<SortMergeJoinExec>() {
                node
            } else {
                return Ok(Transformed::no(node));
            };
            Ok(Transformed::yes(Arc::new(CooperativeExec::new(join)) as _))
        })?;
        Ok(interruptible.data)
    }

    fn name(&self) -> &str {
        "interruptible_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl InterruptibleJoins {
    fn interruptible(&self, filter: &JoinFilter) -> JoinFilter {
        let condition = Arc::new(Condition { inner: filter.expression().clone(), activity: self.activity.clone() });
        JoinFilter::new(condition, filter.column_indices().to_vec(), filter.schema().clone())
    }
}

/// The condition of a join, which fails when no client waits for the query.
#[derive(Debug)]
struct Condition {
    inner: Arc<dyn PhysicalExpr>,
    activity: Arc<Activity>,
}

impl PhysicalExpr for Condition {
    fn data_type(&self, schema: &Schema) -> DfResult<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> DfResult<bool> {
        self.inner.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> DfResult<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> DfResult<ColumnarValue> {
        self.activity.check()?;
        beside_others(|| self.inner.evaluate(batch))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> DfResult<Arc<dyn PhysicalExpr>> {
        match <[_; 1]>::try_from(children) {
            Ok([inner]) => Ok(Arc::new(Self { inner, activity: self.activity.clone() })),
            Err(_) => internal_err!("a condition has one child"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Condition {}

impl Hash for Condition {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}
