//! `CREATE BRANCH` and `DROP BRANCH`.

use stoker_dialect::{NamedVersion, QualifiedName};
use stoker_ingest::forget_ingests;
use stoker_lake::HeldVersions;
use stoker_types::{ErrorKind, StatementOutcome, TableName};

use super::tags::named_version;
use super::{Execution, outcome};
use crate::{Error, Result, table_name};

/// How the URIs of lakes in memory begin.
const IN_MEMORY: &str = "memory://";

/// Executes `CREATE BRANCH`.
pub(super) async fn create(
    execution: Execution<'_>,
    branch: &str,
    if_not_exists: bool,
    table: &QualifiedName,
    at: &NamedVersion,
) -> Result<StatementOutcome> {
    let name = table_name(table)?;
    if execution.lake().uri().starts_with(IN_MEMORY) {
        let reason = "a branch names the files of its table, and files in memory have no names; use a lake in a folder";
        return Err(Error::refused(format!("{} {branch}", execution.kind), reason));
    }
    let newest = execution.table(&name).await?;
    let from = execution.lake().table(&name, &named_version(newest.version(), at)).await?;
    let lake = execution.lake();
    match lake.create_branch(&from, branch, async |branch| forget_ingests(lake, branch).await).await {
        Ok(created) => {
            let began = format!("branch {branch} begins at version {} of {}", from.version(), from.name());
            Ok(outcome(created.name(), created.version(), None, began))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists && if_not_exists => {
            let existing = execution.table(&name.with_branch(branch)?).await?;
            Ok(outcome(existing.name(), existing.version(), None, format!("branch {branch} exists already")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Executes `DROP BRANCH`.
pub(super) async fn drop(
    execution: Execution<'_>,
    branch: &str,
    if_exists: bool,
    table: &QualifiedName,
    cascades: bool,
) -> Result<StatementOutcome> {
    let table = execution.table(&table_name(table)?).await?;
    let name: TableName = table.name().with_branch(branch)?;
    let held = if cascades { HeldVersions::Drop } else { HeldVersions::Refuse };
    let root = name.root().to_string();
    let told = |message: String| StatementOutcome { table: Some(root), message, ..StatementOutcome::default() };
    let lake = execution.lake();
    match lake.drop_branch(&name, held, async |branch| forget_ingests(lake, branch).await).await {
        Ok(()) => Ok(told(format!("branch {branch} is gone with all of its versions"))),
        Err(error) if error.kind() == ErrorKind::NotFound && if_exists => {
            Ok(told(format!("there is no branch {branch}")))
        }
        Err(error) => Err(error.into()),
    }
}
