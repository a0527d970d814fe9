//! The functions of a session, chosen by the names that a query calls.
//!
//! A session with all functions has some 500 names, which are added for each query and copied with the session's state.
//! A query calls a few of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use datafusion::common::Result as DfResult;
use datafusion::execution::context::SessionContext;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};

/// The functions that the planner calls for syntax without a function's name, such as `TRIM` and `DISTINCT ON`.
const BY_SYNTAX: [&str; 7] = ["btrim", "ceil", "first_value", "floor", "ltrim", "rtrim", "trim"];

/// All functions that queries may call, by their names and aliases.
static ALL: LazyLock<DfResult<All>> = LazyLock::new(All::try_new);

struct All {
    scalars: HashMap<String, Arc<ScalarUDF>>,
    aggregates: HashMap<String, Arc<AggregateUDF>>,
    windows: HashMap<String, Arc<WindowUDF>>,
    planners: Vec<Arc<dyn ExprPlanner>>,
}

impl All {
    fn try_new() -> DfResult<Self> {
        let mut context = SessionContext::new();
        crate::add_to(&mut context)?;
        let state = context.state();
        Ok(Self {
            scalars: state.scalar_functions().clone(),
            aggregates: state.aggregate_functions().clone(),
            windows: state.window_functions().clone(),
            planners: state.expr_planners().to_vec(),
        })
    }
}

/// Some of the functions that queries may call, and all operators.
pub struct ChosenFunctions {
    scalars: Vec<Arc<ScalarUDF>>,
    aggregates: Vec<Arc<AggregateUDF>>,
    windows: Vec<Arc<WindowUDF>>,
    planners: Vec<Arc<dyn ExprPlanner>>,
}

impl ChosenFunctions {
    /// Chooses the functions with these names, and those that syntax without a name calls. Returns `None` if no function
    /// has one of the names: then the session needs all functions, so that an error can suggest similar names.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let all = ALL.as_ref().ok()?;
        let called: BTreeSet<&str> = names.into_iter().collect();
        let is_known = |name: &str| {
            all.scalars.contains_key(name) || all.aggregates.contains_key(name) || all.windows.contains_key(name)
        };
        if !called.iter().all(|name| is_known(name)) {
            return None;
        }
        let names: BTreeSet<&str> = called.into_iter().chain(BY_SYNTAX).collect();
        Some(Self {
            scalars: chosen(&all.scalars, &names, |function| function.aliases()),
            aggregates: chosen(&all.aggregates, &names, |function| function.aliases()),
            windows: chosen(&all.windows, &names, |function| function.aliases()),
            planners: all.planners.clone(),
        })
    }

    /// Gives a session these functions and operators, and no others.
    pub fn build_into(self, session: SessionStateBuilder) -> SessionStateBuilder {
        session
            .with_scalar_functions(self.scalars)
            .with_aggregate_functions(self.aggregates)
            .with_window_functions(self.windows)
            .with_expr_planners(self.planners)
    }
}

/// Returns the functions with these names, each once. A function with an alias that is the name of another one, as
/// DataFusion's `inner_product` has `dot_product`, comes first, because a session gives a name to the function that is added
/// last.
fn chosen<T>(all: &HashMap<String, Arc<T>>, names: &BTreeSet<&str>, aliases: impl Fn(&T) -> &[String]) -> Vec<Arc<T>> {
    let mut found: Vec<Arc<T>> = Vec::new();
    for function in names.iter().filter_map(|name| all.get(*name)) {
        if !found.iter().any(|other| Arc::ptr_eq(other, function)) {
            found.push(function.clone());
        }
    }
    let gives_way = |function: &Arc<T>| {
        let is_taken = |alias: &String| all.get(alias).is_some_and(|other| !Arc::ptr_eq(other, function));
        aliases(function).iter().any(is_taken)
    };
    found.sort_by_key(|function| !gives_way(function));
    found
}
