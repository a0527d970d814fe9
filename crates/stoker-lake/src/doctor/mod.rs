//! What the layout of a table costs, and what to do about it.
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

/// How a table is stored, and what about it costs speed or safety.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// How each column is stored, in the order of the schema.
    pub columns: Vec<ColumnLayout>,
    /// Findings about columns in the order of the schema, then about the table.
    pub findings: Vec<Finding>,
}

/// Something about the layout of a table that costs speed or safety.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The column; `None` for the table as a whole.
    #[serde(default)]
    pub column: Option<String>,
    /// A word for it that stays, for programs: `nulls`, `no_checksums`, ….
    pub code: String,
    /// What was found, and in which fragments.
    pub what: String,
    /// What it costs.
    pub cost: String,
    /// What to do about it.
    pub remedy: String,
    /// Lines of Python that do it, where `lake` is a connection to the lake itself.
    #[serde(default)]
    pub example: Option<String>,
}

/// How the bytes of a column are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// From the places that the page table names straight into batches.
    Dense,
    /// A heavy column that is not dense: through Lance's decoder.
    Decoder,
    /// Neither heavy nor dense: through Lance's decoder too, which is cheap for few bytes.
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
    /// How the column's bytes are read.
    pub fn verdict(&self) -> Verdict {
        match (self.dense, self.heavy) {
            (true, _) => Verdict::Dense,
            (false, true) => Verdict::Decoder,
            (false, false) => Verdict::Light,
        }
    }
}

impl Table {
    /// How the table is stored, what of it costs speed or safety, and what to do about that. Reads the footers of all
    /// data files.
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

/// A paragraph of several lines, the first of which names column and code.
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
