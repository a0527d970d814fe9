//! Verifies values that Lance's decoder returned.

use std::collections::BTreeSet;

use arrow_array::ArrayRef;
use stoker_clock::Clock;
use stoker_lake::{Checksums, RangeReader, Table, row_checksums};
use stoker_types::ErrorKind;

use crate::local::forget;
use crate::verify::mismatch;
use crate::{Error, Result, RetryPolicy, with_retries};

/// Compares values of a column, which [`Table::take`] returned for these addresses in this order, with their checksums.
/// Returns the addresses of the damaged rows, ascending, each with a description of its damage. Rows without a checksum
/// are not checked.
///
/// Values that do not match are read a second time first, past the page cache. Transient faults are retried by `retry`
/// and `clock`.
///
/// # Errors
/// Storage errors. An error of kind `Unavailable` if the second read of a value was right: the caller must take all
/// values again.
pub async fn verify_values(
    table: &Table,
    column: &str,
    addresses: &[u64],
    values: &ArrayRef,
    retry: RetryPolicy,
    clock: &Clock,
) -> Result<Vec<(u64, String)>> {
    let checksums = with_retries(retry, clock, |_| {}, || table.checksums(column)).await?;
    let Some(checksums) = checksums else { return Ok(Vec::new()) };
    let expected = with_retries(retry, clock, |_| {}, || checksums.load(addresses)).await?;
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
    let suspects: Vec<u64> = suspects.into_iter().collect();
    let mut bad = Vec::with_capacity(suspects.len());
    for suspects in suspects.chunk_by(|one, next| one >> 32 == next >> 32) {
        bad.extend(read_again(table, column, &checksums, suspects, retry, clock).await?);
    }
    Ok(bad)
}

/// Reads values of one fragment that did not match their checksums a second time. Returns descriptions of their damage;
/// an error if one of them matches now.
async fn read_again(
    table: &Table,
    column: &str,
    checksums: &Checksums,
    addresses: &[u64],
    retry: RetryPolicy,
    clock: &Clock,
) -> Result<Vec<(u64, String)>> {
    let missing = || Error::Internal { reason: format!("rows {addresses:x?} of {column} have no checksums") };
    let reader = addresses.first().and_then(|address| checksums.reader(*address)).ok_or_else(missing)?;
    let expected = with_retries(retry, clock, |_| {}, || checksums.reload(addresses)).await?;
    forget_file(reader)?;
    let columns = [column.to_string()];
    let taken = with_retries(retry, clock, |_| {}, || table.take(&columns, addresses)).await?;
    let found = row_checksums(taken.column(0)).ok_or_else(missing)?;
    let mut bad = Vec::with_capacity(addresses.len());
    for ((address, expected), found) in addresses.iter().zip(expected).zip(found) {
        match expected {
            Some(expected) if expected != found => {
                bad.push((*address, mismatch(column, found, expected, reader.place())));
            }
            _ => {
                return Err(Error::Lake(stoker_lake::Error::Storage {
                    attempted: format!("reading row address {address:#x} of {column} from {}", reader.place()),
                    kind: ErrorKind::Unavailable,
                    source: "a second read returned other bytes".into(),
                }));
            }
        }
    }
    Ok(bad)
}

/// Drops a file from the page cache, if the lake is local.
fn forget_file(reader: &RangeReader) -> Result<()> {
    if let Some(file) = reader.open()?.local() {
        forget(file, 0..reader.size());
    }
    Ok(())
}
