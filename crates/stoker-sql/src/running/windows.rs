//! Reserves memory for the rows that a window operator keeps. DataFusion 54 does not reserve it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt as _;
use parking_lot::Mutex;

/// Wraps each window operator of a plan into one that reserves memory for its rows. This rule runs after all of
/// DataFusion's rules.
#[derive(Debug)]
pub(crate) struct HoldWindows;

impl PhysicalOptimizerRule for HoldWindows {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> DfResult<Arc<dyn ExecutionPlan>> {
        let held = plan.transform_up(|node| {
            let Some(kept) = kept_rows(node.as_ref()) else { return Ok(Transformed::no(node)) };
            Ok(Transformed::yes(Arc::new(HeldWindow { window: node, kept }) as _))
        })?;
        Ok(held.data)
    }

    fn name(&self) -> &str {
        "hold_windows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// How many of the rows that a window operator has already output it still keeps.
#[derive(Clone, Copy, Debug)]
enum Kept {
    All,
    AtMost(u64),
}

fn kept_rows(plan: &dyn ExecutionPlan) -> Option<Kept> {
    let plan: &dyn Any = plan;
    if plan.is::<WindowAggExec>() {
        return Some(Kept::All);
    }
    let bounded: &BoundedWindowAggExec = plan.downcast_ref()?;
    let kept = bounded.window_expr().iter().map(|function| before(function.as_ref()));
    Some(kept.fold(Kept::AtMost(0), |one, other| match (one, other) {
        (Kept::AtMost(one), Kept::AtMost(other)) => Kept::AtMost(one.max(other)),
        _ => Kept::All,
    }))
}

/// Returns how many rows before the current one a function still needs.
fn before(function: &dyn WindowExpr) -> Kept {
    let frame = function.get_window_frame();
    match (&frame.units, &frame.start_bound) {
        (WindowFrameUnits::Rows, WindowFrameBound::Preceding(ScalarValue::UInt64(Some(rows)))) => Kept::AtMost(*rows),
        // A function over all rows up to the current one keeps a running value and no rows.
        (_, WindowFrameBound::Preceding(bound)) if bound.is_null() => Kept::AtMost(0),
        (_, WindowFrameBound::CurrentRow | WindowFrameBound::Following(_)) => Kept::AtMost(0),
        _ => Kept::All,
    }
}

/// A window operator with reserved memory for its rows.
#[derive(Debug)]
struct HeldWindow {
    window: Arc<dyn ExecutionPlan>,
    kept: Kept,
}

impl DisplayAs for HeldWindow {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.window.fmt_as(t, f)
    }
}

impl ExecutionPlan for HeldWindow {
    fn name(&self) -> &str {
        self.window.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.window.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.window.children()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self { window: self.window.clone().with_new_children(children)?, kept: self.kept }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let [input] = self.window.children()[..] else { return internal_err!("a window operator has one child") };
        let reservation = MemoryConsumer::new(self.name()).register(context.memory_pool());
        let ledger = Arc::new(Mutex::new(Ledger { kept: self.kept, rows: 0, given: 0, bytes: 0, reservation }));
        let (taken, given) = (ledger.clone(), ledger);
        let rows = input.execute(partition, context.clone())?;
        let schema = rows.schema();
        let rows = rows.map(move |batch| batch.and_then(|batch| taken.lock().take(batch)));
        let rows: SendableRecordBatchStream = Box::pin(RecordBatchStreamAdapter::new(schema, rows));
        let input = Rows { rows: Mutex::new(Some(rows)), properties: input.properties().clone() };
        let rows = self.window.clone().with_new_children(vec![Arc::new(input)])?.execute(partition, context)?;
        let schema = rows.schema();
        let rows = rows.map(move |batch| batch.inspect(|batch| given.lock().give(batch)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// Counts the rows that a window operator took as input and output, and the bytes of its input.
struct Ledger {
    kept: Kept,
    rows: u64,
    given: u64,
    bytes: u64,
    reservation: MemoryReservation,
}

impl Ledger {
    fn take(&mut self, batch: RecordBatch) -> DfResult<RecordBatch> {
        let bytes =
            batch.columns().iter().map(|column| column.to_data().get_slice_memory_size()).sum::<Result<usize, _>>()?;
        self.rows += batch.num_rows() as u64;
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.reservation.try_resize(self.held())?;
        Ok(batch)
    }

    fn give(&mut self, batch: &RecordBatch) {
        self.given += batch.num_rows() as u64;
        let held = self.held().min(self.reservation.size());
        self.reservation.resize(held);
    }

    /// Returns the bytes of the kept rows, computed from the average bytes per row.
    fn held(&self) -> usize {
        let rows = match self.kept {
            Kept::All => self.rows,
            Kept::AtMost(kept) => self.rows.saturating_sub(self.given).saturating_add(kept).min(self.rows),
        };
        let bytes = u128::from(self.bytes) * u128::from(rows) / u128::from(self.rows.max(1));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// An input stream that already exists, as a plan.
struct Rows {
    rows: Mutex<Option<SendableRecordBatchStream>>,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}

impl DisplayAs for Rows {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Rows")
    }
}

impl ExecutionPlan for Rows {
    fn name(&self) -> &str {
        "Rows"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        match self.rows.lock().take() {
            Some(rows) => Ok(rows),
            None => internal_err!("rows are read once"),
        }
    }
}
