//! `VACUUM`: the cleanup of old versions and of files that no version names.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use stoker_dialect::{QualifiedName, Retained};
use stoker_ingest::{clean_journals, last_listed};
use stoker_lake::{CleanedTable, LakeStore};
use stoker_stream::clean_streams;
use stoker_types::{SnapshotRef, StatementOutcome, StatementProgress, TableName};

use super::{Execution, counted};
use crate::{Error, Result, table_name};

/// How long a version is kept after a newer one replaced it, if the statement does not say.
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// What was removed, or would be.
#[derive(Default)]
struct Removed {
    num_versions: u64,
    num_files: u64,
    bytes: u64,
    num_failed: u64,
    by_table: HashMap<TableName, BTreeSet<u64>>,
}

/// Executes `VACUUM`, of a table with its branches. Only one cleanup of a lake runs at a time. Versions with tags, those that streams hold, and those
/// that were replaced less than a day ago always stay.
pub(super) async fn vacuum(
    execution: Execution<'_>,
    table: Option<&QualifiedName>,
    retain: &Retained,
    is_dry_run: bool,
) -> Result<StatementOutcome> {
    let lake = execution.lake();
    let kept_for = kept_for(retain)?;
    let named = match table {
        Some(table) => Some(execution.table(&table_name(table)?).await?.name().clone()),
        None => None,
    };
    let names = match &named {
        Some(name) => vec![name.clone()],
        None => lake.tables().await?,
    };
    let names = lake.with_branches(names).await?;
    let work = clean(execution, &names, retain, kept_for, is_dry_run);
    let removed = match is_dry_run {
        true => work.await?,
        false => {
            let mut lock = lake.lock_cleanup().await?;
            let removed = lock.while_held(work).await;
            lock.release().await?;
            removed?
        }
    };
    let version = match &named {
        Some(name) => Some(execution.table(name).await?.version()),
        None => None,
    };
    let message = told(&removed, is_dry_run);
    Ok(StatementOutcome { table: named.map(|name| name.to_string()), version, message, ..StatementOutcome::default() })
}

async fn clean(
    execution: Execution<'_>,
    names: &[TableName],
    retain: &Retained,
    kept_for: Duration,
    is_dry_run: bool,
) -> Result<Removed> {
    let lake = execution.lake();
    let mut removed = Removed::default();
    for (done, name) in (0..).zip(names) {
        let total = Some(names.len() as u64);
        let phase = format!("cleaning table {name}");
        (execution.progress)(StatementProgress { phase, done, total, unit: "tables".into() });
        let spare_after = spare_after(lake, name, retain).await?;
        // A table that was just dropped has nothing to clean.
        let Some(cleaned) = lake.clean_table(name, kept_for, spare_after, is_dry_run).await? else { continue };
        removed.add(name, cleaned);
    }
    (execution.progress)(StatementProgress::phase("cleaning what streams and ingests left"));
    let age = lake.retention(kept_for);
    let streams = clean_streams(lake, age, is_dry_run, &removed.by_table).await?;
    removed.num_files += streams.num_specs + streams.num_row_set_objects;
    removed.bytes += streams.bytes;
    removed.num_files += clean_journals(lake, age, is_dry_run).await?;
    Ok(removed)
}

impl Removed {
    fn add(&mut self, name: &TableName, cleaned: CleanedTable) {
        self.num_versions += cleaned.num_versions;
        self.num_files += cleaned.num_files;
        self.bytes += cleaned.bytes;
        self.num_failed += cleaned.num_failed;
        self.by_table.insert(name.clone(), cleaned.versions);
    }
}

/// Returns the version of a table after which all versions stay.
async fn spare_after(lake: &LakeStore, name: &TableName, retain: &Retained) -> Result<Option<u64>> {
    let listed = last_listed(lake, name).await?;
    let Retained::Versions(num_kept) = retain else { return Ok(listed) };
    let table = lake.table(name, &SnapshotRef::Latest).await?;
    let mut versions = table.version_numbers().await?;
    versions.sort_unstable_by(|one, other| other.cmp(one));
    let kept = usize::try_from(*num_kept).ok().and_then(|num_kept| versions.get(num_kept)).copied().unwrap_or(0);
    Ok(Some(listed.map_or(kept, |listed| listed.min(kept))))
}

/// Returns how long versions are kept after they were replaced.
fn kept_for(retain: &Retained) -> Result<Duration> {
    match retain {
        Retained::Default => Ok(KEPT_FOR),
        // The lake keeps versions for its shortest safe time in any case.
        Retained::Versions(_) => Ok(Duration::ZERO),
        Retained::Newer(time) => humantime::parse_duration(time).map_err(|source| {
            Error::refused(format!("VACUUM OLDER THAN '{time}'"), format!("{source}; write a time such as '7 days'"))
        }),
    }
}

fn told(removed: &Removed, is_dry_run: bool) -> String {
    let verb = if is_dry_run { "would remove" } else { "removed" };
    let (versions, files) = (counted(removed.num_versions, "version"), counted(removed.num_files, "file"));
    let mut text = format!("{verb} {versions} and {files} ({:.1} MiB)", removed.bytes as f64 / 1_048_576.0);
    if removed.num_failed > 0 {
        text += &format!("; the store did not delete {}: run it again", counted(removed.num_failed, "file"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let newer = |time: &str| kept_for(&Retained::Newer(time.into()));
        assert_eq!(newer("7 days").expect("a time"), Duration::from_secs(7 * 86_400));
        assert_eq!(newer("12h").expect("a time"), Duration::from_secs(12 * 3_600));
        let error = newer("soon").expect_err("no time").to_string();
        assert!(error.contains("OLDER THAN 'soon'") && error.contains("'7 days'"), "{error}");
    }
}
