//! Checks that every function of a session is on a list, and the results of functions.

mod casts;
mod compressed;
mod images;
mod tensors;
mod texts;
mod vectors;

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef};
use arrow_schema::{Field, FieldRef};
use datafusion::common::Result as DfResult;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::FunctionRegistry as _;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl};
use datafusion::prelude::SessionContext;

use crate::ChosenFunctions;
use crate::allowed::{all_aggregates, all_windows, refused, size};

/// Calls a function with a column.
fn call(function: &impl ScalarUDFImpl, field: Field, column: ArrayRef) -> DfResult<ArrayRef> {
    let arg_fields: Vec<FieldRef> = vec![Arc::new(field)];
    let return_args = ReturnFieldArgs { arg_fields: &arg_fields, scalar_arguments: &[None] };
    let return_field = function.return_field_from_args(return_args)?;
    let number_rows = column.len();
    let result = function.invoke_with_args(ScalarFunctionArgs {
        args: vec![ColumnarValue::Array(column)],
        arg_fields,
        number_rows,
        return_field: return_field.clone(),
        config_options: Arc::new(ConfigOptions::default()),
    })?;
    let result = result.into_array(number_rows)?;
    assert_eq!(result.data_type(), return_field.data_type());
    assert_eq!(result.len(), number_rows);
    Ok(result)
}

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
fn functions_of_this_crate_have_rules_and_descriptions() {
    let mut context = SessionContext::new();
    let before = context.udfs();
    crate::add_to(&mut context).expect("functions");
    let added = context.udfs().into_iter().filter(|name| !before.contains(name));
    let added: Vec<String> = added.collect();
    assert!(added.iter().any(|name| name == "tensor_norm"), "{added:?}");
    let state = context.state();
    for name in added.iter().map(String::as_str).chain(["octet_length"]) {
        assert!(size(name).is_some(), "function {name} is on no list: how large can its result be?");
        let documentation = state.scalar_functions().get(name).and_then(|function| function.documentation());
        let syntax = documentation.map(|found| found.syntax_example.as_str()).unwrap_or_default();
        assert!(syntax.starts_with(&format!("{name}(")), "function {name} has the syntax {syntax:?}");
    }
    assert!(state.aggregate_functions().get("vector_avg").is_some_and(|average| average.documentation().is_some()));
}

#[test]
fn lists_name_functions_that_exist() {
    let mut context = SessionContext::new();
    crate::add_to(&mut context).expect("functions");
    assert!(all_aggregates().all(|name| context.udafs().contains(name)));
    assert!(all_windows().all(|name| context.udwfs().contains(name)));
}

#[test]
fn chosen_functions_are_those_of_a_session_with_all_functions() {
    let mut context = SessionContext::new();
    crate::add_to(&mut context).expect("functions");
    let all = context.state();
    let scalars = all.scalar_functions().keys();
    let names: Vec<&str> = scalars
        .chain(all.aggregate_functions().keys())
        .chain(all.window_functions().keys())
        .map(String::as_str)
        .collect();
    assert!(names.len() > 200, "{} names", names.len());
    let check = |session: &SessionState, name: &str| {
        let scalar = |state: &SessionState| state.scalar_functions().get(name).map(|found| found.name().to_string());
        let aggregate =
            |state: &SessionState| state.aggregate_functions().get(name).map(|found| found.name().to_string());
        let window = |state: &SessionState| state.window_functions().get(name).map(|found| found.name().to_string());
        assert_eq!(scalar(session), scalar(&all), "scalar {name}");
        assert_eq!(aggregate(session), aggregate(&all), "aggregate {name}");
        assert_eq!(window(session), window(&all), "window {name}");
    };
    let session = |names: &[&str]| {
        let chosen = ChosenFunctions::named(names.iter().copied()).expect("known names");
        chosen.build_into(SessionStateBuilder::new()).build()
    };
    for name in &names {
        check(&session(&[name]), name);
    }
    let together = session(&names);
    names.iter().for_each(|name| check(&together, name));
    assert_eq!(together.expr_planners().len(), all.expr_planners().len());
    assert!(ChosenFunctions::named(["abs", "no_such_function"]).is_none());
    assert!(ChosenFunctions::named(["repeat"]).is_none(), "a refused function");
    let few = session(&["abs"]);
    assert!(few.scalar_functions().contains_key("btrim") && !few.scalar_functions().contains_key("sin"));
}
