//! `EXPLAIN [ANALYZE] FORMAT tree | json`: shows the physical plan of a query, after running it for `ANALYZE`.
//!
//! DataFusion shows plans as text. It has no other format for `ANALYZE`, and its JSON is that of the logical plan.

use std::fmt;
use std::sync::Arc;

use arrow_array::{RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use datafusion::common::{Result as DfResult, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{Metric, MetricValue, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties as _, Partitioning, PlanProperties,
    displayable,
};
use futures::{TryStreamExt as _, stream};
use serde_json::{Map, Value, json};

use crate::guard::{Explain, PlanFormat};

/// The most levels of a plan that is shown as JSON. Each is two levels there, of which many readers allow 128.
const JSON_LEVELS_MAX: usize = 60;

/// The columns of an answer: `plan_type` and `plan`.
pub(crate) fn explain_schema() -> SchemaRef {
    LogicalPlan::explain_schema()
}

/// Shows a plan instead of its rows.
#[derive(Debug)]
pub(crate) struct ExplainedExec {
    input: Arc<dyn ExecutionPlan>,
    explain: Explain,
    properties: Arc<PlanProperties>,
}

impl ExplainedExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, explain: Explain) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(explain_schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self { input, explain, properties: Arc::new(properties) }
    }
}

impl DisplayAs for ExplainedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ExplainedExec: analyze={}, format={:?}", self.explain.analyze, self.explain.format)
    }
}

impl ExecutionPlan for ExplainedExec {
    fn name(&self) -> &str {
        "ExplainedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(input, self.explain))),
            _ => internal_err!("ExplainedExec has one child"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("ExplainedExec has one partition");
        }
        let (input, explain) = (self.input.clone(), self.explain);
        let answer = async move {
            let mut num_rows = None;
            if explain.analyze {
                let rows = match input.output_partitioning().partition_count() {
                    1 => input.execute(0, context)?,
                    _ => CoalescePartitionsExec::new(input.clone()).execute(0, context)?,
                };
                let count = rows.try_fold(0, async |count, batch| Ok(count + batch.num_rows()));
                num_rows = Some(count.await?);
            }
            let plan_type = if explain.analyze { "Plan with Metrics" } else { "physical_plan" };
            let plan = match explain.format {
                PlanFormat::Json => as_json(&input, num_rows)?.to_string(),
                PlanFormat::Tree | PlanFormat::Text => as_tree(&input, num_rows),
            };
            let columns: [StringArray; 2] = [vec![plan_type].into(), vec![plan].into()];
            Ok(RecordBatch::try_new(explain_schema(), columns.map(|column| Arc::new(column) as _).to_vec())?)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(explain_schema(), stream::once(answer))))
    }
}

/// The operator and its details, as DataFusion displays them on one line.
fn described(plan: &Arc<dyn ExecutionPlan>) -> (String, String) {
    let line = displayable(plan.as_ref()).one_line().to_string();
    let line = line.trim_end();
    match line.split_once(": ") {
        Some((operator, details)) => (operator.to_string(), details.to_string()),
        None => (line.to_string(), String::new()),
    }
}

/// What an operator measured while it ran.
fn measured(plan: &Arc<dyn ExecutionPlan>) -> MetricsSet {
    plan.metrics().unwrap_or_default().aggregate_by_name().sorted_for_display().timestamps_removed()
}

/// The name and the value of a measurement. Times are in nanoseconds; what is not a number is text.
fn measurement(value: &MetricValue) -> (String, Value) {
    let name = value.name();
    match value {
        MetricValue::ElapsedCompute(_) | MetricValue::Time { .. } => (format!("{name}_nanos"), value.as_usize().into()),
        MetricValue::Ratio { .. } | MetricValue::PruningMetrics { .. } | MetricValue::Custom { .. } => {
            (name.into(), value.to_string().into())
        }
        value => (name.into(), value.as_usize().into()),
    }
}

/// Shows a plan as JSON: `operator`, `details`, `metrics` once it ran, and `inputs`.
fn as_json(plan: &Arc<dyn ExecutionPlan>, num_rows: Option<usize>) -> DfResult<Value> {
    if levels(plan) > JSON_LEVELS_MAX {
        return exec_err!(
            "the plan has more than {JSON_LEVELS_MAX} levels, which JSON readers refuse: use FORMAT TREE"
        );
    }
    Ok(match num_rows {
        None => json!({ "plan": node(plan, false) }),
        Some(num_rows) => json!({ "plan": node(plan, true), "num_rows": num_rows }),
    })
}

fn levels(plan: &Arc<dyn ExecutionPlan>) -> usize {
    1 + plan.children().into_iter().map(levels).max().unwrap_or(0)
}

fn node(plan: &Arc<dyn ExecutionPlan>, has_run: bool) -> Value {
    let (operator, details) = described(plan);
    let mut shown = Map::new();
    shown.insert("operator".into(), operator.into());
    shown.insert("details".into(), details.into());
    if has_run {
        let metrics = measured(plan).iter().map(|metric| measurement(metric.value())).collect();
        shown.insert("metrics".into(), Value::Object(metrics));
    }
    let inputs = plan.children().into_iter().map(|child| node(child, has_run)).collect();
    shown.insert("inputs".into(), Value::Array(inputs));
    Value::Object(shown)
}

/// Shows a plan as lines, each operator below the one that reads it.
fn as_tree(plan: &Arc<dyn ExecutionPlan>, num_rows: Option<usize>) -> String {
    let mut lines = String::new();
    branch(plan, num_rows.is_some(), "", "", &mut lines);
    if let Some(num_rows) = num_rows {
        lines.push_str(&format!("rows: {num_rows}\n"));
    }
    lines.trim_end().to_string()
}

fn branch(plan: &Arc<dyn ExecutionPlan>, has_run: bool, first: &str, next: &str, lines: &mut String) {
    let (operator, details) = described(plan);
    lines.push_str(&format!("{first}{operator}"));
    if !details.is_empty() {
        lines.push_str(&format!(": {details}"));
    }
    if has_run {
        let shown = |metric: &Arc<Metric>| format!("{}={}", metric.value().name(), metric.value());
        let metrics: Vec<_> = measured(plan).iter().map(shown).collect();
        if !metrics.is_empty() {
            lines.push_str(&format!("  [{}]", metrics.join(", ")));
        }
    }
    lines.push('\n');
    let children = plan.children();
    for (index, child) in children.iter().enumerate() {
        let (here, below) = if index + 1 == children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        branch(child, has_run, &format!("{next}{here}"), &format!("{next}{below}"), lines);
    }
}
