//! Wraps the planner's rules so that planning stops when no client waits for the plan.

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
use stoker_functions::Activity;

use super::expanded::check_rewritten;

/// An analyzer rule that runs only while a client waits for the plan.
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

/// An optimizer rule that runs only while a client waits for the plan. Most optimizer rules run once for each operator.
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

/// A rule over physical plans that runs only while a client waits for the plan.
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

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::Arc;

    use datafusion::arrow::datatypes::Schema;
    use datafusion::common::Result as DfResult;
    use datafusion::common::config::ConfigOptions;
    use datafusion::execution::memory_pool::UnboundedMemoryPool;
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
    use datafusion::optimizer::eliminate_limit::EliminateLimit;
    use datafusion::optimizer::{AnalyzerRule, OptimizerContext, OptimizerRule};
    use datafusion::physical_optimizer::PhysicalOptimizerRule;
    use datafusion::physical_optimizer::combine_partial_final_agg::CombinePartialFinalAggregate;
    use datafusion::physical_plan::empty::EmptyExec;
    use stoker_functions::{Activity, Error};

    use super::{InterruptibleAnalyzer, InterruptibleOptimizer, InterruptiblePhysical};

    fn check<T: Debug>(activity: &Arc<Activity>, step: impl Fn() -> DfResult<T>) {
        let running = activity.begin();
        step().expect("somebody waits");
        drop(running);
        let error = step().expect_err("nobody waits");
        assert!(error.to_string().contains(&Error::Abandoned.to_string()), "{error}");
    }

    #[test]
    fn no_rule_begins_for_nobody() {
        let activity = Activity::new(Arc::new(UnboundedMemoryPool::default()), 100);
        let plan = LogicalPlanBuilder::empty(true).build().expect("a plan");
        let rule = InterruptibleAnalyzer { rule: Arc::new(TypeCoercion::new()), activity: activity.clone() };
        check(&activity, || rule.analyze(plan.clone(), &ConfigOptions::default()));
        let rule = InterruptibleOptimizer { rule: Arc::new(EliminateLimit::new()), activity: activity.clone() };
        check(&activity, || rule.rewrite(plan.clone(), &OptimizerContext::new()));
        let rule = Arc::new(CombinePartialFinalAggregate::new());
        let rule = InterruptiblePhysical { rule, activity: activity.clone() };
        let plan = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
        check(&activity, || rule.optimize(plan.clone(), &ConfigOptions::default()));
    }
}
