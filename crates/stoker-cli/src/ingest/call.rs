//! Ingests that another program runs, such as Python's `lake.ingest`, with the options of the command.

use std::ffi::OsString;

use clap::Parser;
use stoker::refuse_view;
use stoker_ingest::{IngestReport, Inspection, Progress, RecognisedSources, recognise_sources};
use stoker_lake::LakeStore;
use stoker_types::{ErrorKind, HasKind, SnapshotRef, TableName};

use super::IngestArgs;
use super::work::Work;

/// An ingest with its sources and options, of a kind that was recognised. Nothing is written yet.
pub struct IngestCall {
    found: RecognisedSources,
    work: Work,
    table: TableName,
}

/// Why an ingest failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct IngestFailure {
    kind: ErrorKind,
    message: String,
}

/// The arguments of `stoker ingest` alone.
#[derive(Parser)]
#[command(name = "ingest", no_binary_name = true, disable_help_flag = true)]
struct Arguments {
    #[command(flatten)]
    ingest: IngestArgs,
}

impl IngestCall {
    /// Reads the arguments of `stoker ingest`, without the name of the command, and looks at the sources. The last argument
    /// is the table.
    ///
    /// # Errors
    /// Unknown options, values that they do not have, and options that do not fit the kind; sources that cannot be listed or
    /// that no kind recognises.
    pub async fn try_new(args: Vec<OsString>) -> Result<Self, IngestFailure> {
        let parsed = Arguments::try_parse_from(args).map_err(|error| IngestFailure::invalid(&in_one_line(&error)))?;
        let IngestArgs { kind: _, sources, common, images, declared } = parsed.ingest;
        let sources = sources.ok_or_else(|| IngestFailure::invalid("give a source and a table"))?;
        let common = common.unwrap_or_default();
        let options = common.source_options().map_err(|error| IngestFailure::invalid(&format!("{error:#}")))?;
        let found = recognise_sources(&sources.sources, sources.kind.as_deref(), &options).await;
        let found = found.map_err(IngestFailure::of)?;
        let table = sources.table.clone();
        let work = Work::of_sources(sources, found.kind, common, images, declared);
        Ok(Self { work: work.map_err(|error| IngestFailure::invalid(&format!("{error:#}")))?, found, table })
    }

    /// What the sources are.
    pub fn found(&self) -> &RecognisedSources {
        &self.found
    }

    /// Writes the table. Dropping the future ends the ingest like a kill: the same call continues after the last finished unit.
    ///
    /// # Errors
    /// Those of the ingest. The table does not change.
    pub async fn run(&self, lake: &LakeStore, progress: &dyn Progress) -> Result<IngestReport, IngestFailure> {
        let refused = |error| IngestFailure::from_any(&stoker::Error::from(error).into());
        refuse_view(lake, &self.table).await.map_err(refused)?;
        let report = self.work.run(lake, &self.table, progress).await;
        let report = report.map_err(|error| IngestFailure::from_any(&error))?;
        // A version that cleanups removed would be no version of the table.
        let written = lake.table(&self.table, &SnapshotRef::Version(report.version)).await;
        written.map_err(|error| IngestFailure::from_any(&error.into()))?;
        Ok(report)
    }

    /// Looks what would be written.
    ///
    /// # Errors
    /// Those of the ingest, apart from those of the lake.
    pub async fn inspect(&self) -> Result<Inspection, IngestFailure> {
        self.work.inspect().await.map_err(|error| IngestFailure::from_any(&error))
    }
}

impl IngestFailure {
    fn invalid(message: &str) -> Self {
        Self { kind: ErrorKind::InvalidRequest, message: message.into() }
    }

    fn of(error: stoker_ingest::Error) -> Self {
        Self { kind: error.kind(), message: error.to_string() }
    }

    /// Takes the kind of the first error with one in the chain. Errors without one are those of options.
    fn from_any(error: &anyhow::Error) -> Self {
        let kind = error.chain().find_map(|cause| {
            let of_ingest = cause.downcast_ref::<stoker_ingest::Error>().map(stoker_ingest::Error::kind);
            let of_lake = cause.downcast_ref::<stoker_lake::Error>().map(stoker_lake::Error::kind);
            of_ingest.or(of_lake).or_else(|| cause.downcast_ref::<stoker::Error>().map(stoker::Error::kind))
        });
        Self { kind: kind.unwrap_or(ErrorKind::InvalidRequest), message: format!("{error:#}") }
    }
}

impl HasKind for IngestFailure {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Returns the message of the parser without its usage and hints.
fn in_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = message.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(args: &[&str]) -> (ErrorKind, String) {
        let failure = IngestCall::try_new(args.iter().map(OsString::from).collect()).await.err().expect("refused");
        (failure.kind(), failure.to_string())
    }

    #[tokio::test]
    async fn arguments_are_those_of_the_command() {
        let (kind, text) = refusal(&["--colour=red", "--", "a", "t"]).await;
        assert_eq!((kind, text.as_str()), (ErrorKind::InvalidRequest, "unexpected argument '--colour' found"));
        let (_, text) = refusal(&["--mode=replace", "--", "a", "t"]).await;
        assert!(text.starts_with("invalid value 'replace' for '--mode <MODE>' [possible values: create"), "{text}");
        let (kind, text) = refusal(&["--", "/no/such/folder", "t"]).await;
        assert_eq!(kind, ErrorKind::NotFound, "{text}");
        // A source that is named like a kind is a path.
        let (kind, _) = refusal(&["--", "parquet", "t"]).await;
        assert_eq!(kind, ErrorKind::NotFound);
        let (kind, text) = refusal(&["--", "a", "../t"]).await;
        assert_eq!(kind, ErrorKind::InvalidRequest, "{text}");
    }
}
