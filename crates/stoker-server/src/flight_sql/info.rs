//! `GetFlightInfo` and `GetSchema` for commands of Flight SQL.

use std::sync::Arc;

use arrow_flight::sql::Command;
use arrow_flight::{FlightDescriptor, FlightInfo};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use stoker_dialect::is_change;
use stoker_flight_sql::{catalog_schema, command_name, plain_schema};
use stoker_session::{Error, Result};
use stoker_sql::SqlQuery;
use stoker_types::{Principal, QueryOptions, Snapshot, StatementOutcome};
use stoker_wire::proto::{BoundParameters, CatalogTicket, PinnedTable, SqlTicket, ticket_body};

use crate::caller::Caller;
use crate::flight::outcome_unknown;
use crate::flight_sql::do_put::CHANGING;
use crate::state::ServerState;

/// A planned statement.
pub(crate) struct PlannedStatement {
    /// One query for each row of parameters, in order.
    pub queries: Vec<SqlQuery>,
    /// The columns of all of them, with plain types.
    pub schema: SchemaRef,
}

impl PlannedStatement {
    /// The snapshots that the queries read, each once.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let mut distinct: Vec<Snapshot> = Vec::new();
        for snapshot in self.queries.iter().flat_map(SqlQuery::snapshots) {
            if !distinct.contains(snapshot) {
                distinct.push(snapshot.clone());
            }
        }
        distinct
    }
}

impl ServerState {
    /// Plans what a command asks for. A statement that changes the lake is executed, because clients that do not know what
    /// a statement is ask for its rows; the rows tell its outcome.
    ///
    /// # Errors
    /// Those of planning or executing a statement, and no permit for one that changes the lake; `OutcomeUnknown` for an
    /// error after the change; `InvalidRequest` for a command that has no result.
    pub(crate) async fn flight_sql_info(
        &self,
        caller: Caller,
        principal: &Principal,
        descriptor: FlightDescriptor,
        command: Command,
        options: QueryOptions,
    ) -> Result<FlightInfo> {
        let (schema, kind) = match command {
            Command::CommandStatementQuery(statement) => {
                no_transaction(statement.transaction_id.as_deref())?;
                self.statement_info(caller, principal, statement.query, None, options).await?
            }
            Command::CommandPreparedStatementQuery(prepared) => {
                let statement = self.prepared(&prepared.prepared_statement_handle)?;
                self.statement_info(caller, principal, statement.sql, statement.bound, options).await?
            }
            command => match catalog_schema(&command)? {
                Some(schema) => {
                    let ticket = CatalogTicket { command: descriptor.cmd.to_vec(), nonce: self.nonce() };
                    (schema, ticket_body::Kind::Catalog(ticket))
                }
                None => return Err(no_result(&command)),
            },
        };
        let info = FlightInfo::new().try_with_schema(&schema).map_err(Error::internal)?;
        let info = info.with_descriptor(descriptor).with_endpoint(self.endpoint(kind));
        Ok(info.with_total_records(-1).with_total_bytes(-1).with_ordered(true))
    }

    /// Returns the columns of what a command asks for.
    ///
    /// # Errors
    /// As for [`ServerState::flight_sql_info`].
    pub(crate) async fn flight_sql_schema(&self, command: Command) -> Result<Schema> {
        let schema = match command {
            Command::CommandStatementQuery(statement) => {
                no_transaction(statement.transaction_id.as_deref())?;
                self.statement_columns(&statement.query).await?
            }
            Command::CommandPreparedStatementQuery(prepared) => {
                let statement = self.prepared(&prepared.prepared_statement_handle)?;
                match &statement.bound {
                    Some(bound) if !is_change(&statement.sql) => {
                        let options = QueryOptions::default();
                        self.plan_statement(&statement.sql, Some(bound), Vec::new(), options).await?.schema
                    }
                    _ => self.statement_columns(&statement.sql).await?,
                }
            }
            command => catalog_schema(&command)?.ok_or_else(|| no_result(&command))?,
        };
        Ok(Arc::unwrap_or_clone(schema))
    }

    /// Returns the columns of a statement without executing it.
    async fn statement_columns(&self, sql: &str) -> Result<SchemaRef> {
        let described = match is_change(sql) {
            true => self.lake.describe(&outcome_query(&StatementOutcome::default())).await?,
            false => self.lake.describe(sql).await?,
        };
        Ok(plain_schema(&described.columns))
    }

    fn nonce(&self) -> u64 {
        self.environment.random.number()
    }

    async fn statement_info(
        &self,
        caller: Caller,
        principal: &Principal,
        sql: String,
        bound: Option<BoundParameters>,
        options: QueryOptions,
    ) -> Result<(SchemaRef, ticket_body::Kind)> {
        let (sql, bound, planned) = match is_change(&sql) {
            true => {
                self.check_writes(principal, CHANGING)?;
                let _permit = self.result_permit(caller).await?;
                // What keeps the query of an outcome from being planned shows before anything is changed.
                let probe = outcome_query(&StatementOutcome::default());
                self.plan_statement(&probe, None, Vec::new(), options).await?;
                let outcome = outcome_query(&self.change(principal, &sql, bound.as_ref()).await?);
                // The change took effect. A client must not take a later error for one of the statement and repeat it.
                let planned = self.plan_statement(&outcome, None, Vec::new(), options).await;
                (outcome, None, planned.map_err(|error| outcome_unknown(&sql, &error))?)
            }
            false => {
                let planned = self.plan_statement(&sql, bound.as_ref(), Vec::new(), options).await?;
                (sql, bound, planned)
            }
        };
        let pinned = |snapshot: Snapshot| PinnedTable { table: snapshot.table.to_string(), version: snapshot.version };
        let tables = planned.snapshots().into_iter().map(pinned).collect();
        // The text has the queries of views in it, so that the answer has these columns although a view is replaced.
        let sql = planned.queries.first().map_or(sql, |query| query.sql().to_string());
        let (approximate, nonce) = (options.is_approximate(), self.nonce());
        let ticket = SqlTicket { sql, tables, bound, is_flight_sql: true, nonce, approximate, ..SqlTicket::default() };
        // DoGet takes the plans.
        planned.queries.into_iter().for_each(|query| self.lake.keep(query));
        Ok((planned.schema, ticket_body::Kind::Sql(ticket)))
    }

    /// Plans a statement for each row of its parameters. Where it names no version of a table, all rows read the same one:
    /// that of `newest`, which are the snapshots of an earlier plan, or else the newest one.
    ///
    /// # Errors
    /// Those of planning; `InvalidRequest` if the results have different columns.
    pub(crate) async fn plan_statement(
        &self,
        sql: &str,
        bound: Option<&BoundParameters>,
        mut newest: Vec<Snapshot>,
        options: QueryOptions,
    ) -> Result<PlannedStatement> {
        let mut planned: Option<PlannedStatement> = None;
        // A column may be NULL in the result if it may be in that of any row of parameters.
        let mut nullable: Vec<bool> = Vec::new();
        for params in self.executions(bound).await? {
            let query = self.lake.query_with_options(sql, &params, &newest, options).await?;
            if planned.is_none() && newest.is_empty() {
                newest = query.snapshots().to_vec();
            }
            let schema = plain_schema(&query.schema());
            nullable.resize(schema.fields().len(), false);
            nullable.iter_mut().zip(schema.fields()).for_each(|(any, field)| *any |= field.is_nullable());
            match &mut planned {
                None => planned = Some(PlannedStatement { queries: vec![query], schema }),
                Some(planned) if types(&planned.schema).eq(types(&schema)) => planned.queries.push(query),
                Some(planned) => {
                    let number = planned.queries.len() + 1;
                    return Err(Error::invalid(format!(
                        "row {number} of the parameters gives other types of columns than row 1: cast them in the statement"
                    )));
                }
            }
        }
        if let Some(planned) = &mut planned {
            let fields = planned.schema.fields().iter().zip(nullable);
            let fields = fields.map(|(field, nullable)| Arc::new(Field::clone(field).with_nullable(nullable)));
            let fields: Vec<FieldRef> = fields.collect();
            planned.schema = Arc::new(Schema::new_with_metadata(fields, planned.schema.metadata().clone()));
        }
        planned.ok_or_else(|| Error::invalid("the statement is bound to no rows of parameters: bind one or more"))
    }
}

/// Returns a query with one row, which tells the outcome of a statement.
fn outcome_query(outcome: &StatementOutcome) -> String {
    let StatementOutcome { statement, table, version, num_rows, message } = outcome;
    let text = |text: Option<&str>| match text {
        Some(text) => format!("CAST('{}' AS VARCHAR)", text.replace('\'', "''")),
        None => "CAST(NULL AS VARCHAR)".to_string(),
    };
    let number = |number: Option<u64>| match number {
        Some(number) => format!("CAST({number} AS BIGINT)"),
        None => "CAST(NULL AS BIGINT)".to_string(),
    };
    format!(
        "SELECT {} AS statement, {} AS table_name, {} AS version, {} AS num_rows, {} AS message",
        text(Some(statement)),
        text(table.as_deref()),
        number(*version),
        number(*num_rows),
        text(Some(message)),
    )
}

fn types(schema: &Schema) -> impl Iterator<Item = &DataType> {
    schema.fields().iter().map(|field| field.data_type())
}

/// Refuses a statement in a transaction.
pub(super) fn no_transaction(id: Option<&[u8]>) -> Result<()> {
    match id.filter(|id| !id.is_empty()) {
        None => Ok(()),
        Some(_) => Err(Error::invalid("transactions are not supported: each statement is committed by itself")),
    }
}

fn no_result(command: &Command) -> Error {
    Error::invalid(format!("the command {} cannot be planned here", command_name(command)))
}
