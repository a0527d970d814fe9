//! Parses the arguments of search functions.

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Query, Value,
};
use stoker_columns::SmallFloat;
use stoker_dialect::AT_OPERATOR;
use stoker_lake::Table;
use stoker_text::TextQuery;
use stoker_types::SnapshotRef;

use super::options::SearchOptions;
use super::vector_type::VectorType;
use super::{HybridSearch, QuerySource, Search, SearchFunction, SearchKind, VectorSearch, WordSearch, is_computed};
use crate::params::{Params, numbers};
use crate::resolve::{
    At, AtClause, Constant, TableRequest, branch_named, branch_of, normalize, single_name, table_name,
};
use crate::{Error, Result};

/// The arguments as written, before they are checked against the table.
pub(crate) struct SearchCall {
    function: SearchFunction,
    vector: Option<VectorArguments>,
    words: Option<WordArguments>,
    options: SearchOptions,
}

struct VectorArguments {
    column: String,
    query: QueryVector,
}

struct WordArguments {
    columns: Vec<String>,
    /// The search text; `None` for a parameter that has no value yet.
    query: Option<String>,
}

/// The vector that a search compares with.
enum QueryVector {
    Given(Vec<f64>),
    /// A parameter that has no value yet, by its index; without one, only some elements are parameters.
    Unbound(Option<usize>),
    /// A subquery. Its relations are replaced after the arguments were read.
    Subquery(Box<Query>),
}

impl SearchCall {
    /// Reads the arguments. Also returns the table that they name.
    pub(crate) fn parse(
        function: SearchFunction,
        args: Vec<FunctionArg>,
        params: &mut Params,
    ) -> Result<(TableRequest, Self)> {
        let (name, usage) = (function.name(), function.usage());
        let mut positional = Vec::new();
        let mut named = Vec::new();
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) if named.is_empty() => positional.push(expr),
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expr), .. } => {
                    named.push((name.value.to_ascii_lowercase(), expr));
                }
                other => return Err(Error::refused(format!("{name} argument {other}"), usage)),
            }
        }
        let (table, vector, words) = match (function, positional.as_slice()) {
            (SearchFunction::Vector, [table, column, query]) => (table, Some((column, query)), None),
            (SearchFunction::Words, [table, columns, query]) => (table, None, Some((columns, query))),
            (SearchFunction::Hybrid, [table, column, query, columns, words]) => {
                (table, Some((column, query)), Some((columns, words)))
            }
            _ => {
                let num_positional = positional.len();
                return Err(Error::refused(format!("{name} has {num_positional} positional arguments"), usage));
            }
        };
        let mut request = table_argument(table, params)?;
        let refuse = |expr: &Expr| Error::refused(format!("{name} argument {expr}"), usage);
        let vector = match vector {
            Some((column, query)) => Some(VectorArguments {
                column: name_of(column).ok_or_else(|| refuse(column))?,
                query: query_argument(function, query, params)?,
            }),
            None => None,
        };
        let words = match words {
            Some((columns, query)) => {
                params.expect(query, DataType::Utf8);
                let query = match Constant::parse(query, params)? {
                    Constant::Text(text) => Some(text),
                    Constant::Unbound => None,
                    _ => return Err(refuse(query)),
                };
                Some(WordArguments { columns: names_of(columns).ok_or_else(|| refuse(columns))?, query })
            }
            None => None,
        };
        let mut options = SearchOptions::default();
        // Which words are frequent depends on the language.
        named.sort_by_key(|(option, _)| option == "stop_words");
        for (index, (option, value)) in named.iter().enumerate() {
            let earlier: Vec<&str> = named[..index].iter().map(|(earlier, _)| earlier.as_str()).collect();
            if earlier.contains(&option.as_str()) {
                return Err(Error::refused(format!("{name} option {option}"), "it is given twice"));
            }
            if (option == "exact" && earlier.contains(&"use_index"))
                || (option == "use_index" && earlier.contains(&"exact"))
            {
                return Err(Error::refused(
                    format!("{name} options exact and use_index"),
                    "they say the same; give one",
                ));
            }
            if matches!(option.as_str(), "version" | "tag" | "timestamp") {
                if request.at != At::Ref(SnapshotRef::Latest) {
                    return Err(Error::refused(format!("{name} option {option}"), "the version is given twice"));
                }
                request.at = At::named(option, value, params)?;
            } else if option == "branch" {
                if request.name.branch().is_some() {
                    return Err(Error::refused(format!("{name} option {option}"), "the branch is given twice"));
                }
                if let Some(branch) = branch_named(value, params)? {
                    request.name = branch_of(&request.name, &branch)?;
                }
            } else {
                options.set(function, option, value, params)?;
            }
        }
        Ok((request, SearchCall { function, vector, words, options }))
    }

    /// Returns the index of the parameter that is to be the query vector, and its type, if it has no value yet.
    pub(crate) fn unbound_vector(&self, table: &Table) -> Option<(usize, DataType)> {
        let vector = self.vector.as_ref()?;
        let QueryVector::Unbound(Some(index)) = vector.query else { return None };
        let field = table.schema().field_with_name(&vector.column).ok()?.data_type().clone();
        Some((index, field))
    }

    /// The subquery that gives the query vector, if one does.
    pub(crate) fn subquery(&self) -> Option<&Query> {
        match &self.vector.as_ref()?.query {
            QueryVector::Subquery(query) => Some(query),
            _ => None,
        }
    }

    /// The same, to replace its relations.
    pub(crate) fn subquery_mut(&mut self) -> Option<&mut Query> {
        match &mut self.vector.as_mut()?.query {
            QueryVector::Subquery(query) => Some(query),
            _ => None,
        }
    }

    /// Checks the arguments against the table. `subquery` is the plan of [`SearchCall::subquery`].
    pub(crate) fn bind(&self, table: &Table, subquery: Option<LogicalPlan>) -> Result<Search> {
        let SearchOptions { k, candidates, weights, rrf_k, .. } = self.options;
        // Each side of a hybrid search finds as many rows.
        let of_side = if self.function == SearchFunction::Hybrid { candidates.unwrap_or(k) } else { k };
        let vector =
            self.vector.as_ref().map(|vector| self.bind_vector(vector, table, subquery, of_side)).transpose()?;
        let words = self.words.as_ref().map(|words| self.bind_words(words, table, of_side)).transpose()?;
        let kind = match (vector, words) {
            (Some(vector), Some(words)) => SearchKind::Hybrid(HybridSearch { vector, words, k, weights, rrf_k }),
            (Some(vector), None) => SearchKind::Vector(vector),
            (None, Some(words)) => SearchKind::Words(words),
            (None, None) => return Err(Error::internal("a search without arguments")),
        };
        if let Some(field) = table.schema().fields().iter().find(|field| is_computed(field.name())) {
            return Err(Error::refused(
                format!("{} of {}", self.function.name(), table.name()),
                format!("the table has a column {} of its own; searches compute columns of this name", field.name()),
            ));
        }
        Ok(Search { kind, prefilter: None })
    }

    fn bind_vector(
        &self,
        VectorArguments { column, query }: &VectorArguments,
        table: &Table,
        subquery: Option<LogicalPlan>,
        k: usize,
    ) -> Result<VectorSearch> {
        let SearchOptions { metric, use_index, nprobes, refine, .. } = self.options;
        let data_type = self.column_type(column, table)?;
        let refuse = |reason: String| self.refuse_column(column, reason);
        let float = table.schema().field_with_name(column).ok().and_then(SmallFloat::of);
        if let Some(float) = float {
            return Err(refuse(format!("vectors of {} cannot be searched", float.name())));
        }
        let vector_type = VectorType::of(&data_type).map_err(refuse)?;
        let query = match (query, subquery) {
            (_, Some(plan)) => {
                vector_type.check_subquery(&plan).map_err(refuse)?;
                QuerySource::Plan(Arc::new(plan))
            }
            (QueryVector::Given(given), None) => QuerySource::Given(vector_type.query(given, metric).map_err(refuse)?),
            // The columns of the result are the same for any vector.
            (QueryVector::Unbound(_) | QueryVector::Subquery(_), None) => {
                QuerySource::Given(vector_type.query(&vector_type.any(), metric).map_err(refuse)?)
            }
        };
        Ok(VectorSearch { column: column.clone(), vector_type, query, k, metric, use_index, nprobes, refine })
    }

    fn bind_words(
        &self,
        WordArguments { columns, query }: &WordArguments,
        table: &Table,
        k: usize,
    ) -> Result<WordSearch> {
        for (index, column) in columns.iter().enumerate() {
            let data_type = self.column_type(column, table)?;
            if !matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
                return Err(self.refuse_column(column, format!("it is {data_type}, not text")));
            }
            if columns[..index].contains(column) {
                return Err(self.refuse_column(column, "it is given twice".to_string()));
            }
        }
        let SearchOptions { analysis, use_index, .. } = self.options;
        // The columns of the result are the same for any words.
        let text = query.as_deref().unwrap_or("any");
        let query = TextQuery::parse(text, &analysis).map_err(|source| {
            let shown: String = text.chars().take(100).collect();
            Error::refused(format!("{} for '{shown}'", self.function.name()), source.to_string())
        })?;
        Ok(WordSearch { columns: columns.clone(), query: Arc::new(query), analysis, k, use_index })
    }

    fn column_type(&self, column: &str, table: &Table) -> Result<DataType> {
        let schema = table.schema();
        match schema.field_with_name(column) {
            Ok(field) => Ok(field.data_type().clone()),
            Err(_) => {
                let known: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                Err(Error::refused(
                    format!("{}: unknown column {column}", self.function.name()),
                    format!("the columns of {} are: {}", table.name(), known.join(", ")),
                ))
            }
        }
    }

    fn refuse_column(&self, column: &str, reason: String) -> Error {
        Error::refused(format!("{}: column {column}", self.function.name()), reason)
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
            AtClause::parse_call(right, params)?.of(table.name)
        }
        Expr::CompoundIdentifier(parts) => {
            let name = single_name(&ObjectName::from(parts.clone()))?;
            Ok(TableRequest { name: table_name(&name)?, at: At::Ref(SnapshotRef::Latest) })
        }
        other => {
            let refuse = || Error::refused(other.to_string(), "the name of a table is needed here");
            let name = name_of(other).ok_or_else(refuse)?;
            Ok(TableRequest { name: table_name(&name)?, at: At::Ref(SnapshotRef::Latest) })
        }
    }
}

/// Returns the name that an identifier or a text is.
fn name_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(normalize(ident)),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the names in an array, or the one name.
fn names_of(expr: &Expr) -> Option<Vec<String>> {
    match expr {
        Expr::Array(array) if !array.elem.is_empty() => array.elem.iter().map(name_of).collect(),
        _ => Some(vec![name_of(expr)?]),
    }
}

fn query_argument(function: SearchFunction, expr: &Expr, params: &mut Params) -> Result<QueryVector> {
    let refuse = || Error::refused(format!("{} query {expr}", function.name()), function.usage());
    let of_elements = |numbers: Vec<Option<f64>>| match numbers.into_iter().collect() {
        Some(numbers) => QueryVector::Given(numbers),
        None => QueryVector::Unbound(None),
    };
    match expr {
        Expr::Array(array) => {
            let numbers = array.elem.iter().map(|element| number(element, params)).collect::<Result<_>>()?;
            Ok(of_elements(numbers))
        }
        Expr::Cast { expr, .. } | Expr::Nested(expr) => query_argument(function, expr, params),
        Expr::Subquery(query) => Ok(QueryVector::Subquery(query.clone())),
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
                    Error::refused(format!("{} query {name}", function.name()), reason)
                })?;
                Ok(QueryVector::Given(vector))
            }
            _ => Err(refuse()),
        },
        _ => Err(refuse()),
    }
}

/// Returns a number; `None` for a parameter that has no value yet.
pub(super) fn number(expr: &Expr, params: &mut Params) -> Result<Option<f64>> {
    match Constant::parse(expr, params)? {
        Constant::Int(value) => Ok(Some(value as f64)),
        Constant::Float(value) => Ok(Some(value)),
        Constant::Unbound => Ok(None),
        _ => Err(Error::refused(format!("element {expr} of an argument"), "it must be a number")),
    }
}
