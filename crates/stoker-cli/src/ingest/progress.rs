//! Shows the progress of an ingest.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use stoker_ingest::Progress;

/// The time between two lines of progress if standard error is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A progress bar on standard error, or plain lines if standard error is no terminal.
pub(super) struct Display {
    /// Hidden unless standard error is a terminal.
    bar: ProgressBar,
    lines: bool,
    counts: Mutex<Counts>,
    stop: Arc<AtomicBool>,
}

struct Counts {
    bytes_total: u64,
    bytes: u64,
    files: u64,
    rows: u64,
    skipped: u64,
    started: Instant,
    last_line: Instant,
}

impl Display {
    pub(super) fn new(quiet: bool, stop: Arc<AtomicBool>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if quiet || !terminal { ProgressBar::hidden() } else { ProgressBar::new(0) };
        let style = "{bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {msg} ETA {eta}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        let now = Instant::now();
        let counts = Counts { bytes_total: 0, bytes: 0, files: 0, rows: 0, skipped: 0, started: now, last_line: now };
        Self { bar, lines: !quiet && !terminal, counts: Mutex::new(counts), stop }
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Formats the number of rows that were written, and of files and rows that were skipped.
    fn done(&self) -> String {
        let rows = HumanCount(self.rows);
        match self.skipped {
            0 => format!("{rows} rows"),
            skipped => format!("{rows} rows, {} skipped", HumanCount(skipped)),
        }
    }

    /// Formats the bytes done, the rate and the remaining time as a line for a log.
    fn line(&self) -> String {
        let rate = self.bytes as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        #[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
        let whole_rate = rate as u64;
        if self.bytes_total == 0 {
            // The size of standard input is not known.
            return format!("{}, {}, {}/s", HumanBytes(self.bytes), self.done(), HumanBytes(whole_rate));
        }
        let left = self.bytes_total.saturating_sub(self.bytes) as f64 / rate.max(1.0);
        let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
        format!(
            "{} of {}, {} files, {}, {}/s, {} left",
            HumanBytes(self.bytes),
            HumanBytes(self.bytes_total),
            HumanCount(self.files),
            self.done(),
            HumanBytes(whole_rate),
            HumanDuration(left)
        )
    }
}

impl Progress for Display {
    fn total(&self, _files: u64, bytes: u64) {
        self.bar.set_length(bytes);
        let mut counts = self.counts();
        counts.bytes_total = bytes;
        counts.started = Instant::now();
    }

    fn advance(&self, files: u64, rows: u64, bytes: u64) {
        let mut counts = self.counts();
        counts.bytes += bytes;
        counts.files += files;
        counts.rows += rows;
        self.bar.set_message(counts.done());
        self.bar.inc(bytes);
        if self.lines && counts.last_line.elapsed() >= LINE_INTERVAL {
            counts.last_line = Instant::now();
            eprintln!("{}", counts.line());
        }
    }

    fn skipped(&self, num_skipped: u64) {
        self.counts().skipped += num_skipped;
    }

    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
