//! `OPTIMIZE`: small fragments, fragments with deleted rows, and fragments in many files become full ones.

use std::collections::HashMap;

use stoker_dialect::OptimizeTable;
use stoker_lake::{ChangeNote, CompactOptions, Compacted, CompactionPlan, LakeStore, WriteOptions};
use stoker_types::{ProgressSink, StatementOutcome, TableName};

use crate::options::Options;
use crate::writes::{STATEMENT_PROPERTY, counted};
use crate::{Result, table_name};

/// The options of the statement.
const OPTIONS: [&str; 5] = ["rows_per_fragment", "mb_per_fragment", "deleted_percent", "rate_mb_per_sec", "all"];

/// The bytes of a megabyte in these options.
const MB: u64 = 1_000_000;

/// The largest numbers of rows and of megabytes of a fragment, and the highest rate. Row addresses have 32 bits for the
/// row in its fragment.
const ROWS_MAX: usize = u32::MAX as usize;
const MB_MAX: usize = 1_000_000;
const RATE_MB_MAX: usize = 1_000_000;

/// Executes `OPTIMIZE`.
pub(crate) async fn optimize(
    lake: &LakeStore,
    optimize: &OptimizeTable,
    progress: &ProgressSink<'_>,
) -> Result<StatementOutcome> {
    let name = table_name(&optimize.table)?;
    let options = options(optimize)?;
    if optimize.is_dry_run {
        let plan = lake.plan_compaction(&name, &options).await?;
        let num_rows = plan.groups.iter().flat_map(|group| &group.new_rows).sum();
        return Ok(outcome(name, plan.version, num_rows, planned(&plan)));
    }
    let properties = HashMap::from([(STATEMENT_PROPERTY.to_string(), "OPTIMIZE".to_string())]);
    let note = ChangeNote { properties, ..ChangeNote::default() };
    let done = lake.compact(&name, &options, &note, progress).await?;
    Ok(outcome(name, done.version, done.num_rows, told(&done)))
}

fn outcome(table: TableName, version: u64, num_rows: u64, message: String) -> StatementOutcome {
    let table = Some(table.to_string());
    StatementOutcome { table, version: Some(version), num_rows: Some(num_rows), message, ..StatementOutcome::default() }
}

/// Reads the options of a statement.
fn options(optimize: &OptimizeTable) -> Result<CompactOptions> {
    let given = Options::try_new("OPTIMIZE".to_string(), &OPTIONS, &optimize.options)?;
    let defaults = CompactOptions::default();
    let rows = given.number("rows_per_fragment", 1..=ROWS_MAX)?;
    let megabytes = given.number("mb_per_fragment", 1..=MB_MAX)?;
    let percent = given.number("deleted_percent", 1..=100)?;
    let rate = given.number("rate_mb_per_sec", 1..=RATE_MB_MAX)?;
    let bytes = |megabytes: usize| megabytes as u64 * MB;
    let write = WriteOptions {
        rows_per_fragment_max: rows.map_or(defaults.write.rows_per_fragment_max, |rows| rows as u64),
        bytes_per_fragment_max: megabytes.map_or(defaults.write.bytes_per_fragment_max, bytes),
        ..defaults.write
    };
    Ok(CompactOptions {
        write,
        deleted_percent_min: percent.map_or(defaults.deleted_percent_min, |percent| percent as u64),
        rewrites_all: given.switch("all")?.unwrap_or(defaults.rewrites_all),
        bytes_per_sec_max: rate.map(bytes),
    })
}

/// Tells what would be done.
fn planned(plan: &CompactionPlan) -> String {
    let num_old = plan.groups.iter().map(|group| group.fragments.len() as u64).sum::<u64>();
    if num_old == 0 {
        return nothing_to_do();
    }
    let num_new = plan.groups.iter().map(|group| group.new_rows.len() as u64).sum::<u64>();
    let num_rows = plan.groups.iter().flat_map(|group| &group.new_rows).sum();
    let bytes = plan.groups.iter().map(|group| group.bytes).sum::<u64>();
    let mut text = format!(
        "would write {} as {num_new}: {}, {:.1} MB",
        of_all(num_old, plan.num_fragments),
        counted(num_rows, "row"),
        bytes as f64 / MB as f64
    );
    text += &without_deleted(plan.groups.iter().map(|group| group.num_deleted).sum());
    text + &with_indexes(&plan.indexes)
}

/// Tells what was done.
fn told(done: &Compacted) -> String {
    if done.num_fragments == 0 {
        return nothing_to_do();
    }
    let mut text = format!(
        "{} became {}: {}, {:.1} MB",
        counted(done.num_fragments, "fragment"),
        done.num_new_fragments,
        counted(done.num_rows, "row"),
        done.bytes as f64 / MB as f64
    );
    text += &without_deleted(done.num_deleted);
    text += &with_indexes(&done.indexes);
    if done.num_left > 0 {
        text += &format!(
            "; {} stayed, because others changed them meanwhile: run it again",
            counted(done.num_left, "fragment")
        );
    }
    text
}

fn nothing_to_do() -> String {
    "nothing to do: no fragments are small next to each other, lie in many files or have many deleted rows".to_string()
}

fn of_all(num_old: u64, num_all: u64) -> String {
    format!("{num_old} of {}", counted(num_all, "fragment"))
}

fn without_deleted(num_deleted: u64) -> String {
    match num_deleted {
        0 => String::new(),
        num_deleted => format!(", without {}", counted(num_deleted, "deleted row")),
    }
}

fn with_indexes(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => format!("; index {name} follows"),
        names => format!("; indexes {} follow", names.join(", ")),
    }
}
