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
    query: QueryVector,
    k: usize,
    metric: Metric,
    use_index: bool,
    nprobes: Option<usize>,
    refine: Option<u32>,
}

/// The vector that a search compares with.
enum QueryVector {
    Given(Vec<f64>),
    /// A parameter that has no value yet, by its index; without one, only some elements are parameters.
    Unbound(Option<usize>),
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
                match name.as_str() {
                    "k" | "nprobes" | "refine" => params.expect(value, DataType::Int64),
                    "use_index" => params.expect(value, DataType::Boolean),
                    _ => {}
                }
                call.set(name, Constant::parse(value, params)?)?;
            }
        }
        Ok((request, call))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the patterns limit the numbers")]
    fn set(&mut self, name: &str, value: Constant) -> Result<()> {
        match (name, value) {
            ("k", Constant::Int(k)) if (1..=K_MAX).contains(&k) => self.k = k as usize,
            ("k" | "metric" | "use_index" | "nprobes" | "refine", Constant::Unbound) => {}
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

    /// Returns the index of the parameter that is to be the query vector, and its type, if it has no value yet.
    pub(crate) fn unbound_vector(&self, table: &Table) -> Option<(usize, DataType)> {
        let QueryVector::Unbound(Some(index)) = self.query else { return None };
        let field = table.schema().field_with_name(&self.column).ok()?.data_type().clone();
        Some((index, field))
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
        let dimensions = usize::try_from(*length).unwrap_or_default();
        let given = match &self.query {
            QueryVector::Given(given) => given.clone(),
            // The columns of the result are the same for any vector.
            QueryVector::Unbound(_) => vec![1.0; dimensions],
        };
        if dimensions != given.len() {
            return Err(refuse(format!("it has {length} dimensions, the query has {}", given.len())));
        }
        if let Some(value) = given.iter().find(|value| !value.is_finite()) {
            return Err(refuse(format!("the query holds {value}")));
        }
        let query = match item.data_type() {
            DataType::Float16 | DataType::Float32 | DataType::Float64 | DataType::UInt8 => {
                elements(&given, item.data_type(), self.metric).map_err(refuse)?
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
            if table.at != At::Ref(SnapshotRef::Latest) {
                return Err(Error::refused(expr.to_string(), "the version is given twice"));
            }
            Ok(TableRequest { name: table.name, at: At::parse_clause(right, params)? })
        }
        Expr::CompoundIdentifier(parts) => {
            let name = single_name(&ObjectName::from(parts.clone()))?;
            Ok(TableRequest { name: table_name(&name)?, at: At::Ref(SnapshotRef::Latest) })
        }
        other => {
            let refuse = |_| Error::refused(other.to_string(), "the name of a table is needed here");
            let name = name_argument(other).map_err(refuse)?;
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

fn query_argument(expr: &Expr, params: &mut Params) -> Result<QueryVector> {
    let refuse = || Error::refused(format!("vector_search query {expr}"), USAGE);
    let of_elements = |numbers: Vec<Option<f64>>| match numbers.into_iter().collect() {
        Some(numbers) => QueryVector::Given(numbers),
        None => QueryVector::Unbound(None),
    };
    match expr {
        Expr::Array(array) => {
            let numbers = array.elem.iter().map(|element| number(element, params)).collect::<Result<_>>()?;
            Ok(of_elements(numbers))
        }
        Expr::Cast { expr, .. } | Expr::Nested(expr) => query_argument(expr, params),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("make_array") => {
            let FunctionArguments::List(list) = &function.args else { return Err(refuse()) };
            let element = |arg: &FunctionArg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(element)) => number(element, params),
                _ => Err(refuse()),
            };
            Ok(of_elements(list.args.iter().map(element).collect::<Result<_>>()?))
        }
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => {
                let (index, value) = params.value(name)?;
                let Some(value) = value else { return Ok(QueryVector::Unbound(Some(index))) };
                let vector = numbers(value).ok_or_else(|| {
                    let reason = "the parameter must be a vector without nulls";
                    Error::refused(format!("vector_search query {name}"), reason)
                })?;
                Ok(QueryVector::Given(vector))
            }
            _ => Err(refuse()),
        },
        _ => Err(refuse()),
    }
}

fn number(expr: &Expr, params: &mut Params) -> Result<Option<f64>> {
    match Constant::parse(expr, params)? {
        Constant::Int(value) => Ok(Some(value as f64)),
        Constant::Float(value) => Ok(Some(value)),
        Constant::Unbound => Ok(None),
        _ => Err(Error::refused(format!("vector_search query element {expr}"), "it must be a number")),
    }
}
