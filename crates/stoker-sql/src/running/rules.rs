//! The planner's rules, which stop when nobody waits for the plan.

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizerContext;
use datafusion::physical_plan::ExecutionPlan;

use super::Activity;
use super::expanded::check_rewritten;

/// A rule of the analyzer that is not begun for nobody.
#[derive(Debug)]
pub(crate) struct InterruptibleAnalyzer {
    pub(crate) rule: Arc<dyn AnalyzerRule + Send + Sync>,
    pub(crate) activity: Arc<Activity>,
}

impl AnalyzerRule for InterruptibleAnalyzer {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> DfResult<LogicalPlan> {
        self.activity.check()?;
        self.rule.analyze(plan, config)
    }
}

/// A rule of the optimizer that is not begun for nobody; most are begun once for each operator.
#[derive(Debug)]
pub(crate) struct InterruptibleOptimizer {
    pub(crate) rule: Arc<dyn OptimizerRule + Send + Sync>,
    pub(crate) activity: Arc<Activity>,
}

impl OptimizerRule for InterruptibleOptimizer {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> DfResult<Transformed<LogicalPlan>> {
        self.activity.check()?;
        let rewritten = self.rule.rewrite(plan, config)?;
        if rewritten.transformed {
            check_rewritten(&rewritten.data, &self.activity)?;
        }
        Ok(rewritten)
    }
}

/// A rule over physical plans that is not begun for nobody.
#[derive(Debug)]
pub(crate) struct InterruptiblePhysical {
    pub(crate) rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    pub(crate) activity: Arc<Activity>,
}

impl PhysicalOptimizerRule for InterruptiblePhysical {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> DfResult<Arc<dyn ExecutionPlan>> {
        self.activity.check()?;
        self.rule.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        self.activity.check()?;
        self.rule.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}
