//! `RESTORE`.

use stoker_dialect::{NamedVersion, QualifiedName};
use stoker_types::StatementOutcome;

use super::tags::named_version;
use super::{Execution, outcome};
use crate::{Result, table_name};

/// Executes `RESTORE`: an older version becomes the newest one again, as a version of its own.
pub(super) async fn restore(
    execution: Execution<'_>,
    table: &QualifiedName,
    at: &NamedVersion,
) -> Result<StatementOutcome> {
    let name = table_name(table)?;
    let newest = execution.table(&name).await?;
    let older = execution.lake().table(&name, &named_version(newest.version(), at)).await?;
    let version = execution.lake().restore(&name, older.version(), &execution.note("")).await?;
    let message = format!("its rows and columns are those of version {} again; older versions stay", older.version());
    Ok(outcome(&name, version, Some(older.num_rows()), message))
}
