//! Writes the units of an ingest, resumes them, and commits.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use stoker_lake::{CommitKey, CommitMode, FragmentDraft, LakeStore, Table, TableWriter};

pub(crate) use stoker_types::catch_panic;
use stoker_types::{Digest, DigestBuilder, ErrorKind, SnapshotRef, TableName};

use crate::journal::{Begun, FinishedUnit, Journal, Marker, now_secs};
use crate::known_files::{Choice, FileList, FileLists, ListHead};
use crate::source_file::{LeftOut, SourceFile, digests};
use crate::{Error, FileSizes, IngestReport, Mode, OnError, Progress, Result, Skipped};

/// The most times that the files are chosen again because other ingests of the table commit.
const CHOICES_MAX: usize = 100;

/// One ingest: the target of its rows and its options.
pub(crate) struct Job<'a> {
    pub lake: &'a LakeStore,
    pub table: &'a TableName,
    /// The columns of the table as they are written. Batches may have the tensors of compressed columns.
    pub schema: SchemaRef,
    pub sizes: FileSizes,
    pub mode: Mode,
    pub on_error: OnError,
    pub again: bool,
    /// A digest of the sources, the options, the table and the mode.
    pub digest: DigestBuilder,
    /// The number of files of the source with each other ending.
    pub left_out: BTreeMap<String, u64>,
    /// The source as the user named it, for messages.
    pub root: &'a Path,
    pub progress: &'a dyn Progress,
}

/// A number of source files and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub files: u64,
    pub bytes: u64,
}

/// The result of writing a unit.
pub(crate) struct Written {
    pub fragments: Vec<FragmentDraft>,
    pub rows: u64,
    pub skipped: Vec<Skipped>,
}

/// The deterministic units of some files.
pub(crate) trait Units: Sync {
    /// Returns the size of each unit.
    fn sizes(&self) -> Vec<Size>;

    /// Returns the files that end in a unit, as indices of the files from which the units were made.
    fn files(&self, unit: usize) -> Range<usize>;

    /// Writes one unit with a writer of its own, and reports progress to the job. Returns `None` when the job must
    /// stop.
    fn write(&self, job: &Job<'_>, unit: usize) -> impl Future<Output = Result<Option<Written>>> + Send;
}

/// The sources of an ingest.
pub(crate) trait Source: Sync {
    type Units: Units + Send;

    /// Returns the files that can become rows, in order.
    fn files(&self) -> Vec<SourceFile>;

    /// Makes the units of some of the files, which are given by ascending index.
    fn units(&self, files: &[usize]) -> Self::Units;
}

/// A run that has begun: what it writes, and what earlier attempts wrote.
struct JobRun<U> {
    units: U,
    journal: Journal,
    done: Option<Marker>,
    /// The key of the commit.
    key: String,
    /// The version of the table before the first attempt.
    since_version: u64,
    /// The version of the table with whose files the sources were compared; `None` when they are not compared.
    chosen_at: Option<u64>,
    choice: Choice,
    /// Whether an earlier attempt committed the rows.
    is_committed: bool,
}

/// The work of an ingest, or its report when there is none.
enum Beginning<U> {
    JobRun(Box<JobRun<U>>),
    Nothing(IngestReport),
}

impl Job<'_> {
    /// Creates a writer for one unit.
    pub async fn writer(&self) -> Result<TableWriter> {
        let for_append = self.mode == Mode::Append;
        Ok(self.lake.writer(self.table, &self.schema, for_append, self.sizes.to_options()).await?)
    }

    /// Writes the units that are not in the journal, and commits all units. When another ingest of the table commits
    /// meanwhile, the files are chosen again.
    ///
    /// `skipped` are the files that were skipped before units were made.
    pub async fn run(&self, source: &impl Source, skipped: Vec<Skipped>) -> Result<IngestReport> {
        let files: Arc<[SourceFile]> = source.files().into();
        let mut overtaken: Option<JobRun<_>> = None;
        for attempts_left in (0..CHOICES_MAX).rev() {
            let beginning = self.begin(source, &files, &skipped).await?;
            if let Some(before) = overtaken.take()
                && !matches!(&beginning, Beginning::JobRun(run) if run.key == before.key)
            {
                // Nobody will commit the units of the earlier choice.
                before.journal.clear().await?;
            }
            let run = match beginning {
                Beginning::JobRun(run) => *run,
                Beginning::Nothing(report) => return Ok(report),
            };
            match self.write(&run, &files, skipped.clone()).await {
                Err(Error::Lake(stoker_lake::Error::Overtaken { .. })) if attempts_left > 0 => overtaken = Some(run),
                done => return done,
            }
        }
        Err(Error::internal("ingesting", "no attempt was made"))
    }

    async fn write<U: Units>(
        &self,
        run: &JobRun<U>,
        files: &[SourceFile],
        mut skipped: Vec<Skipped>,
    ) -> Result<IngestReport> {
        let JobRun { units, journal, choice, .. } = run;
        let chosen: Arc<[SourceFile]> = choice.files.iter().map(|index| files[*index].clone()).collect();
        let total = total(&chosen, &skipped);
        self.progress.total(total.files, total.bytes);
        if !skipped.is_empty() {
            self.progress.advance(skipped.len() as u64, 0, 0);
            self.progress.skipped(skipped.len() as u64);
        }
        let (mut fragments, mut digests, mut rows, mut resumed_units) = (Vec::new(), Vec::new(), 0, 0);
        let sizes = units.sizes();
        for (index, size) in sizes.iter().enumerate() {
            let finished = match run.is_committed {
                true => journal.unit(index).await?,
                false => self.finished(journal, index).await?,
            };
            let unit = match finished {
                Some(mut unit) => {
                    self.progress.advance(size.files, unit.rows, size.bytes);
                    let num_skipped: u64 = unit.skipped.iter().map(Skipped::count).sum();
                    if num_skipped > 0 {
                        self.progress.skipped(num_skipped);
                    }
                    resumed_units += 1;
                    let files = units.files(index);
                    if unit.digests.len() != files.len() {
                        unit.digests = digests_of(&chosen, files, &unit.skipped).await?;
                    }
                    unit
                }
                None => match self.write_unit(run, &chosen, index).await? {
                    Some(unit) => unit,
                    None => return Err(Error::Stopped { units_done: index, units: sizes.len() }),
                },
            };
            rows += unit.rows;
            fragments.extend(unit.fragments);
            skipped.extend(unit.skipped);
            digests.extend(unit.digests);
        }
        if rows == 0 {
            journal.clear().await?;
            if choice.known > 0 {
                return Ok(self.nothing_new(choice, total, skipped));
            }
            let mut reason = format!("none of the {} files contains a row", total.files);
            if let Some(first) = skipped.first() {
                reason = format!("{reason}; the first that was skipped: {first}");
            }
            return Err(Error::Empty { path: self.root.to_path_buf(), reason });
        }
        let list = file_list(&chosen, &digests, &skipped);
        let version = self.commit(run, fragments, rows, &list).await?;
        let runs = run.done.as_ref().map_or(0, |done| done.runs) + 1;
        let marker = Marker { runs, run: run.key.clone(), version, rows, skipped: skipped.clone() };
        journal.put_marker(&marker).await?;
        journal.clear().await?;
        let Size { files, bytes } = total;
        let (left_out, known_files) = (self.left_out.clone(), choice.known);
        Ok(IngestReport {
            version,
            rows,
            bytes,
            files,
            skipped,
            left_out,
            known_files,
            resumed_units,
            already_ingested: false,
        })
    }

    /// Writes a unit and records it in the journal. Returns `None` when the job must stop.
    async fn write_unit<U: Units>(
        &self,
        run: &JobRun<U>,
        chosen: &Arc<[SourceFile]>,
        index: usize,
    ) -> Result<Option<FinishedUnit>> {
        let begun_secs = now_secs();
        if self.progress.should_stop() {
            return Ok(None);
        }
        let Some(Written { fragments, rows, skipped }) = run.units.write(self, index).await? else { return Ok(None) };
        let digests = digests_of(chosen, run.units.files(index), &skipped).await?;
        let unit = FinishedUnit { fragments, rows, skipped, digests, begun_secs };
        run.journal.put_unit(index, &unit).await?;
        Ok(Some(unit))
    }

    /// Chooses the files to write, and finds what earlier attempts wrote.
    async fn begin<S: Source>(
        &self,
        source: &S,
        files: &Arc<[SourceFile]>,
        skipped: &[Skipped],
    ) -> Result<Beginning<S::Units>> {
        let digest = self.digest(skipped);
        let total = total(files, skipped);
        loop {
            // The marker is read first, so that the table, which is read after it, contains the commit that the marker
            // names.
            let (mut journal, done) = Journal::open(self.lake.objects(), &digest).await?;
            let existing = existing(self.lake, self.table).await?;
            if let Some(report) = self.already_ingested(existing.as_ref(), done.as_ref(), total).await? {
                if let Some(done) = &done {
                    journal.clear_finished(done).await?;
                }
                return Ok(Beginning::Nothing(report));
            }
            let choice = self.choose(existing.as_ref(), files).await?;
            if choice.files.is_empty() {
                return Ok(Beginning::Nothing(self.nothing_new(&choice, total, skipped.to_vec())));
            }
            let runs = done.as_ref().map_or(0, |done| done.runs);
            let mut run = DigestBuilder::new("stoker ingest run").part(digest.as_bytes()).part(&runs.to_le_bytes());
            if choice.known > 0 {
                choice.files.iter().for_each(|file| run.update(files[*file].absolute.as_bytes()));
            }
            let run = run.finish();
            journal.use_run(&run);
            let is_committed = match (&existing, journal.unit(0).await?) {
                (Some(table), Some(unit)) => table.holds(&unit.fragments),
                _ => false,
            };
            let version = existing.as_ref().map_or(0, Table::version);
            let units = source.units(&choice.files);
            if !is_committed {
                self.check_target(existing.is_some(), &journal, units.sizes().len()).await?;
            }
            let since_version = journal.begin(Begun { version }).await?.version;
            // A process that finished this run meanwhile wrote its marker before it deleted the record of the
            // beginning.
            if journal.marker().await?.map_or(0, |done| done.runs) == runs {
                let chosen_at = (self.mode == Mode::Append && !self.again).then_some(version);
                let key = run.to_string();
                let run = JobRun { units, journal, done, key, since_version, chosen_at, choice, is_committed };
                return Ok(Beginning::JobRun(Box::new(run)));
            }
            journal.clear().await?;
        }
    }

    /// Chooses the files to write: all files, or for an append those that the table does not have.
    async fn choose(&self, existing: Option<&Table>, files: &Arc<[SourceFile]>) -> Result<Choice> {
        let (Some(table), Mode::Append, false) = (existing, self.mode, self.again) else {
            return Ok(Choice::all(files.len()));
        };
        let known = self.lists().known(table).await?;
        let files = files.clone();
        blocking("comparing files with those of the table", move || known.choose(&files)).await
    }

    fn lists(&self) -> FileLists {
        FileLists::new(self.lake.objects(), self.table)
    }

    /// Builds the report for a table that already has all files that can be read.
    fn nothing_new(&self, choice: &Choice, total: Size, skipped: Vec<Skipped>) -> IngestReport {
        IngestReport {
            version: choice.version,
            rows: choice.rows,
            bytes: total.bytes,
            files: total.files,
            skipped,
            left_out: self.left_out.clone(),
            known_files: choice.known,
            resumed_units: 0,
            already_ingested: true,
        }
    }

    /// Returns the digest that identifies the job: its sources, which of them are readable, and the schema of the rows.
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

    /// Returns a report if there is nothing to do: the job's commit is part of the table's history, and for an
    /// overwrite it is the newest version.
    async fn already_ingested(
        &self,
        existing: Option<&Table>,
        done: Option<&Marker>,
        total: Size,
    ) -> Result<Option<IngestReport>> {
        let (Some(table), Some(done), false) = (existing, done, self.again) else { return Ok(None) };
        let there = match self.mode {
            Mode::Create => false,
            Mode::Append => table.history().includes_commit(&done.run, done.version).await?,
            Mode::Overwrite => {
                table.version() == done.version && table.history().includes_commit(&done.run, done.version).await?
            }
        };
        Ok(there.then(|| IngestReport {
            version: done.version,
            rows: done.rows,
            bytes: total.bytes,
            files: total.files,
            skipped: done.skipped.clone(),
            left_out: self.left_out.clone(),
            known_files: total.files,
            resumed_units: 0,
            already_ingested: true,
        }))
    }

    /// Refuses a table that does not fit the mode, before any unit is written.
    async fn check_target(&self, exists: bool, journal: &Journal, units: usize) -> Result<()> {
        match (self.mode, exists) {
            (Mode::Create, true) => {
                // If all units are finished, this job may have created the table and lost the answer. The commit
                // decides.
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

    /// Returns a unit that an earlier run finished with equal or stricter options, and whose files still exist.
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

    /// Commits the rows. The list of the files is written before the commit, and the version is added to it after the
    /// commit.
    async fn commit<U>(
        &self,
        run: &JobRun<U>,
        fragments: Vec<FragmentDraft>,
        rows: u64,
        list: &FileList,
    ) -> Result<u64> {
        let mode = match self.mode {
            Mode::Create => CommitMode::Create,
            Mode::Append => CommitMode::Append,
            Mode::Overwrite => CommitMode::Overwrite,
        };
        let is_complete = self.mode != Mode::Append || !self.again;
        let (key, since_version) = (run.key.clone(), run.since_version);
        let mut head = ListHead { run: key, since_version, version: None, rows, is_complete };
        self.lists().put(&head, list).await?;
        let key = CommitKey { key: &run.key, since_version, chosen_at: run.chosen_at };
        match self.lake.commit(self.table, &self.schema, mode, fragments, Some(key)).await {
            Ok(version) => {
                head.version = Some(version);
                self.lists().put_head(&head).await?;
                Ok(version)
            }
            Err(stoker_lake::Error::TableExists { .. }) => Err(self.table_exists()),
            Err(error) => {
                if error.kind() == ErrorKind::InvalidRequest {
                    // The schema of the table changed meanwhile, so these fragments will never fit.
                    run.journal.clear().await?;
                }
                Err(error.into())
            }
        }
    }

    fn table_exists(&self) -> Error {
        Error::AlreadyExists { table: self.table.to_string(), lake: self.lake.uri().to_string() }
    }
}

/// Counts all files and their bytes. Files that were skipped before units were made count without bytes.
fn total(files: &[SourceFile], skipped: &[Skipped]) -> Size {
    let bytes = files.iter().map(|file| file.stamp.bytes).sum();
    Size { files: (files.len() + skipped.len()) as u64, bytes }
}

/// Computes the digests of the files of a unit.
async fn digests_of(files: &Arc<[SourceFile]>, unit: Range<usize>, skipped: &[Skipped]) -> Result<Vec<Option<Digest>>> {
    let (files, skipped) = (files.clone(), skipped.to_vec());
    blocking("digesting files", move || digests(&files[unit], &skipped)).await
}

/// Builds the list of the files whose rows were written.
fn file_list(files: &[SourceFile], digests: &[Option<Digest>], skipped: &[Skipped]) -> FileList {
    let left_out = LeftOut::of(skipped);
    let written = files.iter().zip(digests).filter(|(file, _)| !left_out.has(file));
    FileList::new(&written.filter_map(|(file, digest)| Some((file, (*digest)?))).collect::<Vec<_>>())
}

/// Opens the table's newest version; returns `None` when the table does not exist.
pub(crate) async fn existing(lake: &LakeStore, table: &TableName) -> Result<Option<Table>> {
    match lake.table(table, &SnapshotRef::Latest).await {
        Ok(table) => Ok(Some(table)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Runs a closure on a thread where it may block.
pub(crate) async fn blocking<T: Send + 'static>(
    attempted: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(source) => Err(Error::internal(attempted, source)),
    }
}
