//! Describes statements before their parameters have values.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan};
use stoker_columns::fitting_schema;
use stoker_functions::{Activity, compares_vectors};
use stoker_lake::Table;

use crate::explained::explain_schema;
use crate::planning::{NamedPlan, Resolved, coerced, named_plan};
use crate::resolve::RelationRequest;
use crate::running::check_expanded;
use crate::search::apply_with_hidden;
use crate::{Engine, Result};

/// What is known of a statement before its parameters have values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementDescription {
    /// The columns of the result, as they are if all parameters are NULL.
    pub columns: SchemaRef,
    /// The parameters in order, with the names `$1`, `$2`, …. The type follows from the statement, as in `label < $1`;
    /// it is `Utf8` where it does not.
    pub parameters: Vec<FieldRef>,
}

/// Describes a statement over its opened tables. It must be called on a large stack.
pub(crate) async fn describe(
    engine: &Engine,
    activity: &Arc<Activity>,
    resolved: Resolved,
    tables: &[Table],
) -> Result<StatementDescription> {
    let mut types = resolved.requests.param_types.clone();
    for request in &resolved.requests.relations {
        if let RelationRequest::Search(table, call) = request
            && let Some((index, data_type)) = call.unbound_vector(&tables[*table])
        {
            types[index] = Some(data_type);
        }
    }
    let NamedPlan { state, plan, explain } = named_plan(engine, activity, resolved, tables, &[]).await?;
    check_expanded(&plan, activity)?;
    infer(&plan, &mut types)?;
    let null = |data_type: &Option<DataType>| match data_type {
        Some(data_type) => ScalarValue::try_new_null(data_type),
        None => Ok(ScalarValue::Null),
    };
    let plan = match types.is_empty() {
        true => plan,
        // With NULL as their value, parameters have no influence on other types.
        false => {
            let nulls = types.iter().map(null).collect::<datafusion::common::Result<Vec<_>>>()?;
            plan.with_param_values(ParamValues::from(nulls))?
        }
    };
    let coerced = coerced(&state, plan)?;
    let columns = match explain {
        Some(_) => explain_schema(),
        None => fitting_schema(&Arc::new(coerced.schema().as_arrow().clone())),
    };
    let field = |(index, found): (usize, Option<DataType>)| {
        Arc::new(Field::new(format!("${}", index + 1), found.unwrap_or(DataType::Utf8), true))
    };
    Ok(StatementDescription { columns, parameters: types.into_iter().enumerate().map(field).collect() })
}

/// Takes the types of parameters from the places where they stand: the first place of each that has a type.
fn infer(plan: &LogicalPlan, types: &mut [Option<DataType>]) -> Result<()> {
    apply_with_hidden(plan, &mut |node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::Placeholder(Placeholder { id, field: Some(field) }) => {
                        if let Some(found) = type_of_parameter(id, types) {
                            found.get_or_insert_with(|| field.data_type().clone());
                        }
                    }
                    Expr::ScalarFunction(call) if compares_vectors(call.func.name()) => infer_vector(node, call, types),
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// Gives a parameter that is compared with a vector the type of the vector.
fn infer_vector(node: &LogicalPlan, call: &ScalarFunction, types: &mut [Option<DataType>]) {
    let [left, right] = call.args.as_slice() else { return };
    for (parameter, other) in [(left, right), (right, left)] {
        let Expr::Placeholder(Placeholder { id, field: None }) = parameter else { continue };
        let schemas = node.inputs().into_iter().map(LogicalPlan::schema).chain([node.schema()]);
        let of_other = schemas.filter_map(|schema| other.get_type(schema).ok()).find(|found| !found.is_null());
        if let (Some(found), Some(of_other)) = (type_of_parameter(id, types), of_other) {
            found.get_or_insert(of_other);
        }
    }
}

/// Returns the type of a parameter such as `$2`, as far as it is known.
fn type_of_parameter<'a>(id: &str, types: &'a mut [Option<DataType>]) -> Option<&'a mut Option<DataType>> {
    let number = id.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok())?;
    types.get_mut(number.checked_sub(1)?)
}
