//! Prints rows to standard output.

use std::io::{IsTerminal, Write, stdout};
use std::sync::Arc;

use anyhow::ensure;
use arrow::csv::WriterBuilder;
use arrow::json::LineDelimitedWriter;
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::pretty::pretty_format_batches;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};
use clap::ValueEnum;
use futures::TryStreamExt;
use serde::Serialize;
use serde_json::{Map, Value};
use stoker::SqlResult;
use stoker_ingest::ParquetRows;

use crate::brief::brief;

/// The maximum number of rows that the table format shows; further rows are only counted.
const TABLE_ROWS_MAX: usize = 1_000;

/// The output format of rows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// Aligned columns for people: the first 1,000 rows, and only the beginning of tensors, long lists and binary
    /// values
    Table,
    /// Comma-separated values with a header
    Csv,
    /// One JSON object for each row, in a line of its own
    #[value(alias = "jsonl")]
    Json,
    /// An Arrow IPC stream
    Arrow,
    /// A Parquet file, compressed with zstd
    Parquet,
}

impl Format {
    /// Refuses a Parquet file on a terminal.
    ///
    /// # Errors
    /// This is the format of Parquet, and standard output is a terminal.
    pub fn check_standard_output(self) -> anyhow::Result<()> {
        ensure!(
            !matches!(self, Format::Parquet) || !stdout().is_terminal(),
            "a Parquet file is no text for a terminal: send standard output to a file, as in `… > rows.parquet`"
        );
        Ok(())
    }

    /// Whether an output has one result alone, because what follows its end is not read.
    pub fn holds_one_result(self) -> bool {
        matches!(self, Format::Arrow | Format::Parquet)
    }
}

/// Prints cells in aligned columns. All rows have as many cells as the first one.
pub fn print_cells(out: &mut impl Write, rows: &[impl AsRef<[String]>]) -> std::io::Result<()> {
    let num_columns = rows.first().map_or(0, |row| row.as_ref().len());
    let width = |column: usize| rows.iter().map(|row| row.as_ref()[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..num_columns).map(width).collect();
    for row in rows {
        let cells: Vec<String> =
            row.as_ref().iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Prints plain values, one line for each with their fields as columns, or as JSON.
pub fn print_values<T: Serialize>(out: &mut impl Write, values: &[T], json: bool) -> anyhow::Result<()> {
    let values = serde_json::to_value(values)?;
    if json {
        return Ok(writeln!(out, "{values:#}")?);
    }
    let objects: Vec<&Map<String, Value>> =
        values.as_array().into_iter().flatten().filter_map(Value::as_object).collect();
    let Some(first) = objects.first() else { return Ok(()) };
    let names: Vec<&String> = first.keys().collect();
    let mut rows = vec![names.iter().map(ToString::to_string).collect::<Vec<_>>()];
    rows.extend(
        objects
            .iter()
            .map(|object| names.iter().map(|name| object.get(*name).map_or_else(String::new, cell)).collect()),
    );
    Ok(print_cells(out, &rows)?)
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.1}", number.as_f64().unwrap_or(0.0)),
        value => value.to_string(),
    }
}

/// Returns the rows with lists, tensors and structs as text, as tables show them: CSV has no nested values.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let (mut fields, mut columns): (Vec<FieldRef>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if !column.data_type().is_nested() {
            fields.push(field.clone());
            columns.push(column.clone());
            continue;
        }
        let options = FormatOptions::default();
        let formatter = ArrayFormatter::try_new(column, &options)?;
        let text = |row| column.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose();
        let texts = (0..column.len()).map(text).collect::<Result<StringArray, ArrowError>>()?;
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        columns.push(Arc::new(texts));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

/// Prints rows as they come.
pub async fn print_rows(mut out: impl Write, format: Format, mut rows: SqlResult) -> anyhow::Result<()> {
    match format {
        Format::Table => {
            let mut shown: Vec<RecordBatch> = vec![brief(&RecordBatch::new_empty(rows.schema.clone()))?];
            let (mut count, mut room) = (0, TABLE_ROWS_MAX);
            while let Some(batch) = rows.stream.try_next().await? {
                count += batch.num_rows();
                let take = batch.num_rows().min(room);
                room -= take;
                shown.push(brief(&batch.slice(0, take))?);
            }
            writeln!(out, "{}", pretty_format_batches(&shown)?)?;
            writeln!(out, "{count} rows{}", if count > TABLE_ROWS_MAX { "; the first 1,000 are shown" } else { "" })?;
        }
        Format::Csv => {
            let mut writer = WriterBuilder::new().with_header(true).build(&mut out);
            writer.write(&flat(&RecordBatch::new_empty(rows.schema.clone()))?)?;
            while let Some(batch) = rows.stream.try_next().await? {
                writer.write(&flat(&batch)?)?;
            }
        }
        Format::Json => {
            let mut writer = LineDelimitedWriter::new(&mut out);
            while let Some(batch) = rows.stream.try_next().await? {
                writer.write(&batch)?;
            }
            writer.finish()?;
        }
        Format::Arrow => {
            let mut writer = StreamWriter::try_new(&mut out, &rows.schema)?;
            while let Some(batch) = rows.stream.try_next().await? {
                writer.write(&batch)?;
            }
            writer.finish()?;
        }
        Format::Parquet => {
            let mut file = ParquetRows::try_new(&rows.schema)?;
            while let Some(batch) = rows.stream.try_next().await? {
                file.write(&batch, &mut out)?;
            }
            file.finish(&mut out)?;
        }
    }
    Ok(out.flush()?)
}
