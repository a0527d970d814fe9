//! Prepared statements: signed handles with a statement and its parameters.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::ActionCreatePreparedStatementResult;
use arrow_flight::{IpcMessage, SchemaAsIpc};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::Schema;
use bytes::Bytes;
use prost::Message;
use stoker_dialect::is_change;
use stoker_flight_sql::plain_schema;
use stoker_lake::{LakeStore, Objects, PutOutcome};
use stoker_session::{Error, Result};
use stoker_types::{Digest, ErrorKind, ParamValue, Principal};
use stoker_wire::convert::params_from_json;
use stoker_wire::proto::{BoundParameters, PreparedStatement, TicketBody, ticket_body};

use crate::flight_sql::do_put::CHANGING;
use crate::state::ServerState;

/// The maximum size in bytes of parameters in a handle. Larger ones are stored in the lake.
const IN_HANDLE_BYTES_MAX: usize = 64 << 10;

/// The maximum size in bytes of the parameters of one statement, as they are sent and as JSON.
pub(super) const BOUND_BYTES_MAX: usize = 16 << 20;

/// The maximum number of rows of parameters of a query, whose results follow one another.
pub(super) const BOUND_ROWS_MAX: usize = 256;

/// The age up to which stored parameters are not written again.
const FRESH: Duration = Duration::from_secs(24 * 3600);

/// The age from which stored parameters may be removed: that of the oldest ticket with them and more, as tickets are
/// valid for 30 days at most, from a handle that is valid as long.
const REMOVED_FROM: Duration = Duration::from_secs(62 * 24 * 3600);

/// Where parameters that are too large for a handle are stored, by their digest.
const PARAMETERS: &str = "parameters";

impl ServerState {
    /// Prepares a statement: returns its handle, its columns and its parameters. One that changes the lake has no columns,
    /// by which drivers know it.
    ///
    /// # Errors
    /// Those of planning the statement; a principal or a server that must not write.
    pub(crate) async fn prepare(
        &self,
        principal: &Principal,
        sql: &str,
    ) -> Result<ActionCreatePreparedStatementResult> {
        if is_change(sql) {
            self.check_writes(principal, CHANGING)?;
            let none = schema_bytes(&Schema::empty())?;
            return Ok(ActionCreatePreparedStatementResult {
                prepared_statement_handle: self.handle(PreparedStatement { sql: sql.to_string(), bound: None }),
                dataset_schema: none.clone(),
                parameter_schema: none,
            });
        }
        let described = self.lake.describe(sql).await?;
        let columns = plain_schema(&described.columns);
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: self.handle(PreparedStatement { sql: sql.to_string(), bound: None }),
            dataset_schema: schema_bytes(&columns)?,
            parameter_schema: schema_bytes(&plain_schema(&Arc::new(Schema::new(described.parameters))))?,
        })
    }

    /// Returns the handle of a prepared statement with other parameters.
    ///
    /// # Errors
    /// A handle that is not valid; parameters above a limit; parameters that cannot be stored.
    pub(crate) async fn bind(&self, principal: &Principal, handle: &[u8], rows: Vec<String>) -> Result<Bytes> {
        let statement = self.prepared(handle)?;
        let bound = BoundParameters { rows, object: String::new() };
        let size = bound.encoded_len();
        if size > BOUND_BYTES_MAX {
            return Err(Error::ResourceExhausted {
                reason: format!(
                    "the parameters of a statement take {size} bytes, the limit is {BOUND_BYTES_MAX}: write them to a \
                     table and join it"
                ),
            });
        }
        let bound = if size > IN_HANDLE_BYTES_MAX { self.store(principal, &bound).await? } else { bound };
        Ok(self.handle(PreparedStatement { bound: Some(bound), ..statement }))
    }

    /// Verifies a handle, and returns its statement.
    ///
    /// # Errors
    /// A handle that was changed, that expired, or that another key signed.
    pub(crate) fn prepared(&self, handle: &[u8]) -> Result<PreparedStatement> {
        let verified = self.signer.verify(handle, self.now_unix_secs()).map_err(|error| match error {
            stoker_wire::Error::InvalidTicket { reason } => stoker_wire::Error::InvalidHandle { reason },
            stoker_wire::Error::ExpiredTicket { reason } => stoker_wire::Error::ExpiredHandle { reason },
            other => other,
        });
        match verified?.kind {
            Some(ticket_body::Kind::Prepared(statement)) => Ok(statement),
            _ => Err(stoker_wire::Error::InvalidHandle { reason: "it is a ticket" }.into()),
        }
    }

    /// Returns the parameters of each execution: one without parameters if none are bound.
    ///
    /// # Errors
    /// Parameters that the lake does not have any more, or that cannot be read.
    pub(crate) async fn executions(&self, bound: Option<&BoundParameters>) -> Result<Vec<Vec<ParamValue>>> {
        let Some(bound) = bound else { return Ok(vec![Vec::new()]) };
        if bound.object.is_empty() {
            return bound.rows.iter().map(|row| Ok(params_from_json(row)?)).collect();
        }
        let gone = |what: &str| stoker_wire::Error::ExpiredHandle { reason: format!("{what} in the lake") };
        let digest: Digest = bound.object.parse()?;
        let bytes = self.lake.lake().objects().get(&path(digest)).await?;
        let bytes = bytes.ok_or_else(|| gone("its parameters are no longer"))?;
        if Digest::of(&bytes) != digest {
            return Err(gone("its parameters are damaged").into());
        }
        let stored = BoundParameters::decode(bytes).map_err(Error::internal)?;
        stored.rows.iter().map(|row| Ok(params_from_json(row)?)).collect()
    }

    /// Stores parameters in the lake, where [`clean_parameters`] removes them later.
    async fn store(&self, principal: &Principal, bound: &BoundParameters) -> Result<BoundParameters> {
        let bytes = Bytes::from(bound.encode_to_vec());
        let digest = Digest::of(&bytes);
        let objects = self.engine_for(principal).lake().objects();
        let stored = match objects.put_if_absent(&path(digest), bytes.clone()).await {
            Ok(PutOutcome::Exists) => refresh(&objects, digest, bytes).await,
            stored => stored.map(|_| ()),
        };
        match stored {
            Ok(()) => Ok(BoundParameters { rows: Vec::new(), object: digest.to_string() }),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::ResourceExhausted {
                reason: format!(
                    "parameters above {IN_HANDLE_BYTES_MAX} bytes are stored in the lake, which cannot be written: {error}"
                ),
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn handle(&self, statement: PreparedStatement) -> Bytes {
        let kind = Some(ticket_body::Kind::Prepared(statement));
        self.signer.sign(TicketBody { kind, ..TicketBody::default() }, self.now_unix_secs()).into()
    }
}

/// Writes stored parameters again if they are damaged, or so old that a cleanup may remove them before they are used.
async fn refresh(objects: &Objects, digest: Digest, bytes: Bytes) -> stoker_lake::Result<()> {
    match objects.get_with_entry(&path(digest)).await? {
        Some((found, entry)) if found == bytes && !entry.is_older_than(FRESH) => Ok(()),
        _ => objects.put(&path(digest), bytes).await,
    }
}

/// Removes stored parameters that are older than `age` and that no ticket can have. A dry run only counts them. Returns their number.
///
/// # Errors
/// Storage errors. Parameters that were removed before the error stay removed.
pub async fn clean_parameters(lake: &LakeStore, age: Duration, dry_run: bool) -> Result<u64> {
    let objects = lake.objects();
    let mut old = objects.entries(PARAMETERS).await?;
    old.retain(|entry| entry.is_older_than(age.max(REMOVED_FROM)));
    if !dry_run {
        for entry in &old {
            objects.delete(&entry.path).await?;
        }
    }
    Ok(old.len() as u64)
}

fn path(digest: Digest) -> String {
    format!("{PARAMETERS}/{digest}")
}

/// Encodes a schema as an IPC message.
fn schema_bytes(schema: &Schema) -> Result<Bytes> {
    let options = IpcWriteOptions::default();
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &options).try_into().map_err(Error::internal)?;
    Ok(bytes)
}
