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

use stoker_lake::{Result, Table};
use stoker_types::Diagnosis;

use self::column::ColumnCase;
use crate::describe::layout;

/// Reports the layout of a table, what about it costs speed or safety, and what to do about that. Reads the footers of
/// all data files.
///
/// # Errors
/// `DataCorrupt` for unreadable footers; storage errors.
pub async fn doctor(table: &Table) -> Result<Diagnosis> {
    let (mut columns, mut findings) = (Vec::new(), Vec::new());
    let mut unchecked = Vec::new();
    for field in table.schema().fields() {
        let survey = table.survey(field.name()).await?;
        let layout = layout(table, field, &survey);
        findings.extend(ColumnCase { table, field, survey: &survey, layout: &layout }.findings());
        if !layout.heavy && survey.unchecked.count > 0 {
            unchecked.push((layout.name.clone(), survey.unchecked));
        }
        columns.push(layout);
    }
    findings.extend(unchecked::finding(table, &unchecked));
    findings.extend(fragments::findings(table));
    Ok(Diagnosis { columns, findings })
}
