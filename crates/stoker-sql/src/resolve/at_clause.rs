//! Parses `AT (…)`, which selects the version of a table.

use arrow_cast::parse::string_to_timestamp_nanos;
use arrow_schema::DataType;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, TableVersion, UnaryOperator, Value, ValueWithSpan,
};
use stoker_lake::LakeStore;
use stoker_types::{SnapshotRef, TableName};

use crate::params::{Params, constant};
use crate::resolve::{TableRequest, branch_of};
use crate::{Error, Result};

/// The version of a table that a query requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum At {
    /// The newest version, or a version by number or by tag.
    Ref(SnapshotRef),
    /// The newest version that was committed at or before this time, in milliseconds since 1970 UTC.
    Timestamp(i64),
}

/// The value of a literal in the AST, or of a parameter in place of a literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    Int(i64),
    Float(f64),
    Text(String),
    Bool(bool),
    /// A parameter that has no value yet.
    Unbound,
}

const FORMS: &str = "write AT (VERSION => 3), AT (TAG => 'v1'), AT (TIMESTAMP => '2026-01-31T12:00:00Z') or \
                     AT (BRANCH => 'dev'), which may have a version after it";

/// An `AT` clause: a version, and the branch that it is of.
#[derive(Debug)]
pub(crate) struct AtClause {
    at: At,
    branch: Option<String>,
}

impl At {
    /// Whether this may name another version later, although the table has no new one: a tag moves, and the newest version
    /// at a time may be removed.
    pub(crate) fn is_movable(&self) -> bool {
        match self {
            Self::Ref(SnapshotRef::Latest | SnapshotRef::Version(_)) => false,
            Self::Ref(SnapshotRef::Tag(_)) | Self::Timestamp(_) => true,
        }
    }

    /// Reads one `name => value` of an `AT` clause or of the options of a search.
    pub(crate) fn named(name: &str, value: &Expr, params: &mut Params) -> Result<Self> {
        if name == "version" {
            params.expect(value, DataType::Int64);
        }
        let constant = Constant::parse(value, params)?;
        match (name, constant) {
            ("version" | "tag" | "timestamp", Constant::Unbound) => Ok(At::Ref(SnapshotRef::Latest)),
            ("version", Constant::Int(version)) if version >= 0 => {
                Ok(At::Ref(SnapshotRef::Version(version.unsigned_abs())))
            }
            ("tag", Constant::Text(tag)) => Ok(At::Ref(SnapshotRef::Tag(tag))),
            ("timestamp", Constant::Text(text)) => {
                let nanos = string_to_timestamp_nanos(&text)
                    .map_err(|source| Error::refused(format!("timestamp '{text}'"), source.to_string()))?;
                Ok(At::Timestamp(nanos.div_euclid(1_000_000)))
            }
            _ => Err(Error::refused(format!("{name} => {value}"), FORMS)),
        }
    }

    /// Returns the version to open. For a timestamp this lists the versions of the table.
    pub(crate) async fn resolve(&self, lake: &LakeStore, name: &TableName) -> Result<SnapshotRef> {
        let millis = match self {
            At::Ref(at) => return Ok(at.clone()),
            At::Timestamp(millis) => *millis,
        };
        let versions = lake.table(name, &SnapshotRef::Latest).await?.versions().await?;
        let newest = versions.iter().filter(|info| info.timestamp_millis <= millis).map(|info| info.version).max();
        newest.map(SnapshotRef::Version).ok_or_else(|| {
            let oldest = versions.iter().map(|info| info.timestamp_millis).min().unwrap_or_default();
            Error::NotFound {
                what: format!("a version of table {name} at or before {millis} ms since 1970"),
                reason: format!("its oldest version was committed at {oldest} ms"),
            }
        })
    }
}

impl AtClause {
    /// Reads a version clause as sqlparser returns it. Without a clause, the version is the newest one.
    pub(crate) fn parse(version: Option<TableVersion>, params: &mut Params) -> Result<Self> {
        let of_table = |at| Self { at, branch: None };
        match version {
            None => Ok(of_table(At::Ref(SnapshotRef::Latest))),
            Some(TableVersion::Function(clause)) => Self::parse_call(&clause, params),
            Some(TableVersion::VersionAsOf(value)) => At::named("version", &value, params).map(of_table),
            Some(TableVersion::TimestampAsOf(value)) => At::named("timestamp", &value, params).map(of_table),
            Some(other) => Err(Error::refused(other.to_string(), FORMS)),
        }
    }

    /// Reads the function call `AT (name => value)`.
    pub(crate) fn parse_call(clause: &Expr, params: &mut Params) -> Result<Self> {
        let refuse = || Error::refused(clause.to_string(), FORMS);
        let Expr::Function(function) = clause else { return Err(refuse()) };
        let FunctionArguments::List(list) = &function.args else { return Err(refuse()) };
        if !function.name.to_string().eq_ignore_ascii_case("at") {
            return Err(refuse());
        }
        let (mut at, mut branch) = (None, None);
        for arg in &list.args {
            let FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } = arg else { return Err(refuse()) };
            match name.value.to_ascii_lowercase().as_str() {
                "branch" if branch.is_none() => branch = Some(branch_named(value, params)?),
                name if at.is_none() => at = Some(At::named(name, value, params)?),
                _ => return Err(refuse()),
            }
        }
        match (at, branch) {
            (None, None) => Err(refuse()),
            (at, branch) => Ok(Self { at: at.unwrap_or(At::Ref(SnapshotRef::Latest)), branch: branch.flatten() }),
        }
    }

    /// Returns the request of this version of a table.
    pub(crate) fn of(self, table: TableName) -> Result<TableRequest> {
        let name = match self.branch {
            Some(branch) => branch_of(&table, &branch)?,
            None => table,
        };
        Ok(TableRequest { name, at: self.at })
    }
}

/// Reads the name of a branch; `None` for a parameter without a value.
pub(crate) fn branch_named(value: &Expr, params: &mut Params) -> Result<Option<String>> {
    match Constant::parse(value, params)? {
        Constant::Text(branch) => Ok(Some(branch)),
        Constant::Unbound => Ok(None),
        _ => Err(Error::refused(format!("branch => {value}"), FORMS)),
    }
}

impl Constant {
    /// Reads a literal, a negated number, a typed string or a scalar parameter.
    pub(crate) fn parse(expr: &Expr, params: &mut Params) -> Result<Self> {
        let refuse = || Error::refused(format!("{expr}"), "a literal or a parameter is needed here");
        match expr {
            Expr::Value(value) => Self::parse_value(value, params),
            Expr::TypedString(typed) => Self::parse_value(&typed.value, params),
            Expr::Nested(inner) => Self::parse(inner, params),
            Expr::Cast { expr: inner, .. } => Self::parse(inner, params),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => match Self::parse(inner, params)? {
                Constant::Int(value) => Ok(Constant::Int(-value)),
                Constant::Float(value) => Ok(Constant::Float(-value)),
                Constant::Unbound => Ok(Constant::Unbound),
                _ => Err(refuse()),
            },
            _ => Err(refuse()),
        }
    }

    fn parse_value(value: &ValueWithSpan, params: &mut Params) -> Result<Self> {
        let refuse = || Error::refused(format!("{value}"), "a number, a text or a boolean is needed here");
        match &value.value {
            Value::Number(digits, _) => match digits.parse() {
                Ok(value) => Ok(Constant::Int(value)),
                Err(_) => digits.parse().map(Constant::Float).map_err(|_| refuse()),
            },
            Value::SingleQuotedString(text) => Ok(Constant::Text(text.clone())),
            Value::Boolean(value) => Ok(Constant::Bool(*value)),
            Value::Placeholder(name) => match params.value(name)?.1 {
                Some(value) => constant(value).ok_or_else(refuse),
                None => Ok(Constant::Unbound),
            },
            _ => Err(refuse()),
        }
    }
}
