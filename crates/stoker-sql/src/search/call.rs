//! Parses the arguments of `vector_search`.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Value,
};
use stoker_dialect::AT_OPERATOR;
use stoker_lake::{Metric, Table};
use stoker_types::SnapshotRef;

use super::Search;
use crate::params::{Params, numbers};
use crate::resolve::{At, Constant, TableRequest, normalize, single_name, table_name};
use crate::{Error, Result};

/// The most rows that one search may return.
const K_MAX: i64 = 1_000_000;
const K_DEFAULT: usize = 10;
const USAGE: &str = "write vector_search(table, column, query, k => 10, metric => 'l2' | 'cosine' | 'dot', \
                     nprobes => n, refine => n, use_index => true); the query is an array or a parameter";

/// The arguments as written, before they are checked against the table.
pub(crate) struct SearchCall {
    column: String,
    query: Vec<f64>,
    k: usize,
    metric: Metric,
    use_index: bool,
    nprobes: Option<usize>,
    refine: Option<u32>,
}

impl SearchCall {
    /// Reads the arguments. Also returns the table that they name.
    pub(crate) fn parse(args: Vec<FunctionArg>, params: &mut Params) -> Result<(TableRequest, Self)> {
        let mut positional = Vec::new();
        let mut named = Vec::new();
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if named.is_empty() => positional.push(expr),
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => {
                    named.push((name.value.to_ascii_lowercase(), expr));
                }
                other => return Err(Error::refused(format!("vector_search argument {other}"), USAGE)),
            }
        }
        let [table, column, query] = positional.as_slice() else {
            return Err(Error::refused(format!("vector_search has {} positional arguments", positional.len()), USAGE));
        };
        let mut request = table_argument(table, params)?;
        let mut call = SearchCall {
            column: name_argument(column)?,
            query: query_argument(query, params)?,
            k: K_DEFAULT,
            metric: Metric::L2,
            use_index: true,
            nprobes: None,
            refine: None,
        };
        for (index, (name, value)) in named.iter().enumerate() {
            if named[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(Error::refused(format!("vector_search option {name}"), "it is given twice"));
            }
            if matches!(name.as_str(), "version" | "tag" | "timestamp") {
                if request.at != At::Ref(SnapshotRef::Latest) {
                    return Err(Error::refused(format!("vector_search option {name}"), "the version is given twice"));
                }
                request.at = At::named(name, value, params)?;
            } else {
                call.set(name, Constant::parse(value, params)?)?;
            }
        }
        Ok((request, call))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the patterns limit the numbers")]
    fn set(&mut self, name: &str, value: Constant) -> Result<()> {
        match (name, value) {
            ("k", Constant::Int(k)) if (1..=K_MAX).contains(&k) => self.k = k as usize,
            ("k", value) => {
                return Err(Error::refused(format!("k => {value:?}"), format!("it must be from 1 to {K_MAX}")));
            }
            ("metric", Constant::Text(metric)) => {
                self.metric = match metric.to_ascii_lowercase().as_str() {
                    "l2" => Metric::L2,
                    "cosine" => Metric::Cosine,
                    "dot" => Metric::Dot,
                    _ => return Err(Error::refused(format!("metric => '{metric}'"), "it must be l2, cosine or dot")),
                }
            }
            ("use_index", Constant::Bool(use_index)) => self.use_index = use_index,
            ("nprobes", Constant::Int(n)) if (1..=i64::from(u32::MAX)).contains(&n) => self.nprobes = Some(n as usize),
            ("refine", Constant::Int(n)) if (1..=1_000).contains(&n) => self.refine = Some(n as u32),
            (name, value) => return Err(Error::refused(format!("vector_search option {name} => {value:?}"), USAGE)),
        }
        Ok(())
    }

    /// Checks the arguments against the table.
    pub(crate) fn bind(&self, table: &Table) -> Result<Search> {
        let schema = table.schema();
        let Ok(field) = schema.field_with_name(&self.column) else {
            let known: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Error::refused(
                format!("vector_search: unknown column {}", self.column),
                format!("the columns of {} are: {}", table.name(), known.join(", ")),
            ));
        };
        let refuse = |reason: String| Error::refused(format!("vector_search: column {}", self.column), reason);
        let DataType::FixedSizeList(item, length) = field.data_type() else {
            return Err(refuse(format!("it is {}, not a vector", field.data_type())));
        };
        if usize::try_from(*length).ok() != Some(self.query.len()) {
            return Err(refuse(format!("it has {length} dimensions, the query has {}", self.query.len())));
        }
        if let Some(value) = self.query.iter().find(|value| !value.is_finite()) {
            return Err(refuse(format!("the query holds {value}")));
        }
        let query = match item.data_type() {
            DataType::Float16 | DataType::Float32 | DataType::Float64 | DataType::UInt8 => {
                elements(&self.query, item.data_type(), self.metric).map_err(refuse)?
            }
            other => return Err(refuse(format!("vectors of {other} cannot be searched"))),
        };
        Ok(Search {
            column: self.column.clone(),
            query,
            k: self.k,
            metric: self.metric,
            use_index: self.use_index,
            nprobes: self.nprobes,
            refine: self.refine,
            prefilter: None,
        })
    }
}

/// Converts a query vector to the column's element type, or returns why the vector has no distances in this type.
fn elements(query: &[f64], element: &DataType, metric: Metric) -> Result<ArrayRef, String> {
    let text = |source: ArrowError| source.to_string();
    let values = cast(&Float64Array::from(query.to_vec()), element).map_err(text)?;
    let kept = cast(&values, &DataType::Float64).map_err(text)?;
    let kept = kept.as_primitive::<Float64Type>();
    let lost = kept.iter().zip(query).find(|(kept, _)| !kept.is_some_and(f64::is_finite));
    if let Some((_, value)) = lost {
        return Err(format!("the query holds {value}, which {element} cannot hold"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "Lance computes norms in f32")]
    let norm = kept.values().iter().map(|value| (*value as f32) * (*value as f32)).sum::<f32>();
    match metric {
        Metric::Cosine if norm == 0.0 => {
            Err("the query has length zero, so that it has no cosine distance; use metric => 'l2'".to_string())
        }
        Metric::Cosine if norm.is_infinite() => {
            Err("the query is too long for a cosine distance; divide it by its length".to_string())
        }
        _ => Ok(values),
    }
}

/// Reads a table argument: `t`, `'t'` or `public.t`, each optionally with `AT (…)`.
pub(crate) fn table_argument(expr: &Expr, params: &mut Params) -> Result<TableRequest> {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::Custom(op), right } if op == AT_OPERATOR => {
            let table = table_argument(left, params)?;
            Ok(TableRequest { name: table.name, at: At::parse_clause(right, params)? })
        }
        Expr::CompoundIdentifier(parts) => {
            let name = single_name(&ObjectName::from(parts.clone()))?;
            Ok(TableRequest { name: table_name(&name)?, at: At::Ref(SnapshotRef::Latest) })
        }
        other => {
            let name = name_argument(other)?;
            Ok(TableRequest { name: table_name(&name)?, at: At::Ref(SnapshotRef::Latest) })
        }
    }
}

fn name_argument(expr: &Expr) -> Result<String> {
    match expr {
        Expr::Identifier(ident) => Ok(normalize(ident)),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Ok(text.clone()),
            _ => Err(Error::refused(format!("vector_search argument {expr}"), USAGE)),
        },
        _ => Err(Error::refused(format!("vector_search argument {expr}"), USAGE)),
    }
}

fn query_argument(expr: &Expr, params: &mut Params) -> Result<Vec<f64>> {
    let refuse = || Error::refused(format!("vector_search query {expr}"), USAGE);
    match expr {
        Expr::Array(array) => array.elem.iter().map(|element| number(element, params)).collect(),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => query_argument(expr, params),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("make_array") => {
            let FunctionArguments::List(list) = &function.args else { return Err(refuse()) };
            list.args
                .iter()
                .map(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(element)) => number(element, params),
                    _ => Err(refuse()),
                })
                .collect()
        }
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => numbers(params.value(name)?.1).ok_or_else(|| {
                Error::refused(format!("vector_search query {name}"), "the parameter must be a vector without nulls")
            }),
            _ => Err(refuse()),
        },
        _ => Err(refuse()),
    }
}

fn number(expr: &Expr, params: &mut Params) -> Result<f64> {
    match Constant::parse(expr, params)? {
        Constant::Int(value) => Ok(value as f64),
        Constant::Float(value) => Ok(value),
        _ => Err(Error::refused(format!("vector_search query element {expr}"), "it must be a number")),
    }
}
