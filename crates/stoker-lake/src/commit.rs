//! Atomic commits of written fragments.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use lance::Dataset;
use lance::dataset::{CommitBuilder, WriteDestination};
use lance_core::datatypes::Schema;
use lance_file::version::LanceFileVersion;
use lance_table::transaction::{Operation, TransactionBuilder};
use stoker_types::{ErrorKind, TableName};

use crate::write::{FragmentDraft, check_schema};
use crate::{Error, Lake, Result, Table};

/// The transaction property that holds an idempotency key.
const KEY_PROPERTY: &str = "stoker.idempotency_key";

/// How many of the newest transactions are searched for an idempotency key.
const TRANSACTIONS_SEARCHED: usize = 100;

/// What a commit does with rows that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// The table must not exist.
    Create,
    /// The table must exist; rows are added.
    Append,
    /// Rows are added to the table, which is created when it does not exist.
    CreateOrAppend,
    /// The new version holds only these rows.
    Overwrite,
}

impl Lake {
    /// Makes written fragments visible in one atomic step: readers see all of them or none. Returns the new version.
    ///
    /// With an idempotency key, a commit of the same key among the newest 100 is found again instead of repeated.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::NotFound`], [`Error::InvalidData`] for a schema that does not fit, storage errors. The
    /// lake stays as it was.
    pub async fn commit(
        &self,
        name: &TableName,
        schema: &SchemaRef,
        mode: CommitMode,
        fragments: Vec<FragmentDraft>,
        idempotency_key: Option<&str>,
    ) -> Result<u64> {
        let existing = self.try_latest(name).await?;
        if let (Some(table), Some(key)) = (&existing, idempotency_key)
            && let Some(version) = committed(table, key).await?
        {
            return Ok(version);
        }
        let fragments: Vec<_> = fragments.into_iter().map(FragmentDraft::into_fragment).collect();
        let (read_version, operation) = match (mode, &existing) {
            (CommitMode::Create, Some(_)) => {
                return Err(Error::TableExists { table: name.to_string(), lake: self.uri().to_string() });
            }
            (CommitMode::Append, None) => {
                let what = format!("table {name} in {}", self.uri());
                return Err(Error::NotFound { what, hint: "; create it first".into() });
            }
            (CommitMode::Append | CommitMode::CreateOrAppend, Some(table)) => {
                check_schema(name, &table.schema(), schema)?;
                (table.version(), Operation::Append { fragments })
            }
            (CommitMode::Create | CommitMode::CreateOrAppend | CommitMode::Overwrite, existing) => {
                let schema = Schema::try_from(schema.as_ref()).map_err(|source| Error::storage("reading a schema", source))?;
                let operation =
                    Operation::Overwrite { fragments, schema, config_upsert_values: None, initial_bases: None };
                (existing.as_ref().map_or(0, Table::version), operation)
            }
        };
        let strict = existing.is_none();
        let properties = idempotency_key.map(|key| Arc::new(HashMap::from([(KEY_PROPERTY.to_string(), key.to_string())])));
        let transaction = TransactionBuilder::new(read_version, operation).transaction_properties(properties).build();
        let uri = self.table_uri(name);
        let destination = match &existing {
            Some(table) => WriteDestination::Dataset(table.dataset().clone()),
            None => WriteDestination::Uri(&uri),
        };
        let mut commit = CommitBuilder::new(destination)
            .with_store_params(self.inner.params.clone())
            .with_session(self.inner.session.clone())
            .with_storage_format(LanceFileVersion::V2_2);
        if strict {
            // Without retries a table that appears meanwhile is a conflict, not something to overwrite.
            commit = commit.with_max_retries(0);
        }
        match commit.execute(transaction).await {
            Ok(dataset) => self.acknowledge(name, dataset).await,
            Err(source) => {
                let error = Error::storage(format!("committing to table {name} in {}", self.inner.place), source);
                if strict && mode == CommitMode::Create && self.try_latest(name).await?.is_some() {
                    return Err(Error::TableExists { table: name.to_string(), lake: self.uri().to_string() });
                }
                Err(error)
            }
        }
    }

    /// A commit that stalled across a cleanup can be lost although storage accepted it: it counts only when it can be read.
    async fn acknowledge(&self, name: &TableName, dataset: Dataset) -> Result<u64> {
        let version = dataset.manifest().version;
        let newest = self.try_latest(name).await?.map(|table| table.version());
        if newest.is_some_and(|newest| newest >= version) {
            return Ok(version);
        }
        Err(Error::Storage {
            attempted: format!("committing version {version} of table {name}"),
            kind: ErrorKind::Unavailable,
            source: format!("the newest version is {newest:?} afterwards; the commit may be lost, check before retrying").into(),
        })
    }
}

/// The version that was committed under a key.
async fn committed(table: &Table, key: &str) -> Result<Option<u64>> {
    let transactions = table.dataset().get_transactions(TRANSACTIONS_SEARCHED).await;
    let transactions = transactions
        .map_err(|source| Error::storage(format!("reading the transactions of {}", table.snapshot()), source))?;
    let found = transactions.iter().position(|transaction| {
        let properties = transaction.as_ref().and_then(|transaction| transaction.transaction_properties.as_ref());
        properties.and_then(|properties| properties.get(KEY_PROPERTY)).is_some_and(|found| found == key)
    });
    Ok(found.map(|back| table.version().saturating_sub(back as u64)))
}
