//! The engine of this process, for Python.

use std::ffi::OsString;
use std::process::ExitCode;

use futures::FutureExt;
use futures::future::BoxFuture;
use stoker::{ClientOptions, ConnectOptions, Connection, Error, LocalLake, Result, StorageOptions};
use stoker_lake::LakeStore;
use stoker_python::{ColumnRequest, Engine, IngestOutcome, IngestWatch, LakeOptions, OpenColumn};
use stoker_types::TableName;

use crate::column::begin_column;
use crate::ingest::ingest;

/// The engine that is linked into this module.
pub(crate) struct LocalEngine;

impl Engine for LocalEngine {
    fn connect<'a>(
        &'a self,
        target: &'a str,
        client: &'a ClientOptions,
        lake: &'a LakeOptions,
    ) -> BoxFuture<'a, Result<Connection>> {
        async move { stoker::connect(target, &options(client, lake)).await }.boxed()
    }

    fn reconnect<'a>(
        &'a self,
        target: &'a str,
        client: &'a ClientOptions,
        lake: &'a LakeOptions,
    ) -> BoxFuture<'a, Result<Connection>> {
        async move { stoker::reconnect(target, &options(client, lake)).await }.boxed()
    }

    fn begin_column<'a>(
        &'a self,
        connection: &'a Connection,
        request: &'a ColumnRequest,
    ) -> BoxFuture<'a, Result<Box<dyn OpenColumn>>> {
        async move { begin_column(local_of(connection)?, request).await }.boxed()
    }

    fn quarantine<'a>(
        &'a self,
        connection: &'a Connection,
        table: &'a TableName,
        row_addrs: &'a [u64],
        reason: Option<&'a str>,
    ) -> BoxFuture<'a, Result<u64>> {
        async move {
            let done = stoker_maintenance::quarantine(lake_of(connection)?, table, row_addrs, reason).await?;
            Ok(done.version)
        }
        .boxed()
    }

    fn ingest<'a>(
        &'a self,
        connection: Option<&'a Connection>,
        args: Vec<OsString>,
        watch: &'a IngestWatch,
    ) -> BoxFuture<'a, Result<IngestOutcome>> {
        async move { ingest(connection.map(lake_of).transpose()?, args, watch).await }.boxed()
    }

    fn main(&self, args: Vec<OsString>) -> ExitCode {
        stoker_cli::main(args)
    }
}

fn options(client: &ClientOptions, lake: &LakeOptions) -> ConnectOptions {
    ConnectOptions {
        client: client.clone(),
        storage_options: StorageOptions::new(lake.storage_options.clone()),
        cache_dir: lake.cache_dir.clone(),
        cache_bytes: lake.cache_bytes,
        direct_io: lake.direct_io,
        hold_days: lake.hold_days,
    }
}

fn local_of(connection: &Connection) -> Result<&LocalLake> {
    LocalLake::of(connection).ok_or_else(|| Error::internal("a connection without a lake of this process"))
}

fn lake_of(connection: &Connection) -> Result<&LakeStore> {
    Ok(local_of(connection)?.lake())
}
