//! Executes statements that change a lake, shows their progress, and prints what they did.

use std::io::{IsTerminal, Write, stderr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use futures::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use stoker::{Connection, SqlResult};
use stoker_types::{ParamValue, StatementOutcome, StatementProgress};

use crate::print::{Format, print_rows};

/// The time between two lines of progress if standard error is no terminal, and before the first one.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The time between two pictures of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// Executes one statement, and prints its outcome: as a line, or as one row in the other formats. Dropping the future before
/// the change is committed leaves the lake as it was.
pub async fn execute(
    connection: &Connection,
    sql: &str,
    params: &[ParamValue],
    format: Format,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let display = Display::new();
    let executed = connection.execute(sql, params, &|progress| display.show(&progress)).await;
    drop(display);
    let outcome = executed?;
    match format {
        Format::Table => Ok(writeln!(out, "{outcome}")?),
        Format::Json => Ok(writeln!(out, "{}", serde_json::to_string(&outcome)?)?),
        Format::Csv | Format::Arrow | Format::Parquet => {
            let row = row(&outcome)?;
            let rows = SqlResult { schema: row.schema(), stream: stream::iter([Ok(row)]).boxed() };
            print_rows(out, format, rows).await
        }
    }
}

/// Returns an outcome as one row.
fn row(outcome: &StatementOutcome) -> anyhow::Result<RecordBatch> {
    let text = |text: Option<&str>| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    let number = |number: Option<u64>| Arc::new(UInt64Array::from(vec![number])) as ArrayRef;
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("statement", text(Some(&outcome.statement)), false),
        ("table", text(outcome.table.as_deref()), true),
        ("version", number(outcome.version), true),
        ("num_rows", number(outcome.num_rows), true),
        ("message", text(Some(&outcome.message)), false),
    ])?)
}

/// A spinner on standard error, or plain lines if standard error is no terminal.
struct Display {
    /// Hidden unless standard error is a terminal.
    spinner: ProgressBar,
    last_line: Mutex<Instant>,
}

impl Display {
    fn new() -> Self {
        let spinner = if stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            spinner.set_style(style);
        }
        if !spinner.is_hidden() {
            spinner.enable_steady_tick(TICK);
        }
        Self { spinner, last_line: Mutex::new(Instant::now()) }
    }

    fn show(&self, progress: &StatementProgress) {
        if !self.spinner.is_hidden() {
            self.spinner.set_message(progress.to_string());
            return;
        }
        let mut last_line = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        if last_line.elapsed() >= LINE_INTERVAL {
            *last_line = Instant::now();
            eprintln!("{progress}");
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.spinner.finish_and_clear();
    }
}
