//! Positional parameters (`$1`, `$2`, …).
//!
//! Scalar JSON parameters become literals in the AST. Other parameters become calls of functions that return their
//! values ([`function`]), so that a long embedding adds one node to the AST; DataFusion folds these calls into
//! literals.

mod function;
mod value;

pub(crate) use function::{functions, is_parameter};
pub(crate) use value::{constant, list_numbers, numbers, rows_of};

use std::collections::BTreeMap;

use arrow_schema::DataType;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use stoker_types::ParamValue;

use crate::{Error, Result};

/// The most parameters of a statement that is described before it has values.
const UNBOUND_MAX: usize = 65_535;

/// The parameters of one query, and which of them the query uses.
pub(crate) struct Params<'a> {
    /// The values; `None` for a statement that is described before it has values.
    values: Option<&'a [ParamValue]>,
    used: Vec<bool>,
    /// The types of parameters that stand for literals, by their indexes.
    expected: BTreeMap<usize, DataType>,
}

/// A parameter in a query: its zero-based index, and its value if it has one yet.
type Found<'a> = (usize, Option<&'a ParamValue>);

impl<'a> Params<'a> {
    pub(crate) fn new(values: &'a [ParamValue]) -> Self {
        Self { values: Some(values), used: vec![false; values.len()], expected: BTreeMap::new() }
    }

    /// Parameters without values.
    pub(crate) fn unbound() -> Self {
        Self { values: None, used: Vec::new(), expected: BTreeMap::new() }
    }

    /// Returns the parameter of a placeholder such as `$2`, and marks it as used.
    pub(crate) fn value(&mut self, placeholder: &str) -> Result<Found<'a>> {
        let index = placeholder
            .strip_prefix('$')
            .and_then(|digits| digits.parse::<usize>().ok())
            .and_then(|number| number.checked_sub(1))
            .ok_or_else(|| {
                Error::refused(format!("placeholder {placeholder}"), "parameters are written $1, $2, … or ?, ?, …")
            })?;
        let value = match self.values {
            Some(values) => Some(values.get(index).ok_or_else(|| {
                let reason = format!("{} parameters were given", values.len());
                Error::refused(format!("parameter {placeholder} is missing"), reason)
            })?),
            None if index >= UNBOUND_MAX => {
                return Err(Error::refused(
                    format!("parameter {placeholder}"),
                    format!("the last one is ${UNBOUND_MAX}"),
                ));
            }
            None => {
                self.used.resize(self.used.len().max(index + 1), false);
                None
            }
        };
        self.used[index] = true;
        Ok((index, value))
    }

    /// The number of parameters: of those that were given, or up to the last one that the query names.
    pub(crate) fn len(&self) -> usize {
        self.used.len()
    }

    /// Records the type of a parameter in the place of a literal, if the expression is a placeholder.
    pub(crate) fn expect(&mut self, expr: &Expr, data_type: DataType) {
        if let Ok(Some((index, None))) = self.placeholder(expr) {
            self.expected.insert(index, data_type);
        }
    }

    /// The types of all parameters, as far as they stand for literals.
    pub(crate) fn types(&self) -> Vec<Option<DataType>> {
        (0..self.len()).map(|index| self.expected.get(&index).cloned()).collect()
    }

    /// Returns the expression that replaces a placeholder. A parameter without a value stays a placeholder.
    pub(crate) fn expr(&mut self, placeholder: &str) -> Result<Expr> {
        let (index, value) = self.value(placeholder)?;
        let Some(value) = value else { return Ok(literal(Value::Placeholder(placeholder.to_string()))) };
        Ok(match value {
            ParamValue::Null => literal(Value::Null),
            ParamValue::Bool(value) => literal(Value::Boolean(*value)),
            ParamValue::Int(value) => parse(&value.to_string())?,
            ParamValue::Float(value) => parse(&format!("CAST('{value:?}' AS DOUBLE)"))?,
            ParamValue::Text(text) => literal(Value::SingleQuotedString(text.clone())),
            ParamValue::Vector(_) | ParamValue::Arrow(_) => parse(&function::whole(index))?,
        })
    }

    /// Replaces a placeholder of a vector where a list is expected. Other placeholders are left for [`Params::expr`].
    pub(crate) fn replace_list(&mut self, expr: &mut Expr) -> Result<()> {
        if let Some((index, Some(ParamValue::Vector(_)))) = self.placeholder(expr)? {
            *expr = parse(&function::list(index))?;
        }
        Ok(())
    }

    /// Replaces the placeholders of vectors in the arguments of a function over lists.
    pub(crate) fn replace_list_arguments(&mut self, function: &mut Function) -> Result<()> {
        if !takes_lists(&function.name.to_string().to_ascii_lowercase()) {
            return Ok(());
        }
        let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
        list.args.iter_mut().try_for_each(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => self.replace_list(expr),
            _ => Ok(()),
        })
    }

    /// Replaces `$1` in `x IN ($1)` by the elements of the parameter if the parameter is a list.
    pub(crate) fn expand_in(&mut self, expr: &mut Expr) -> Result<()> {
        let Expr::InList { expr: tested, list, negated } = expr else { return Ok(()) };
        let mut expanded = Vec::with_capacity(list.len());
        for item in std::mem::take(list) {
            let found = self.placeholder(&item)?.and_then(|(index, value)| Some((index, value::list_length(value?)?)));
            match found {
                None => expanded.push(item),
                Some((index, length)) => {
                    let elements = (0..length).map(|element| parse(&function::element(index, element)));
                    expanded.extend(elements.collect::<Result<Vec<_>>>()?);
                }
            }
        }
        *list = expanded;
        if list.is_empty() {
            // An empty list contains nothing, not even NULL. The expression keeps `x`, so that `x` is still checked.
            let is_null = Box::new(Expr::IsNull(tested.clone()));
            let (op, constant) = if *negated { (BinaryOperator::Or, true) } else { (BinaryOperator::And, false) };
            let constant = Box::new(literal(Value::Boolean(constant)));
            *expr = Expr::Nested(Box::new(Expr::BinaryOp { left: is_null, op, right: constant }));
        }
        Ok(())
    }

    /// Returns the parameter if the expression is a placeholder, also in parentheses.
    fn placeholder(&mut self, expr: &Expr) -> Result<Option<Found<'a>>> {
        match expr {
            Expr::Nested(inner) => self.placeholder(inner),
            Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) => self.value(name).map(Some),
            _ => Ok(None),
        }
    }

    /// Refuses a parameter that the query does not use: it is a mistake in the query.
    pub(crate) fn check_all_used(&self) -> Result<()> {
        match self.used.iter().position(|used| !used) {
            Some(index) if self.values.is_none() => Err(Error::refused(
                format!("parameter ${} is not used in the query", index + 1),
                format!("the query names ${}", self.len()),
            )),
            Some(index) => Err(Error::refused(
                format!("parameter ${} is not used in the query", index + 1),
                format!("{} parameters were given", self.len()),
            )),
            None => Ok(()),
        }
    }
}

/// Tells whether a function works on lists of any values, in contrast to vectors.
fn takes_lists(function: &str) -> bool {
    let named = ["array_", "list_"].iter().any(|prefix| function.starts_with(prefix));
    named || matches!(function, "cardinality" | "empty" | "flatten" | "unnest")
}

fn literal(value: Value) -> Expr {
    Expr::Value(value.with_empty_span())
}

fn parse(text: &str) -> Result<Expr> {
    Parser::new(&GenericDialect)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| Error::internal(format!("parameter as SQL: {error}")))
}
