//! `CREATE VIEW` and `DROP VIEW`.

use stoker_catalog::{create_view, delete_view, replace_view, view_names, view_query};
use stoker_dialect::{Existing, QualifiedName};
use stoker_lake::{LakeStore, PutOutcome};
use stoker_types::{StatementOutcome, TableName};

use super::Execution;
use crate::{Error, Result, table_name};

/// Executes `CREATE VIEW`. The query must be one that can be planned now.
pub(super) async fn create(
    execution: Execution<'_>,
    view: &QualifiedName,
    existing: Existing,
    query: &str,
) -> Result<StatementOutcome> {
    let (lake, name) = (execution.lake(), table_name(view)?);
    if name.branch().is_some() {
        let reason = "only tables have branches; choose a name without '@'";
        return Err(Error::refused(format!("{} {name}", execution.kind), reason));
    }
    if lake.has_table(&name).await? {
        let reason = "there is a table of this name, which would hide the view; choose another name";
        return Err(Error::refused(format!("{} {name}", execution.kind), reason));
    }
    if existing == Existing::Kept && view_query(lake, &name).await?.is_some() {
        return Ok(done(&name, "the view exists already"));
    }
    check(execution, &name, query).await?;
    match existing {
        Existing::Replaced => {
            replace_view(lake, &name, query).await?;
            Ok(done(&name, "the view is stored; its tables are read at their newest versions"))
        }
        Existing::Refused | Existing::Kept => match create_view(lake, &name, query).await? {
            PutOutcome::Created => Ok(done(&name, "the view is stored; its tables are read at their newest versions")),
            PutOutcome::Exists if existing == Existing::Kept => Ok(done(&name, "the view exists already")),
            PutOutcome::Exists => Err(Error::Exists {
                what: format!("view {name}"),
                remedy: "drop it first, or write CREATE OR REPLACE VIEW",
            }),
        },
    }
}

/// Checks that a query can be planned, and that it does not read the view itself, also not through other views.
async fn check(execution: Execution<'_>, name: &TableName, query: &str) -> Result<()> {
    let engine = execution.engine;
    let expanded = engine.expanded(query, Some(name)).await?;
    if engine.relations(&expanded).await?.contains(name.as_str()) {
        let reason = "its query reads the view itself; a view cannot be recursive";
        return Err(Error::refused(format!("{} {name}", execution.kind), reason));
    }
    engine.query(&expanded, &[]).await?;
    Ok(())
}

/// Refuses a new table of a view's name, which would hide the view. A table that exists already may be written.
///
/// # Errors
/// [`Error::Exists`] if there is a view of this name and no table; storage errors.
pub async fn refuse_view(lake: &LakeStore, name: &TableName) -> Result<()> {
    match view_query(lake, name).await?.is_some() && !lake.has_table(name).await? {
        true => Err(Error::Exists {
            what: format!("view {name}"),
            remedy: "a table of this name would hide it: choose another name for the table, or drop the view first",
        }),
        false => Ok(()),
    }
}

/// Executes `DROP VIEW`.
pub(super) async fn drop(lake: &LakeStore, view: &QualifiedName, if_exists: bool) -> Result<StatementOutcome> {
    let name = table_name(view)?;
    if view_query(lake, &name).await?.is_some() {
        delete_view(lake, &name).await?;
        return Ok(done(&name, "the view is gone; streams of it stay as they are"));
    }
    if if_exists {
        return Ok(done(&name, "there is no such view"));
    }
    let reason = match lake.has_table(&name).await? {
        true => "it is a table; write DROP TABLE".to_string(),
        false => {
            let names = view_names(lake).await?;
            let names: Vec<&str> = names.iter().map(TableName::as_str).collect();
            if names.is_empty() {
                "there are no views".to_string()
            } else {
                format!("the views are: {}", names.join(", "))
            }
        }
    };
    Err(Error::NotFound { what: format!("view {name}"), reason })
}

fn done(view: &TableName, message: &str) -> StatementOutcome {
    let table = Some(view.to_string());
    StatementOutcome { table, message: message.to_string(), ..StatementOutcome::default() }
}
