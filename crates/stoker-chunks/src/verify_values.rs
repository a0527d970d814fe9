//! Checks values that came through Lance's decoder.

use std::collections::BTreeSet;

use arrow_array::ArrayRef;
use stoker_lake::{Checksums, RangeReader, Table, row_checksums};
use stoker_types::ErrorKind;

use crate::local::forget;
use crate::verify::mismatch;
use crate::{Error, Result, RetryPolicy, with_retries};

/// Compares the values of a column that [`Table::take`] gave for these addresses, in their order, with their checksums. Returns
/// the addresses of the damaged rows, ascending, each with what is wrong with it. Rows without a checksum are not checked.
///
/// A value that does not have its checksum is read once more before, alone and past the system's memory of its file. Transient
/// faults are retried by `retry`.
///
/// # Errors
/// Storage errors. An error of kind `Unavailable` when the second read of a value gave what is right: take all of them again.
pub async fn verify_values(
    table: &Table,
    column: &str,
    addresses: &[u64],
    values: &ArrayRef,
    retry: RetryPolicy,
) -> Result<Vec<(u64, String)>> {
    let kind = stoker_lake::Error::kind;
    let checksums = with_retries(retry, kind, |_| {}, || table.checksums(column)).await?;
    let Some(checksums) = checksums else { return Ok(Vec::new()) };
    let expected = with_retries(retry, kind, |_| {}, || checksums.load(addresses)).await?;
    let hashed = values.clone();
    let found = tokio::task::spawn_blocking(move || row_checksums(&hashed)).await;
    let found = found.map_err(|source| match source.is_cancelled() {
        true => Error::ShuttingDown,
        false => Error::Internal { reason: format!("a thread that checks values failed: {source}") },
    })?;
    let Some(found) = found else { return Ok(Vec::new()) };
    let mut suspects = BTreeSet::new();
    for ((address, found), expected) in addresses.iter().zip(found).zip(expected) {
        if expected.is_some_and(|expected| expected != found) {
            suspects.insert(*address);
        }
    }
    let mut bad = Vec::new();
    for address in suspects {
        bad.push((address, read_again(table, column, &checksums, address, retry).await?));
    }
    Ok(bad)
}

/// Reads a value that did not have its checksum once more. What is wrong with it, unless it is right now.
async fn read_again(
    table: &Table,
    column: &str,
    checksums: &Checksums,
    address: u64,
    retry: RetryPolicy,
) -> Result<String> {
    let kind = stoker_lake::Error::kind;
    let Some(reader) = checksums.reader(address) else {
        return Err(Error::Internal { reason: format!("row address {address:#x} of {column} has no checksum") });
    };
    let expected = with_retries(retry, kind, |_| {}, || checksums.reload(address)).await?;
    forget_file(reader)?;
    let (columns, addresses) = ([column.to_string()], [address]);
    let taken = with_retries(retry, kind, |_| {}, || table.take(&columns, &addresses)).await?;
    let found = row_checksums(taken.column(0)).and_then(|found| found.first().copied()).unwrap_or_default();
    match expected {
        Some(expected) if expected != found => Ok(mismatch(column, found, expected, reader.place())),
        _ => Err(Error::Lake(stoker_lake::Error::Storage {
            attempted: format!("reading row address {address:#x} of {column} from {}", reader.place()),
            kind: ErrorKind::Unavailable,
            source: "a second read gave other bytes".into(),
        })),
    }
}

/// Lets the system forget a file, when the lake is local.
fn forget_file(reader: &RangeReader) -> Result<()> {
    if let Some(file) = reader.open()?.local() {
        forget(file, 0..reader.size());
    }
    Ok(())
}
