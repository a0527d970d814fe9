//! The table of bad rows that runs met.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_batch::BAD_ROWS_TABLE;
use stoker_lake::{CommitKey, CommitMode, WriteOptions};
use stoker_sql::Engine;
use stoker_types::{BadRowEntry, TableName};

use crate::{Error, Result};

/// Adds rows to the table of bad rows. If there is a key, rows that were added under the same key are not added again.
///
/// # Errors
/// A table of that name with other columns; storage errors; a lake that cannot be written.
pub async fn log_bad_rows(engine: &Engine, entries: &[BadRowEntry], key: Option<CommitKey<'_>>) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let (name, lake) = (TableName::try_new(BAD_ROWS_TABLE)?, engine.lake());
    let mut writer = lake.writer(&name, &schema(), true, WriteOptions::default()).await?;
    writer.write(&to_batch(entries)?).await?;
    let schema = writer.schema();
    let drafts = writer.finish().await?;
    lake.commit(&name, &schema, CommitMode::CreateOrAppend, drafts, key).await?;
    Ok(())
}

fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let number = |name: &str| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![
        text("run_id"),
        text("stream_id"),
        number("epoch"),
        number("position"),
        text("table"),
        number("version"),
        Field::new("row_id", DataType::UInt64, false),
        text("reason"),
    ]))
}

fn to_batch(entries: &[BadRowEntry]) -> Result<RecordBatch> {
    let text = |of: fn(&BadRowEntry) -> String| -> ArrayRef {
        Arc::new(entries.iter().map(|entry| Some(of(entry))).collect::<StringArray>())
    };
    let number = |what: &'static str, of: fn(&BadRowEntry) -> u64| -> Result<ArrayRef> {
        let numbers: std::result::Result<Vec<i64>, _> = entries.iter().map(|entry| i64::try_from(of(entry))).collect();
        let reason = "it is larger than 2^63 − 1".to_string();
        let numbers = numbers.map_err(|_| stoker_types::Error::InvalidValue { what, reason })?;
        Ok(Arc::new(Int64Array::from(numbers)))
    };
    let columns = vec![
        text(|entry| entry.run_id.to_string()),
        text(|entry| entry.stream_id.to_string()),
        number("epoch", |entry| entry.epoch)?,
        number("position", |entry| entry.position)?,
        text(|entry| entry.table.to_string()),
        number("version", |entry| entry.version)?,
        Arc::new(UInt64Array::from_iter_values(entries.iter().map(|entry| entry.row_addr))),
        text(|entry| entry.reason.clone()),
    ];
    RecordBatch::try_new(schema(), columns).map_err(Error::arrow)
}
