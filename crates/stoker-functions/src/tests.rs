//! Checks that every function of a session is on a list.

use datafusion::execution::FunctionRegistry as _;
use datafusion::prelude::SessionContext;

use crate::allowed::{all_aggregates, all_windows, refused, size};

#[test]
fn every_function_has_a_rule_for_the_size_of_its_result() {
    let context = SessionContext::new();
    let state = context.state();
    for (name, function) in state.scalar_functions() {
        let known = size(function.name()).is_some() || refused(name).is_some();
        assert!(known, "function {name} is on no list: how large can its result be?");
    }
    let higher_order = [
        "any_match",
        "array_any_match",
        "array_filter",
        "array_transform",
        "list_any_match",
        "list_filter",
        "list_transform",
    ];
    for name in state.higher_order_functions().keys() {
        assert!(
            higher_order.contains(&name.as_str()),
            "function {name} is on no list: can it give more elements than it gets?"
        );
    }
    for name in context.udafs() {
        assert!(
            all_aggregates().any(|known| known == name),
            "aggregate {name} is on no list: does it account for what it holds?"
        );
    }
    for name in context.udwfs() {
        assert!(all_windows().any(|known| known == name), "window function {name} is on no list");
    }
}

#[test]
fn lists_name_functions_that_exist() {
    let context = SessionContext::new();
    assert!(all_aggregates().all(|name| context.udafs().contains(name)));
    assert!(all_windows().all(|name| context.udwfs().contains(name)));
}
