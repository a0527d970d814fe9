//! Ingests of files into a lake of this process.

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};

use stoker::Result;
use stoker_cli::IngestCall;
use stoker_ingest::{IngestReport, Inspection, Progress, Skipped};
use stoker_lake::LakeStore;
use stoker_python::{IngestOutcome, IngestPreview, IngestSkipped, IngestSummary, IngestWatch};

/// Writes the sources to a lake, or tells what would be written if there is none.
///
/// # Errors
/// Those of [`IngestCall`].
pub(crate) async fn ingest(
    lake: Option<&LakeStore>,
    args: Vec<OsString>,
    watch: &IngestWatch,
) -> Result<IngestOutcome> {
    let call = IngestCall::try_new(args).await?;
    let found = call.found();
    watch.files_total.store(found.files, Ordering::Relaxed);
    watch.bytes_total.store(found.bytes, Ordering::Relaxed);
    let kind = found.kind.to_string();
    Ok(match lake {
        Some(lake) => IngestOutcome::Written(summary(kind, call.run(lake, &Counting(watch)).await?)),
        None => IngestOutcome::Preview(preview(call.inspect().await?)),
    })
}

/// Counts what is done.
struct Counting<'a>(&'a IngestWatch);

impl Progress for Counting<'_> {
    fn total(&self, files: u64, bytes: u64) {
        let watch = self.0;
        let set = |number: &AtomicU64, value| number.store(value, Ordering::Relaxed);
        // An ingest that starts over tells the total again.
        [&watch.files, &watch.rows, &watch.bytes, &watch.skipped].into_iter().for_each(|number| set(number, 0));
        set(&watch.files_total, files);
        set(&watch.bytes_total, bytes);
    }

    fn advance(&self, files: u64, rows: u64, bytes: u64) {
        for (number, more) in [(&self.0.files, files), (&self.0.rows, rows), (&self.0.bytes, bytes)] {
            number.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn skipped(&self, num_skipped: u64) {
        self.0.skipped.fetch_add(num_skipped, Ordering::Relaxed);
    }
}

fn summary(kind: String, report: IngestReport) -> IngestSummary {
    let IngestReport { version, rows, bytes, files, skipped, left_out, known_files, resumed_units, .. } = report;
    IngestSummary {
        kind,
        version,
        num_rows: rows,
        num_files: files,
        bytes,
        skipped: skipped.into_iter().map(told).collect(),
        left_out,
        num_known_files: known_files,
        num_resumed_units: resumed_units,
        already_ingested: report.already_ingested,
    }
}

fn preview(found: Inspection) -> IngestPreview {
    let Inspection { kind, files, bytes, rows, skipped, left_out, table_bytes, .. } = found;
    IngestPreview {
        kind,
        num_files: files,
        bytes,
        table_bytes,
        skipped: skipped.into_iter().map(told).collect(),
        left_out,
        rows: Some(rows),
    }
}

fn told(Skipped { path, row, reason, num_more, .. }: Skipped) -> IngestSkipped {
    IngestSkipped { path, row, reason, num_more }
}
