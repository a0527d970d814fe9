//! Columns whose values the caller computes, over hours if need be: a job goes on where it, or an earlier process, stopped.
//!
//! ```text
//!           ┌──────────────── the table changed meanwhile ────────────────┐
//!           ▼                                                             │
//! begin ─► plan ──ranges of row addresses──► the caller reads rows ──► write ──► commit ──► a version
//!           ▲                                                             │
//!           └── journal: finished fragments, parts of the one under way ◄─┘
//! ```
//!
//! A fragment whose values are complete has data files, and a record in the journal. The values of a fragment that takes
//! long are recorded from time to time, too. The next call with the same digest takes over what fits the newest version:
//! fragments that have the same rows and, in the columns from which the values are computed, the same files. Deletions
//! and changes of other columns do no harm. So rows that others add, change or move while the job runs are computed before
//! it commits.

mod fragments;
mod journal;
mod parts;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{Field, SchemaRef};
use stoker_clock::Environment;
use stoker_lake::{ChangeNote, LakeStore, NewColumns, OtherRows, Table, WriteOptions};
use stoker_types::{Digest, DigestBuilder, SnapshotRef, TableName};

use self::fragments::Current;
use self::journal::{Begun, ColumnJournal};
use self::parts::KnownRows;
use self::values::ColumnValues;
use crate::writes::Attempts;
use crate::{Error, Result};

/// What happens to the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnMode {
    /// It is new.
    Add,
    /// It exists, and all of its values are computed anew.
    Replace,
    /// It exists, and some rows get new values.
    Fill,
}

/// A column whose values are to be computed.
#[derive(Clone, Debug)]
pub struct ComputedColumn {
    /// The table.
    pub table: TableName,
    /// The column.
    pub name: String,
    /// What happens to it.
    pub mode: ColumnMode,
    /// The columns from which its values are computed.
    pub inputs: Vec<String>,
    /// Whether only some rows are computed, which a predicate over any columns chooses.
    pub has_predicate: bool,
    /// The type as SQL writes it; that of the first values if `None`.
    pub data_type: Option<String>,
    /// What makes the call another one, beside all this: the function, the predicate, options of decoders.
    pub key: String,
    /// The most bytes of a page of a heavy column; the lake's default if `None`.
    pub page_bytes: Option<usize>,
    /// The time after which the values of an unfinished fragment are recorded.
    pub checkpoint: Duration,
}

/// The work that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPlan {
    /// The version of the table whose rows are to be read.
    pub version: u64,
    /// The rows of this version.
    pub num_rows: u64,
    /// The rows whose values are known already.
    pub num_done: u64,
    /// The addresses of the rows that are left: ascending ranges, without their ends.
    pub ranges: Vec<(u64, u64)>,
}

/// A computed column that was begun.
pub struct ColumnJob {
    lake: LakeStore,
    environment: Environment,
    column: ComputedColumn,
    journal: ColumnJournal,
    begun: Begun,
    /// How values become those of the table; `None` before the first values.
    values: Option<ColumnValues>,
    table: Table,
    columns: Option<NewColumns>,
    /// The fragment under way.
    current: Option<Current>,
    /// What earlier calls recorded of fragments that they did not finish.
    parts: BTreeMap<u32, KnownRows>,
    attempts: Attempts,
    /// The version of an earlier commit of the same call.
    committed: Option<u64>,
    /// Whether there is a row with a value.
    has_values: bool,
}

impl ComputedColumn {
    /// The digest by which the same call is known again.
    fn digest(&self, lake: &LakeStore) -> Digest {
        let mode: &[u8] = match self.mode {
            ColumnMode::Add => b"add",
            ColumnMode::Replace => b"replace",
            ColumnMode::Fill => b"fill",
        };
        let digest = DigestBuilder::new("stoker computed column").part(lake.uri().as_bytes());
        let mut digest = digest.part(self.table.as_str().as_bytes()).part(self.name.as_bytes()).part(mode);
        digest.update(&[u8::from(self.has_predicate)]);
        digest.update(self.data_type.as_deref().unwrap_or_default().as_bytes());
        digest.update(self.key.as_bytes());
        self.inputs.iter().for_each(|input| digest.update(input.as_bytes()));
        digest.finish()
    }

    fn what(&self) -> String {
        format!("column {} of table {}", self.name, self.table)
    }
}

impl ColumnJob {
    /// Begins a column, or goes on with one that an earlier call began.
    ///
    /// # Errors
    /// [`Error::Exists`] for a new column that is there already; [`Error::Refused`] for one that is computed anew and is not
    /// there, and for unknown inputs; [`Error::Lake`] for a table that does not exist, and storage errors.
    pub async fn begin(lake: &LakeStore, environment: &Environment, column: ComputedColumn) -> Result<Self> {
        let table = lake.table(&column.table, &SnapshotRef::Latest).await?;
        let journal = ColumnJournal::new(lake, &column.digest(lake));
        let mut committed = None;
        if let Some(begun) = journal.begun().await? {
            committed = commit_of(&table, &begun).await?;
            if committed.is_some() && table.schema().field_with_name(&column.name).is_err() {
                // The column was committed, and is gone again.
                journal.clear().await?;
                committed = None;
            }
        }
        if committed.is_none() {
            check(&column, &table, "")?;
        }
        let (high, low) = (environment.random.number(), environment.random.number());
        let first_id = table.id_for_drafts(high).await?;
        let own = Begun { key: format!("column-{high:016x}{low:016x}"), version: table.version(), first_id };
        let begun = if committed.is_some() { own } else { journal.begin(own).await? };
        let values = match (&column.data_type, journal.schema().await?) {
            (_, Some(schema)) => Some(ColumnValues::of(schema, column.data_type.is_some())),
            (Some(data_type), None) => Some(ColumnValues::declared(&column, &table, data_type)?),
            (None, None) => None,
        };
        Ok(Self {
            lake: lake.clone(),
            environment: environment.clone(),
            column,
            journal,
            begun,
            values,
            table,
            columns: None,
            current: None,
            parts: BTreeMap::new(),
            attempts: Attempts::new(environment),
            committed,
            has_values: false,
        })
    }

    /// Opens the newest version of the table, and finds the rows whose values are not known. Returns `None` if an earlier
    /// call committed the column.
    ///
    /// # Errors
    /// [`Error::Exists`] if others added the column meanwhile; as for [`ColumnJob::begin`]; storage errors.
    pub async fn plan(&mut self) -> Result<Option<ColumnPlan>> {
        if self.committed.is_some() {
            return Ok(None);
        }
        self.drop_columns().await;
        let began_at = self.table.version();
        self.table = self.lake.table(&self.column.table, &SnapshotRef::Latest).await?;
        if let Some(version) = commit_of(&self.table, &self.begun).await? {
            self.committed = Some(version);
            return Ok(None);
        }
        let meanwhile = if self.table.version() == began_at { "" } else { ", which others changed meanwhile" };
        check(&self.column, &self.table, meanwhile)?;
        let (mut done, mut from) = (BTreeSet::new(), BTreeMap::new());
        let mut num_done = 0;
        (self.parts, self.has_values) = (BTreeMap::new(), false);
        if let Some(values) = &self.values {
            let schema = values.schema();
            let mut columns =
                new_columns(&self.lake, &self.table, (&self.column, &schema), self.begun.first_id).await?;
            let (finished, parts) = self.journal.progress().await?;
            for fragment in finished {
                let id = fragment.draft.fragment();
                if self.lake.column_draft_exists(&self.column.table, &fragment.draft).await? {
                    let has_values = fragment.num_rows > 0;
                    if columns.adopt(fragment.draft) {
                        done.insert(id);
                        self.has_values |= has_values;
                    }
                }
            }
            for (fragment, paths) in parts {
                if done.contains(&u64::from(fragment)) {
                    continue;
                }
                let Ok(source) = columns.source_of(fragment) else { continue };
                let known = self.journal.known_rows(&source, paths).await?;
                if let Some(last) = known.last {
                    from.insert(fragment, last + 1);
                    num_done += known.num_rows;
                    self.parts.insert(fragment, known);
                }
            }
            self.columns = Some(columns);
        }
        let mut fragments = self.table.fragments();
        fragments.retain(|fragment| fragment.num_rows > 0);
        fragments.sort_unstable_by_key(|fragment| fragment.id);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut is_open = false;
        for fragment in &fragments {
            let id = u64::from(fragment.id);
            if done.contains(&id) {
                num_done += fragment.num_rows;
                is_open = false;
                continue;
            }
            let (start, end) = (from.get(&fragment.id).copied().unwrap_or(id << 32), (id + 1) << 32);
            match ranges.last_mut() {
                Some(last) if is_open && start == id << 32 => last.1 = end,
                _ => ranges.push((start, end)),
            }
            is_open = true;
        }
        let (version, num_rows) = (self.table.version(), self.table.num_rows());
        Ok(Some(ColumnPlan { version, num_rows, num_done, ranges }))
    }

    /// Writes the values of rows, which come by ascending address within the ranges of the plan.
    ///
    /// # Errors
    /// [`Error::Refused`] for values that are not those of the column, with the row; storage errors.
    pub async fn write(&mut self, row_addrs: &[u64], values: &RecordBatch) -> Result<()> {
        if row_addrs.is_empty() {
            return Ok(());
        }
        if self.values.is_none() {
            let found = ColumnValues::inferred(&self.column, &self.table, values)?;
            self.journal.put_schema(&found.schema()).await?;
            self.values = Some(found);
        }
        let Some(known) = &self.values else { return Err(Error::internal("a column without a type")) };
        let values = known.fit(&self.column, row_addrs, values)?;
        if self.columns.is_none() {
            let schema = known.schema();
            self.columns =
                Some(new_columns(&self.lake, &self.table, (&self.column, &schema), self.begun.first_id).await?);
        }
        self.has_values = true;
        let mut start = 0;
        for addrs in row_addrs.chunk_by(|one, next| one >> 32 == next >> 32) {
            self.write_part(addrs, values.slice(start, addrs.len())).await?;
            start += addrs.len();
        }
        Ok(())
    }

    /// Commits the column, after all rows of the plan were written. Returns the new version, or `None` if the table changed
    /// meanwhile: the job is planned again then.
    ///
    /// # Errors
    /// [`Error::Contention`] if the table changed again and again; [`Error::Refused`] if no row has a value, so that the
    /// type of the column is unknown; storage errors.
    pub async fn commit(&mut self) -> Result<Option<u64>> {
        if let Some(version) = self.committed {
            self.journal.clear().await?;
            return Ok(Some(version));
        }
        self.end_recorded().await?;
        if self.column.mode == ColumnMode::Fill && !self.has_values {
            self.journal.clear().await?;
            return Ok(Some(self.table.version()));
        }
        let columns = match (self.columns.take(), &self.values) {
            (Some(columns), _) => columns,
            (None, Some(values)) => {
                new_columns(&self.lake, &self.table, (&self.column, &values.schema()), self.begun.first_id).await?
            }
            (None, None) => {
                return Err(Error::refused(
                    self.column.what(),
                    "no row has a value, so that the type of the column is not known: give it, for example \
                     data_type=\"FLOAT[512]\"",
                ));
            }
        };
        let key = stoker_lake::CommitKey { key: &self.begun.key, since_version: self.begun.version, chosen_at: None };
        let properties = [("stoker.statement".to_string(), "ADD COLUMN".to_string())].into();
        let note = ChangeNote { properties, ..ChangeNote::default() };
        match columns.commit(Some(key), &note).await {
            Ok(version) => {
                self.journal.clear().await?;
                Ok(Some(version))
            }
            Err(error) => {
                self.attempts.after(error.into()).await?;
                Ok(None)
            }
        }
    }

    /// Ends the job. What is in the journal stays for the next call.
    pub async fn abort(mut self) {
        self.drop_columns().await;
    }

    /// Forgets what earlier calls computed.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn forget(&mut self) -> Result<()> {
        if self.committed.is_none() {
            self.journal.clear().await?;
            self.begun = self.journal.begin(self.begun.clone()).await?;
            if self.column.data_type.is_none() {
                self.values = None;
            }
        }
        Ok(())
    }

    async fn drop_columns(&mut self) {
        self.current = None;
        if let Some(columns) = self.columns.take() {
            columns.abort().await;
        }
    }
}

/// Begins the columns with these fields at a version of the table.
async fn new_columns(
    lake: &LakeStore,
    table: &Table,
    (column, schema): (&ComputedColumn, &SchemaRef),
    first_id: i32,
) -> Result<NewColumns> {
    let fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
    let defaults = WriteOptions::default();
    let options = WriteOptions { page_bytes: column.page_bytes.unwrap_or(defaults.page_bytes), ..defaults };
    let columns = match column.mode {
        ColumnMode::Add => lake.add_columns(table, &fields, options).await?,
        ColumnMode::Replace => lake.replace_columns(table, &fields, options).await?,
        ColumnMode::Fill => {
            let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
            lake.fill_columns(table, &names, options).await?
        }
    };
    let is_partial = column.has_predicate && column.mode != ColumnMode::Fill;
    let columns = if is_partial { columns.with_other_rows(OtherRows::Null)? } else { columns };
    let inputs = (!column.has_predicate).then_some(column.inputs.as_slice());
    Ok(columns.with_drafts(inputs, first_id))
}

/// Returns the version of the commit of a job, if it is in the history of the table.
async fn commit_of(table: &Table, begun: &Begun) -> Result<Option<u64>> {
    if table.version() <= begun.version {
        return Ok(None);
    }
    let commits = table.keyed_commits(begun.version).await?;
    Ok(commits.found.into_iter().find(|(_, key)| *key == begun.key).map(|(version, _)| version))
}

/// Checks that a table has the columns that the job needs, and not one that it adds. `meanwhile` says of the table what
/// others did.
fn check(column: &ComputedColumn, table: &Table, meanwhile: &str) -> Result<()> {
    let schema = table.schema();
    let known = || schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
    let exists = schema.field_with_name(&column.name).is_ok();
    match (column.mode, exists) {
        (ColumnMode::Add, true) => {
            return Err(Error::Exists {
                what: format!("{}{meanwhile}{}", column.what(), if meanwhile.is_empty() { "" } else { "," }),
                remedy: "choose another name, or compute it anew with replace=True",
            });
        }
        (ColumnMode::Replace | ColumnMode::Fill, false) => {
            let reason = format!("there is no such column to be computed anew; its columns are: {}", known());
            return Err(Error::refused(format!("{}{meanwhile}", column.what()), reason));
        }
        _ => {}
    }
    match column.inputs.iter().find(|input| schema.field_with_name(input).is_err()) {
        None => Ok(()),
        Some(missing) => {
            let what = format!("{}: table {}{meanwhile} has no column {missing}", column.what(), column.table);
            Err(Error::refused(what, format!("its columns are: {}", known())))
        }
    }
}
