//! The report of `stoker bench scale`.

use std::io::Write;

use indicatif::HumanCount;
use serde::Serialize;

use crate::report::machine;
use crate::scale::DEFAULT_ROWS;
use crate::scale::bars::{Bar, bars};
use crate::scale::step::{BATCH_ROWS, Made, Opened, Planned, REPEAT};
use crate::scale::table::ScaleTable;

/// All figures of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    version: &'static str,
    cpu: String,
    cores: usize,
    rows: u64,
    num_fragments: usize,
    /// Seconds for writing the table; `None` if the table existed.
    write_secs: Option<f64>,
    queries: Vec<QueryReport>,
    /// Empty unless the table has the default size.
    pub bars: Vec<Bar>,
}

/// The figures of one query.
#[derive(Debug, Serialize)]
pub struct QueryReport {
    pub query: String,
    pub made: Made,
    /// Bytes of the row set's objects in the lake.
    pub bytes_on_disk: u64,
    pub planned: Planned,
    pub opened: Opened,
}

impl Report {
    /// Makes the report; the last query must be the one that keeps half of the rows.
    pub fn new(table: &ScaleTable, queries: Vec<QueryReport>) -> Self {
        let (cpu, cores) = machine();
        let bars = match queries.last() {
            Some(half) if table.rows == DEFAULT_ROWS => bars(&queries, half),
            _ => Vec::new(),
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            cpu,
            cores,
            rows: table.rows,
            num_fragments: table.num_fragments,
            write_secs: table.write_secs,
            queries,
            bars,
        }
    }

    /// Prints two tables, what their columns mean, and the bars.
    pub fn print(&self, out: &mut impl Write) -> anyhow::Result<()> {
        writeln!(
            out,
            "stoker {} on {} ({} cores); a table of {} rows in {} fragments, {}\n",
            self.version,
            self.cpu,
            self.cores,
            HumanCount(self.rows),
            self.num_fragments,
            self.write_secs.map_or("which was there".to_string(), |secs| format!("written in {secs:.1} s")),
        )?;
        self.print_row_sets(out)?;
        writeln!(out)?;
        self.print_epochs(out)?;
        writeln!(out, "\nmade: the row set and the stream; peak: of the process that makes them; loaded: the stream")?;
        writeln!(out, "in memory: as the row set counts, and by which loading it makes the process grow")?;
        writeln!(out, "plan: the order of an epoch, and the addresses of {BATCH_ROWS} rows from a position on")?;
        writeln!(out, "first batch: {BATCH_ROWS} rows, from opening a stream that reads nothing ahead; read: for it")?;
        writeln!(
            out,
            "more: by which the process grows at most while it plans or opens; seconds: medians of {REPEAT}"
        )?;
        if !self.bars.is_empty() {
            writeln!(out)?;
        }
        for bar in &self.bars {
            writeln!(out, "{bar}")?;
        }
        Ok(())
    }

    fn print_row_sets(&self, out: &mut impl Write) -> anyhow::Result<()> {
        writeln!(out, "| query | rows | made s | peak MB | loaded s | in memory MB | grown MB | on disk MB |")?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for report in &self.queries {
            let QueryReport { query, made, bytes_on_disk, planned, opened } = report;
            writeln!(
                out,
                "| {query} | {} | {:.1} | {} | {:.3} | {} | {} | {} |",
                HumanCount(made.rows),
                made.secs,
                megabytes(Some(made.peak_bytes)),
                opened.load_secs,
                megabytes(Some(planned.bytes_in_memory)),
                megabytes(Some(planned.bytes_resident)),
                megabytes(Some(*bytes_on_disk)),
            )?;
        }
        Ok(())
    }

    fn print_epochs(&self, out: &mut impl Write) -> anyhow::Result<()> {
        writeln!(out, "| query | position | plan s | more MB | first batch s | read KB | more MB |")?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|--:|")?;
        for report in &self.queries {
            let (planned, opened) = (&report.planned, &report.opened);
            for (plan, open) in planned.places.iter().zip(&opened.places) {
                writeln!(
                    out,
                    "| {} | {} | {:.4} | {} | {:.3} | {:.1} | {} |",
                    report.query,
                    HumanCount(plan.position),
                    plan.secs,
                    megabytes(plan.bytes),
                    open.first_batch_secs,
                    open.bytes_read as f64 / 1e3,
                    megabytes(opened.bytes),
                )?;
            }
        }
        Ok(())
    }
}

/// Formats a number of bytes in units of 10^6 bytes.
fn megabytes(bytes: Option<u64>) -> String {
    bytes.map_or("–".to_string(), |bytes| format!("{:.1}", bytes as f64 / 1e6))
}
