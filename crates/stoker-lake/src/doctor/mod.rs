//! A report on what the layout of a table costs, with remedies.
//!
//! ```text
//! footers ──survey──► ColumnSurvey ──layout──► ColumnLayout ──► verdict: dense, decoder or light
//!                          └───────column.rs───► findings of columns     example.rs: Python that mends them
//! manifest ────────────────fragments.rs────────► findings of the table
//! ```

mod column;
mod example;
mod fragments;
mod unchecked;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::column::ColumnCase;
use crate::{ColumnLayout, Result, Table};

/// The layout of a table's columns, and what about the table costs speed or safety.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The layout of each column, in the order of the schema.
    pub columns: Vec<ColumnLayout>,
    /// The findings about columns in the order of the schema, then those about the table.
    pub findings: Vec<Finding>,
}

/// A property of a table's layout that costs speed or safety.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The column; `None` for the table as a whole.
    #[serde(default)]
    pub column: Option<String>,
    /// A stable identifier of the kind of finding, for programs: `nulls`, `no_checksums`, ….
    pub code: String,
    /// What was found, and in which fragments.
    pub what: String,
    /// What it costs.
    pub cost: String,
    /// What to do about it.
    pub remedy: String,
    /// Lines of Python that apply the remedy, where `lake` is a connection to this lake.
    #[serde(default)]
    pub example: Option<String>,
}

/// How the bytes of a column are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Dense: bytes are read at the offsets in the page table, directly into batches.
    Dense,
    /// Heavy but not dense: bytes are read through Lance's decoder.
    Decoder,
    /// Neither heavy nor dense: bytes are read through Lance's decoder too, which is cheap for few bytes.
    Light,
}

impl Verdict {
    /// `dense`, `decoder` or `light`.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Dense => "dense",
            Verdict::Decoder => "decoder",
            Verdict::Light => "light",
        }
    }
}

impl ColumnLayout {
    /// How the bytes of the column are read.
    pub fn verdict(&self) -> Verdict {
        match (self.dense, self.heavy) {
            (true, _) => Verdict::Dense,
            (false, true) => Verdict::Decoder,
            (false, false) => Verdict::Light,
        }
    }
}

impl Table {
    /// Reports the layout of the table, what about it costs speed or safety, and what to do about that. Reads the
    /// footers of all data files.
    ///
    /// # Errors
    /// `DataCorrupt` for unreadable footers; storage errors.
    pub async fn doctor(&self) -> Result<Diagnosis> {
        let (mut columns, mut findings) = (Vec::new(), Vec::new());
        let mut unchecked = Vec::new();
        for field in self.schema().fields() {
            let survey = self.survey(field).await?;
            let layout = self.layout(field, &survey);
            findings.extend(ColumnCase { table: self, field, survey: &survey, layout: &layout }.findings());
            if !layout.heavy && survey.unchecked.count > 0 {
                unchecked.push((layout.name.clone(), survey.unchecked));
            }
            columns.push(layout);
        }
        findings.extend(unchecked::finding(self, &unchecked));
        findings.extend(fragments::findings(self));
        Ok(Diagnosis { columns, findings })
    }
}

/// Writes a paragraph of several lines. The first one begins with the column and the code.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.column {
            Some(column) => write!(f, "column {column}")?,
            None => f.write_str("table")?,
        }
        let Finding { code, what, cost, remedy, .. } = self;
        write!(f, " [{code}]: {what}\n  costs: {cost}\n  do this: {remedy}")?;
        for line in self.example.iter().flat_map(|example| example.lines()) {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}
