//! `CREATE TAG` and `DROP TAG`.

use stoker_dialect::{NamedVersion, QualifiedName};
use stoker_types::{SnapshotRef, StatementOutcome, TableName, TagName};

use super::{Execution, outcome};
use crate::{Error, Result, table_name};

/// The beginning of the names of tags by which streams keep versions from cleanups.
const OF_STREAMS: &str = "stoker.";

/// Executes `CREATE TAG`.
pub(super) async fn create(
    execution: Execution<'_>,
    tag: &str,
    if_not_exists: bool,
    table: &QualifiedName,
    at: &NamedVersion,
) -> Result<StatementOutcome> {
    let (name, tag) = (table_name(table)?, tag_name(execution.kind, tag)?);
    let newest = execution.table(&name).await?;
    if if_not_exists && let Some(version) = newest.tags().await?.get(tag.as_str()) {
        return Ok(named(&name, *version, format!("tag {tag} exists already")));
    }
    let tagged = execution.lake().table(&name, &named_version(newest.version(), at)).await?;
    match tagged.create_tag(&tag).await {
        Ok(()) => Ok(named(&name, tagged.version(), format!("tag {tag} names version {}", tagged.version()))),
        // Another statement created the tag meanwhile.
        Err(stoker_lake::Error::TagExists { version, table, .. }) if if_not_exists && table == name.as_str() => {
            Ok(named(&name, version, format!("tag {tag} exists already")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Executes `DROP TAG`.
pub(super) async fn drop(
    execution: Execution<'_>,
    tag: &str,
    if_exists: bool,
    table: &QualifiedName,
) -> Result<StatementOutcome> {
    let (name, tag) = (table_name(table)?, tag_name(execution.kind, tag)?);
    let newest = execution.table(&name).await?;
    let tags = newest.tags().await?;
    match tags.get(tag.as_str()) {
        Some(version) => {
            newest.delete_tag(&tag).await?;
            Ok(named(&name, *version, format!("tag {tag} named version {version}")))
        }
        None if if_exists => Ok(named(&name, newest.version(), format!("there is no tag {tag}"))),
        None => {
            let names: Vec<&str> = tags.keys().map(String::as_str).collect();
            let reason = match names.is_empty() {
                true => format!("no tag names a version of {name}"),
                false => format!("the tags are: {}", names.join(", ")),
            };
            Err(Error::NotFound { what: format!("tag {tag} of table {name}"), reason })
        }
    }
}

/// Returns the version that a statement names.
pub(super) fn named_version(newest: u64, at: &NamedVersion) -> SnapshotRef {
    match at {
        NamedVersion::Newest => SnapshotRef::Version(newest),
        NamedVersion::Number(version) => SnapshotRef::Version(*version),
        NamedVersion::Tag(tag) => SnapshotRef::Tag(tag.clone()),
    }
}

/// Reads the name of a tag, and refuses those of streams.
fn tag_name(kind: &str, tag: &str) -> Result<TagName> {
    match tag.starts_with(OF_STREAMS) {
        true => Err(Error::refused(
            format!("{kind} {tag}"),
            format!("tags whose names begin with {OF_STREAMS} keep versions that streams read; choose another name"),
        )),
        false => Ok(TagName::try_new(tag)?),
    }
}

fn named(table: &TableName, version: u64, message: String) -> StatementOutcome {
    outcome(table, version, None, message)
}
