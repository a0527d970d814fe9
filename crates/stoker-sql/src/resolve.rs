//! Rewrites a parsed query so that every relation is pinned.
//!
//! One walk over the AST replaces each table (with its `AT` clause), each call of a table function and each relation of
//! `information_schema` by an internal table name, and records what the name stands for. Then every recorded table is
//! opened at its version.
//! The planner sees only plain table names, so that it cannot drop a version or a named argument.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use arrow_array::RecordBatch;
use arrow_schema::DataType;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Cte, Expr, FunctionArg, FunctionArgExpr, Ident, LimitClause, ObjectName, ObjectNamePart, Query,
    TableAlias, TableFactor, Value, ValueWithSpan, VisitMut, VisitorMut, With, visit_relations,
};
use stoker_catalog::{INFORMATION_SCHEMA, LakeView, TableView, table_functions, view_query};
use stoker_dialect::AT_OPERATOR;
use stoker_lake::{LakeStore, Table};
use stoker_types::{CATALOG, ErrorKind, ParamValue, SCHEMA, Snapshot, SnapshotRef, TableName};

use crate::error::INTERNAL_PREFIX;
use crate::params::{Params, rows_of};
use crate::search::{SEARCHED, SearchCall, SearchFunction, table_argument};
use crate::{Error, Result};

mod at_clause;

pub(crate) use at_clause::{At, AtClause, Constant, branch_named};

/// The table function of the rows that a statement changes, `__stoker_rows(t)`: the columns of `t` and [`ROW_ADDRESS`].
/// Only queries of statements have it.
pub const ADDRESSED_ROWS: &str = "__stoker_rows";

/// The column of row addresses of [`ADDRESSED_ROWS`], `UInt64`.
pub const ROW_ADDRESS: &str = "__stoker_row_address";

/// The table function of the rows of a parameter, `rows($1)`.
const GIVEN_ROWS: &str = "rows";

/// Who wrote a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// A user.
    User,
    /// A statement that changes a table, whose query has parts of the statement's text in it.
    Statement,
}

/// A relation of the query. The rewritten AST refers to it by the [`Requests::relation_name`] of its index.
///
/// Numbers are indices of a table and version in [`Requests::tables`].
pub(crate) enum RelationRequest {
    /// The rows of a table.
    Rows(usize),
    /// The rows of a table and their addresses, for `row_ids`.
    RowIds(usize),
    /// The rows of a table and their addresses, for [`ADDRESSED_ROWS`].
    Addressed(usize),
    /// A search over a table.
    Search(usize, SearchCall),
    /// What is known of a table.
    OfTable(usize, TableView),
    /// What is known of the lake.
    OfLake(LakeView),
    /// The columns of a relation about the lake.
    ColumnsOf(LakeView),
    /// The rows of a parameter, for `rows`.
    Given(RecordBatch),
}

impl RelationRequest {
    /// Returns the index of the table, if the relation has one.
    fn table(&self) -> Option<usize> {
        match self {
            Self::Rows(table)
            | Self::RowIds(table)
            | Self::Addressed(table)
            | Self::Search(table, _)
            | Self::OfTable(table, _) => Some(*table),
            Self::OfLake(_) | Self::ColumnsOf(_) | Self::Given(_) => None,
        }
    }
}

/// A table and the requested version.
#[derive(Clone, PartialEq)]
pub(crate) struct TableRequest {
    pub(crate) name: TableName,
    pub(crate) at: At,
}

/// The tables and relations that a query reads.
#[derive(Default)]
pub(crate) struct Requests {
    /// Distinct tables and versions, in order of first appearance.
    pub(crate) tables: Vec<TableRequest>,
    /// Relations, in order of appearance.
    pub(crate) relations: Vec<RelationRequest>,
    /// For each parameter, its type if it stands for a literal.
    pub(crate) param_types: Vec<Option<DataType>>,
}

impl Requests {
    /// Returns the name by which the planner finds a relation, such as `samples#1`. Plans show this name.
    pub(crate) fn relation_name(&self, index: usize) -> Result<String> {
        let relation = self.relations.get(index);
        let name = relation.and_then(|relation| match relation {
            RelationRequest::OfLake(view) | RelationRequest::ColumnsOf(view) => Some(view.name()),
            RelationRequest::OfTable(_, view) => Some(view.name()),
            RelationRequest::Given(_) => Some(GIVEN_ROWS),
            relation => Some(self.tables.get(relation.table()?)?.name.as_str()),
        });
        let name = name.ok_or_else(|| Error::internal(format!("relation {index} has no table")))?;
        Ok(format!("{name}#{}", index + 1))
    }
}

/// Replaces the relations and the parameters in the query, and returns the relations. Without `params`, parameters stay
/// in the query.
pub(crate) fn rewrite(query: &mut Query, params: Option<&[ParamValue]>, author: Author) -> Result<Requests> {
    let mut rewriter = Rewriter {
        author,
        params: params.map_or_else(Params::unbound, Params::new),
        requests: Requests::default(),
        scopes: Vec::new(),
        withs: Vec::new(),
        with_names: Vec::new(),
    };
    match VisitMut::visit(query, &mut rewriter) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => {
            rewriter.params.check_all_used()?;
            rewriter.check_names()?;
            let param_types = rewriter.params.types();
            Ok(Requests { param_types, ..rewriter.requests })
        }
    }
}

/// The snapshots at which tables are opened.
#[derive(Clone)]
pub(crate) enum Pins {
    /// Each table at the version that the query names.
    Named,
    /// All tables at these snapshots, which must be in the order of the requests.
    All(Vec<Snapshot>),
    /// Tables for which the query names no version, at these snapshots: at the newest one of the table.
    Newest(Vec<Snapshot>),
}

impl Pins {
    /// Returns the version at which a request is opened, if that is pinned.
    fn version(&self, index: usize, request: &TableRequest) -> Option<u64> {
        match self {
            Self::Named => None,
            Self::All(snapshots) => snapshots.get(index).map(|snapshot| snapshot.version),
            Self::Newest(_) if request.at != At::Ref(SnapshotRef::Latest) => None,
            Self::Newest(snapshots) => {
                let of_table = snapshots.iter().filter(|snapshot| snapshot.table == request.name);
                of_table.map(|snapshot| snapshot.version).max()
            }
        }
    }
}

/// The tables of a query, or the first of its names that is a view.
pub(crate) enum Opened {
    Tables(Vec<Table>),
    /// The name of a view, and its query.
    View(TableName, String),
}

/// Opens every table at its version. A name that no table has may be that of a view.
pub(crate) async fn open(lake: &LakeStore, requests: &[TableRequest], pins: &Pins) -> Result<Opened> {
    if let Pins::All(pinned) = pins {
        let names = |names: Vec<&str>| names.join(", ");
        if !pinned.iter().map(|snapshot| &snapshot.table).eq(requests.iter().map(|request| &request.name)) {
            let given = names(pinned.iter().map(|snapshot| snapshot.table.as_str()).collect());
            let wanted = names(requests.iter().map(|request| request.name.as_str()).collect());
            return Err(Error::refused(
                "the snapshots do not belong to the query",
                format!("the snapshots are of the tables [{given}], the query reads [{wanted}]"),
            ));
        }
    }
    let mut tables = Vec::with_capacity(requests.len());
    for (index, request) in requests.iter().enumerate() {
        match open_one(lake, request, pins.version(index, request)).await {
            Ok(table) => tables.push(table),
            Err(error) if error.kind() == ErrorKind::NotFound && !matches!(pins, Pins::All(_)) => {
                if lake.has_table(&request.name).await? {
                    return Err(error);
                }
                let query = view_query(lake, &request.name).await?.ok_or(error)?;
                return Ok(Opened::View(request.name.clone(), query));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Opened::Tables(tables))
}

async fn open_one(lake: &LakeStore, request: &TableRequest, version: Option<u64>) -> Result<Table> {
    let at = match version {
        Some(version) => SnapshotRef::Version(version),
        None => request.at.resolve(lake, &request.name).await?,
    };
    Ok(lake.table(&request.name, &at).await?)
}

struct Rewriter<'a> {
    author: Author,
    params: Params<'a>,
    requests: Requests,
    /// The names of the common table expressions in scope: one list for each enclosing query, innermost query last.
    scopes: Vec<Vec<String>>,
    /// The `WITH` clauses of the enclosing queries, outermost first, with those of their common table expressions that
    /// were visited. A clause is taken out of the AST while its query is visited.
    withs: Vec<Option<With>>,
    /// The names of all common table expressions of the statement.
    with_names: Vec<String>,
}

type Flow = ControlFlow<Box<Error>>;

fn flow(result: Result<()>) -> Flow {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Box::new(error)),
    }
}

impl VisitorMut for Rewriter<'_> {
    type Break = Box<Error>;

    /// Visits the common table expressions in order. The name of each enters the scope after its own query was visited.
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause {
            let numbers = limit.iter().chain(offset.iter().map(|offset| &offset.value));
            numbers.for_each(|number| self.params.expect(number, DataType::Int64));
        }
        self.scopes.push(Vec::new());
        let mut with = query.with.take();
        let ctes = with.as_mut().map(|with| std::mem::take(&mut with.cte_tables)).unwrap_or_default();
        self.withs.push(with);
        for mut cte in ctes {
            cte.query.visit(self)?;
            let name = normalize(&cte.alias.name);
            if name.starts_with(INTERNAL_PREFIX) || name == SEARCHED {
                return flow(Err(Error::refused(format!("name {name}"), "this prefix is reserved")));
            }
            self.with_names.push(name.clone());
            if let Some(scope) = self.scopes.last_mut() {
                scope.push(name);
            }
            if let Some(Some(with)) = self.withs.last_mut() {
                with.cte_tables.push(cte);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        self.scopes.pop();
        query.with = self.withs.pop().flatten();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        flow(self.rewrite_factor(factor))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        flow(self.rewrite_expr(expr))
    }
}

impl Rewriter<'_> {
    fn rewrite_expr(&mut self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) => {
                let name = name.clone();
                *expr = self.params.expr(&name)?;
                Ok(())
            }
            Expr::InList { .. } => self.params.expand_in(expr),
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => self.params.replace_list(right),
            Expr::Function(function) => self.params.replace_list_arguments(function),
            Expr::BinaryOp { op: BinaryOperator::Custom(op), right, .. } if op == AT_OPERATOR => {
                Err(Error::refused(format!("{right}"), "AT (…) may follow a table name only"))
            }
            Expr::Identifier(ident) if ident.value.starts_with(INTERNAL_PREFIX) => {
                Err(Error::refused(format!("name {ident}"), "this prefix is reserved"))
            }
            _ => Ok(()),
        }
    }

    fn rewrite_factor(&mut self, factor: &mut TableFactor) -> Result<()> {
        check_alias(factor)?;
        match factor {
            TableFactor::Table {
                name,
                alias,
                args,
                version,
                with_hints,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                if sample.is_some() {
                    return Err(refuse_sample());
                }
                if !with_hints.is_empty()
                    || *with_ordinality
                    || !partitions.is_empty()
                    || json_path.is_some()
                    || !index_hints.is_empty()
                {
                    return Err(Error::refused(format!("table {name}"), "hints and modifiers are not supported"));
                }
                let version = version.take();
                if let Some(args) = args.take() {
                    if version.is_some() || args.settings.is_some() {
                        return Err(Error::refused(
                            format!("table function {name}"),
                            "put AT (…) after the table inside its arguments",
                        ));
                    }
                    let function = name.to_string().to_ascii_lowercase();
                    let request = self.function(&function, args.args)?;
                    return self.replace(name, alias, function, request);
                }
                if let Some(view) = of_information_schema(name)? {
                    let shown = view.name().to_string();
                    return match version {
                        Some(_) => Err(Error::refused(format!("{name} AT (…)"), "it is about the lake as it is now")),
                        None => self.replace(name, alias, shown, RelationRequest::OfLake(view)),
                    };
                }
                let short = single_name(name)?;
                if self.scopes.iter().flatten().any(|cte| *cte == short) {
                    return match version {
                        Some(_) => Err(Error::refused(format!("{short} AT (…)"), "it is a WITH query, not a table")),
                        None => Ok(()),
                    };
                }
                let request = AtClause::parse(version, &mut self.params)?.of(table_name(&short)?)?;
                let table = self.table(request);
                self.replace(name, alias, short, RelationRequest::Rows(table))
            }
            TableFactor::UNNEST { array_exprs, .. } => array_exprs.iter_mut().try_for_each(|list| match list {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => Err(Error::refused(
                    format!("UNNEST({list}) in FROM"),
                    "unnest a column in a subquery: FROM (SELECT *, unnest(column) AS value FROM …)",
                )),
                list => self.params.replace_list(list),
            }),
            TableFactor::Derived { sample: Some(_), .. } => Err(refuse_sample()),
            TableFactor::Function { name, .. } => {
                Err(Error::refused(format!("LATERAL {name}(…)"), "table functions cannot depend on other tables here"))
            }
            _ => Ok(()),
        }
    }

    /// Rewrites a subquery that is planned by itself, and gives it the common table expressions that it names.
    fn rewrite_separate(&mut self, query: &mut Query) -> Result<()> {
        if let ControlFlow::Break(error) = query.visit(self) {
            return Err(*error);
        }
        let own: Vec<String> = query.with.iter().flat_map(|with| &with.cte_tables).map(cte_name).collect();
        let mut needed = relation_names(query);
        needed.retain(|name| !own.contains(name));
        let mut taken: Vec<Cte> = Vec::new();
        let enclosing = self.withs.iter().flatten().flat_map(|with| &with.cte_tables).rev();
        for cte in enclosing {
            let name = cte_name(cte);
            if !needed.remove(&name) {
                continue;
            }
            // In one WITH clause, the names of two enclosing clauses could not be told apart.
            if taken.iter().any(|inner| cte_name(inner) == name) {
                return Err(Error::refused(
                    format!("WITH name {name}"),
                    "two queries around the query vector of a search have it; give them different names",
                ));
            }
            needed.extend(relation_names(&cte.query));
            taken.push(cte.clone());
        }
        taken.reverse();
        match (&mut query.with, self.withs.iter().flatten().next_back()) {
            (Some(with), _) => {
                with.cte_tables.splice(0..0, taken);
            }
            (None, Some(around)) if !taken.is_empty() => {
                query.with = Some(With { cte_tables: taken, ..around.clone() });
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// Returns the relation that a call of a table function stands for.
    fn function(&mut self, function: &str, args: Vec<FunctionArg>) -> Result<RelationRequest> {
        if let Some(search) = SearchFunction::named(function) {
            let (table, mut call) = SearchCall::parse(search, args, &mut self.params)?;
            let table = self.table(table);
            if let Some(query) = call.subquery_mut() {
                self.rewrite_separate(query)?;
            }
            return Ok(RelationRequest::Search(table, call));
        }
        let view = match function {
            "functions" if args.is_empty() => return Ok(RelationRequest::OfLake(LakeView::Functions)),
            "functions" => return Err(Error::refused(function, "write functions() without an argument")),
            GIVEN_ROWS => return self.given_rows(&args),
            "row_ids" => None,
            ADDRESSED_ROWS if self.author == Author::Statement => None,
            _ => match TableView::of_function(function) {
                None => {
                    return Err(Error::NotFound {
                        what: format!("table function {function}"),
                        reason: format!("the table functions are: {}", table_functions()),
                    });
                }
                view => view,
            },
        };
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(table))] = args.as_slice() else {
            return Err(Error::refused(function, format!("write {function}(table) or {function}(table AT (…))")));
        };
        if let (Some(TableView::Columns), Expr::CompoundIdentifier(names)) = (view, table)
            && let Some(view) = of_information_schema(&ObjectName::from(names.clone()))?
        {
            return Ok(RelationRequest::ColumnsOf(view));
        }
        let table = table_argument(table, &mut self.params)?;
        let table = self.table(table);
        Ok(match view {
            Some(view) => RelationRequest::OfTable(table, view),
            None if function == ADDRESSED_ROWS => RelationRequest::Addressed(table),
            None => RelationRequest::RowIds(table),
        })
    }

    /// Returns the relation of the rows of a parameter.
    fn given_rows(&mut self, args: &[FunctionArg]) -> Result<RelationRequest> {
        let refuse = |reason| Error::refused(format!("{GIVEN_ROWS}(…)"), reason);
        let form = "write rows($1); the parameter is a list of structs, whose fields are the columns of the rows";
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(ValueWithSpan { value, .. })))] = args else {
            return Err(refuse(form));
        };
        let Value::Placeholder(name) = value else { return Err(refuse(form)) };
        match self.params.value(name)?.1 {
            Some(value) => rows_of(value).map(RelationRequest::Given).ok_or_else(|| refuse(form)),
            None => Err(refuse("its columns are those of the parameter, which has no value yet")),
        }
    }

    /// Refuses a common table expression that has the internal name of a relation and would hide it.
    fn check_names(&self) -> Result<()> {
        for index in 0..self.requests.relations.len() {
            let name = self.requests.relation_name(index)?;
            if self.with_names.contains(&name) {
                return Err(Error::refused(
                    format!("WITH name {name:?}"),
                    "this name is used internally for a table of the query; choose another name",
                ));
            }
        }
        Ok(())
    }

    fn table(&mut self, request: TableRequest) -> usize {
        let known = self.requests.tables.iter().position(|known| *known == request);
        known.unwrap_or_else(|| {
            self.requests.tables.push(request);
            self.requests.tables.len() - 1
        })
    }

    /// Replaces a relation by its internal name, with the name that the user wrote as its alias.
    fn replace(
        &mut self,
        name: &mut ObjectName,
        alias: &mut Option<TableAlias>,
        shown: String,
        request: RelationRequest,
    ) -> Result<()> {
        self.requests.relations.push(request);
        let internal = self.requests.relation_name(self.requests.relations.len() - 1)?;
        *name = ObjectName(vec![ObjectNamePart::Identifier(Ident::with_quote('"', internal))]);
        alias.get_or_insert_with(|| TableAlias {
            explicit: true,
            name: Ident::with_quote('"', shown),
            columns: Vec::new(),
            at: None,
        });
        Ok(())
    }
}

fn cte_name(cte: &Cte) -> String {
    normalize(&cte.alias.name)
}

/// Returns the names of the relations in a query that have one part, as those of common table expressions do.
fn relation_names(query: &Query) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let _: ControlFlow<()> = visit_relations(query, |name| {
        if let Some([name]) = parts(name).as_deref() {
            names.insert(name.clone());
        }
        ControlFlow::Continue(())
    });
    names
}

/// Refuses an alias that has a name of internal relations.
fn check_alias(factor: &TableFactor) -> Result<()> {
    let alias = match factor {
        TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } | TableFactor::UNNEST { alias, .. } => {
            alias
        }
        _ => return Ok(()),
    };
    let Some(alias) = alias else { return Ok(()) };
    let names = std::iter::once(&alias.name).chain(alias.columns.iter().map(|column| &column.name));
    match names.map(normalize).find(|name| name.starts_with(INTERNAL_PREFIX) || name == SEARCHED) {
        Some(name) => Err(Error::refused(format!("alias {name}"), "this name is reserved")),
        None => Ok(()),
    }
}

fn refuse_sample() -> Error {
    Error::refused("TABLESAMPLE", "it is not supported; write a predicate such as id % 10 = 0")
}

/// Returns the name of an identifier. As everywhere in this dialect, unquoted names are converted to lower case.
pub(crate) fn normalize(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

fn parts(name: &ObjectName) -> Option<Vec<String>> {
    name.0.iter().map(|part| part.as_ident().map(normalize)).collect()
}

/// Returns the relation of `information_schema` that a name means; `None` for names in other schemas.
fn of_information_schema(name: &ObjectName) -> Result<Option<LakeView>> {
    let parts = parts(name);
    let view = match parts.as_deref() {
        Some([schema, view]) if schema == INFORMATION_SCHEMA => view,
        Some([catalog, schema, view]) if catalog == CATALOG && schema == INFORMATION_SCHEMA => view,
        _ => return Ok(None),
    };
    let unknown = || Error::NotFound {
        what: format!("table {name}"),
        reason: format!("{INFORMATION_SCHEMA} has: {}", LakeView::names()),
    };
    LakeView::of_information_schema(view).map(Some).ok_or_else(unknown)
}

/// Returns the table part of a name. The schema, if any, must be `public`, and the catalog `lake`.
pub(crate) fn single_name(name: &ObjectName) -> Result<String> {
    let unknown = || Error::NotFound {
        what: format!("table {name}"),
        reason: format!(
            "a lake has one catalog, {CATALOG}, with the schemas {SCHEMA} for tables and {INFORMATION_SCHEMA}"
        ),
    };
    match parts(name).as_deref() {
        Some([table]) => Ok(table.clone()),
        Some([schema, table]) if schema == SCHEMA => Ok(table.clone()),
        Some([catalog, schema, table]) if catalog == CATALOG && schema == SCHEMA => Ok(table.clone()),
        _ => Err(unknown()),
    }
}

pub(crate) fn table_name(name: &str) -> Result<TableName> {
    TableName::try_new(name).map_err(|source| Error::refused(format!("table {name:?}"), source.to_string()))
}

/// The name of a branch of a table.
pub(crate) fn branch_of(table: &TableName, branch: &str) -> Result<TableName> {
    let named = table.with_branch(branch);
    named.map_err(|source| Error::refused(format!("branch {branch:?} of table {table}"), source.to_string()))
}
