//! The log of runs, which records the positions of each step.
//!
//! Steps count the global batches of a training over all epochs and interruptions. An entry holds from its step on,
//! until a later entry begins at or before a step: step `step + i` has the positions `position + i·global_batch ..` of
//! the entry's epoch. An epoch therefore takes one row.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use futures::TryStreamExt;
use stoker_batch::RUN_LOG_TABLE;
use stoker_clock::Clock;
use stoker_lake::{CommitKey, CommitMode, WriteOptions};
use stoker_sql::Engine;
use stoker_types::{ErrorKind, LastBatch, ParamValue, RunEntry, RunEvent, RunId, TableName};

use crate::{Error, Result};

/// Adds an entry to the log of its run. The entry's time is set to now, by `clock`, or to a later time if that is not
/// after all other entries of the run. If there is a key, an entry that was added under the same key is not added again.
///
/// # Errors
/// Storage errors; a lake that cannot be written.
pub async fn log_run(engine: &Engine, entry: &RunEntry, key: Option<CommitKey<'_>>, clock: &Clock) -> Result<()> {
    let last = run_entries(engine, &entry.run_id).await?.last().map_or(i64::MIN, |last| last.time_micros);
    let now = i64::try_from(clock.unix_time().as_micros()).unwrap_or(i64::MAX);
    let entry = RunEntry { time_micros: now.max(last.saturating_add(1)), ..entry.clone() };
    let (name, lake) = (TableName::try_new(RUN_LOG_TABLE)?, engine.lake());
    let mut writer = lake.writer(&name, &schema(), true, WriteOptions::default()).await?;
    writer.write(&to_batch(&entry)?).await?;
    let schema = writer.schema();
    let drafts = writer.finish().await?;
    lake.commit(&name, &schema, CommitMode::CreateOrAppend, drafts, key).await?;
    Ok(())
}

/// Returns the log of a run, oldest entry first. It is empty for a run without a log.
///
/// # Errors
/// A table of the log's name with other columns; storage errors.
pub async fn run_entries(engine: &Engine, run_id: &RunId) -> Result<Vec<RunEntry>> {
    let columns: Vec<String> = schema().fields().iter().map(|field| field.name().clone()).collect();
    let sql = format!("SELECT {} FROM {RUN_LOG_TABLE} WHERE run_id = $1 ORDER BY time", columns.join(", "));
    let query = match engine.query(&sql, &[ParamValue::Text(run_id.to_string())]).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        query => query?,
    };
    let batches: Vec<RecordBatch> = query.execute().await?.try_collect().await.map_err(stoker_sql::Error::from)?;
    let mut entries = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            entries.push(from_row(batch, row)?);
        }
    }
    Ok(entries)
}

fn schema() -> SchemaRef {
    let text = |name: &str| Field::new(name, DataType::Utf8, false);
    let number = |name: &str| Field::new(name, DataType::Int64, false);
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        text("run_id"),
        text("event"),
        text("stream_id"),
        number("step"),
        number("epoch"),
        number("position"),
        number("global_batch"),
        text("last_batch"),
        number("world_size"),
        Field::new("time", time, false),
    ]))
}

fn to_batch(entry: &RunEntry) -> Result<RecordBatch> {
    let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    let number = |what: &'static str, value: u64| -> Result<ArrayRef> {
        let value = i64::try_from(value);
        let value = value.map_err(|_| too_large(what))?;
        Ok(Arc::new(Int64Array::from(vec![value])))
    };
    let columns = vec![
        text(entry.run_id.as_str()),
        text(entry.event.as_str()),
        text(&entry.stream_id.to_string()),
        number("step", entry.step)?,
        number("epoch", entry.epoch)?,
        number("position", entry.position)?,
        number("global_batch_size", entry.global_batch)?,
        text(entry.last_batch.as_str()),
        number("world_size", u64::from(entry.world_size))?,
        Arc::new(TimestampMicrosecondArray::from(vec![entry.time_micros]).with_timezone("UTC")),
    ];
    RecordBatch::try_new(schema(), columns).map_err(Error::arrow)
}

fn too_large(what: &'static str) -> Error {
    stoker_types::Error::InvalidValue { what, reason: "it is larger than a run log can hold, 2^63 − 1".into() }.into()
}

fn from_row(batch: &RecordBatch, row: usize) -> Result<RunEntry> {
    let malformed = |reason: String| {
        Error::Types(stoker_types::Error::Malformed { what: "the run log, table stoker_run_log", reason })
    };
    let text = |name: &str| {
        let column = batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
        column.map(|column| column.value(row)).ok_or_else(|| malformed(format!("column {name} is not text")))
    };
    let number = |name: &str| {
        let column = batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
        let value = column.and_then(|column| u64::try_from(column.value(row)).ok());
        value.ok_or_else(|| malformed(format!("column {name} contains a value that is not a whole number from 0")))
    };
    let time = batch.column_by_name("time").and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    let (event, last) = (text("event")?, text("last_batch")?);
    Ok(RunEntry {
        run_id: RunId::try_new(text("run_id")?)?,
        event: RunEvent::parse(event).ok_or_else(|| malformed(format!("event {event:?} is unknown")))?,
        stream_id: text("stream_id")?.parse()?,
        step: number("step")?,
        epoch: number("epoch")?,
        position: number("position")?,
        global_batch: number("global_batch")?,
        last_batch: LastBatch::parse(last).ok_or_else(|| malformed(format!("last_batch {last:?} is unknown")))?,
        world_size: u32::try_from(number("world_size")?).map_err(|source| malformed(source.to_string()))?,
        time_micros: time.ok_or_else(|| malformed("column time is not a timestamp in microseconds".into()))?.value(row),
    })
}
