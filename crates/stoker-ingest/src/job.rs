//! Runs the units of an ingest, resumes them, and commits.

use std::future::Future;
use std::path::Path;

use arrow_schema::SchemaRef;
pub(crate) use stoker_decode::catch_panic;
use stoker_lake::{CommitKey, CommitMode, FragmentDraft, Lake, Table, TableWriter, WriteOptions};
use stoker_types::{Digest, DigestBuilder, ErrorKind, SnapshotRef, TableName};

use crate::journal::{Begun, FinishedUnit, Journal, Marker, now_secs};
use crate::{Error, IngestReport, Mode, OnError, Progress, Result, Skipped};

/// One ingest: where the rows go and under which rules.
pub(crate) struct Job<'a> {
    pub lake: &'a Lake,
    pub table: &'a TableName,
    pub schema: SchemaRef,
    pub mode: Mode,
    pub on_error: OnError,
    pub again: bool,
    /// Of the sources, the options, the table and the mode.
    pub digest: DigestBuilder,
    /// The source as the user named it, for messages.
    pub root: &'a Path,
    pub progress: &'a dyn Progress,
}

/// Source files and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub files: u64,
    pub bytes: u64,
}

/// What writing a unit gave.
pub(crate) struct Written {
    pub fragments: Vec<FragmentDraft>,
    pub rows: u64,
    pub skipped: Vec<Skipped>,
}

/// The deterministic units of a source.
pub(crate) trait Units: Sync {
    /// The size of each unit.
    fn sizes(&self) -> Vec<Size>;

    /// Writes one unit with a writer of its own, telling the job's progress. `None` when the progress asked to stop.
    fn write(&self, job: &Job<'_>, unit: usize) -> impl Future<Output = Result<Option<Written>>> + Send;
}

impl Job<'_> {
    /// A writer for one unit.
    pub async fn writer(&self) -> Result<TableWriter> {
        let for_append = self.mode == Mode::Append;
        Ok(self.lake.writer(self.table, &self.schema, for_append, WriteOptions::default()).await?)
    }

    /// Writes the units that are not journalled and commits all.
    ///
    /// `skipped` was found before there were units.
    pub async fn run(&self, units: &impl Units, mut skipped: Vec<Skipped>) -> Result<IngestReport> {
        let sizes = units.sizes();
        let unreadable = Size { files: skipped.len() as u64, bytes: 0 };
        let total = sizes
            .iter()
            .fold(unreadable, |sum, size| Size { files: sum.files + size.files, bytes: sum.bytes + size.bytes });
        let digest = self.digest(&skipped);
        let (journal, done, run, begun, committed) = loop {
            // The marker first: a table that is read after it holds what the marker tells of.
            let (mut journal, done) = Journal::open(self.lake.objects(), &digest).await?;
            let existing = existing(self.lake, self.table).await?;
            if let Some(report) = self.already_ingested(existing.as_ref(), done.as_ref(), total).await? {
                if let Some(done) = &done {
                    journal.clear_finished(done).await?;
                }
                return Ok(report);
            }
            let runs = done.as_ref().map_or(0, |done| done.runs);
            let run =
                DigestBuilder::new("stoker ingest run").part(digest.as_bytes()).part(&runs.to_le_bytes()).finish();
            journal.use_run(&run);
            let committed = match (&existing, journal.unit(0).await?) {
                (Some(table), Some(unit)) => table.holds(&unit.fragments),
                _ => false,
            };
            if !committed {
                self.check_target(existing.is_some(), &journal, sizes.len()).await?;
            }
            let begun = journal.begin(Begun { version: existing.as_ref().map_or(0, Table::version) }).await?;
            // Another process that finished this run meanwhile left its marker before it forgot where the run began.
            if journal.marker().await?.map_or(0, |done| done.runs) == runs {
                break (journal, done, run, begun, committed);
            }
            journal.clear().await?;
        };

        self.progress.total(total.files, total.bytes);
        if unreadable.files > 0 {
            self.progress.advance(unreadable.files, 0, 0);
        }
        let (mut fragments, mut rows, mut resumed_units) = (Vec::new(), 0, 0);
        for (index, size) in sizes.iter().enumerate() {
            let finished = match committed {
                true => journal.unit(index).await?,
                false => self.finished(&journal, index).await?,
            };
            let unit = match finished {
                Some(unit) => {
                    self.progress.advance(size.files, unit.rows, size.bytes);
                    resumed_units += 1;
                    unit
                }
                None => {
                    let begun_secs = now_secs();
                    let written = if self.progress.should_stop() { None } else { units.write(self, index).await? };
                    let Some(Written { fragments, rows, skipped }) = written else {
                        return Err(Error::Stopped { units_done: index, units: sizes.len() });
                    };
                    let unit = FinishedUnit { fragments, rows, skipped, begun_secs };
                    journal.put_unit(index, &unit).await?;
                    unit
                }
            };
            rows += unit.rows;
            fragments.extend(unit.fragments);
            skipped.extend(unit.skipped);
        }
        if rows == 0 {
            journal.clear().await?;
            let reason = format!("none of {} files gave a row", total.files);
            return Err(Error::Empty { path: self.root.to_path_buf(), reason });
        }
        let run = run.to_string();
        let key = CommitKey { key: &run, since_version: begun.version };
        let version = self.commit(&journal, fragments, key).await?;
        let runs = done.map_or(0, |done| done.runs) + 1;
        let marker = Marker { runs, run, version, rows, skipped: skipped.clone() };
        journal.put_marker(&marker).await?;
        journal.clear().await?;
        let Size { files, bytes } = total;
        Ok(IngestReport { version, rows, bytes, files, skipped, resumed_units, already_ingested: false })
    }

    /// What identifies the job: its sources, which of them are readable, and what they become.
    fn digest(&self, unreadable: &[Skipped]) -> Digest {
        let mut digest = self.digest.clone();
        for field in self.schema.fields() {
            digest.update(field.name().as_bytes());
            digest.update(format!("{} {}", field.data_type(), field.is_nullable()).as_bytes());
            let mut metadata: Vec<_> = field.metadata().iter().collect();
            metadata.sort_unstable();
            for (key, value) in metadata {
                digest.update(key.as_bytes());
                digest.update(value.as_bytes());
            }
        }
        for skipped in unreadable {
            digest.update(skipped.path.as_bytes());
        }
        digest.finish()
    }

    /// A report when there is nothing to do: appended before, or the table still is what this job made of it.
    async fn already_ingested(
        &self,
        existing: Option<&Table>,
        done: Option<&Marker>,
        total: Size,
    ) -> Result<Option<IngestReport>> {
        let (Some(table), Some(done), false) = (existing, done, self.again) else { return Ok(None) };
        let there = match self.mode {
            Mode::Create => false,
            Mode::Append => table.includes_commit(&done.run, done.version).await?,
            Mode::Overwrite => {
                table.version() == done.version && table.includes_commit(&done.run, done.version).await?
            }
        };
        Ok(there.then(|| IngestReport {
            version: done.version,
            rows: done.rows,
            bytes: total.bytes,
            files: total.files,
            skipped: done.skipped.clone(),
            resumed_units: 0,
            already_ingested: true,
        }))
    }

    /// Refuses a table that does not fit the mode, before any work.
    async fn check_target(&self, exists: bool, journal: &Journal, units: usize) -> Result<()> {
        match (self.mode, exists) {
            (Mode::Create, true) => {
                // All units finished: perhaps this job created the table and its answer was lost. The commit decides.
                for index in 0..units {
                    if self.finished(journal, index).await?.is_none() {
                        return Err(self.table_exists());
                    }
                }
                Ok(())
            }
            (Mode::Append, false) => match self.lake.table(self.table, &SnapshotRef::Latest).await {
                Ok(_) => Ok(()),
                Err(source) if source.kind() == ErrorKind::NotFound => Err(Error::NoTable { source }),
                Err(error) => Err(error.into()),
            },
            _ => Ok(()),
        }
    }

    /// A unit that an earlier run finished under rules at least as strict, and whose files are still there.
    async fn finished(&self, journal: &Journal, index: usize) -> Result<Option<FinishedUnit>> {
        let Some(unit) = journal.unit(index).await? else { return Ok(None) };
        if !unit.is_fresh() || self.on_error == OnError::Fail && !unit.skipped.is_empty() {
            return Ok(None);
        }
        for draft in &unit.fragments {
            if !self.lake.draft_exists(self.table, draft).await? {
                return Ok(None);
            }
        }
        Ok(Some(unit))
    }

    async fn commit(&self, journal: &Journal, fragments: Vec<FragmentDraft>, key: CommitKey<'_>) -> Result<u64> {
        let mode = match self.mode {
            Mode::Create => CommitMode::Create,
            Mode::Append => CommitMode::Append,
            Mode::Overwrite => CommitMode::Overwrite,
        };
        match self.lake.commit(self.table, &self.schema, mode, fragments, Some(key)).await {
            Ok(version) => Ok(version),
            Err(stoker_lake::Error::TableExists { .. }) => Err(self.table_exists()),
            Err(error) => {
                if error.kind() == ErrorKind::InvalidRequest {
                    // The table changed its schema meanwhile: these fragments will never fit.
                    journal.clear().await?;
                }
                Err(error.into())
            }
        }
    }

    fn table_exists(&self) -> Error {
        Error::AlreadyExists { table: self.table.to_string(), lake: self.lake.uri().to_string() }
    }
}

/// The table's newest version, or `None` when it does not exist.
pub(crate) async fn existing(lake: &Lake, table: &TableName) -> Result<Option<Table>> {
    match lake.table(table, &SnapshotRef::Latest).await {
        Ok(table) => Ok(Some(table)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Runs a closure where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    attempted: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(source) => Err(Error::internal(attempted, source)),
    }
}
