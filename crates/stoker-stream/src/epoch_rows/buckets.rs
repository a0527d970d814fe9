//! Rows of similar length that come together in buckets.

use arrow_schema::DataType;
use stoker_order::{BucketGroup, BucketSize, Bucketing, DocumentPiece};
use stoker_types::{BUCKET_VERSION, BucketOptions, BucketSpec, LongerRows, to_usize};

use super::bucket_columns::BucketColumns;
use super::column::{ColumnRows, EpochColumn};
use super::lengths::RowLengths;
use super::numbers::RowNumbers;
use super::outside;
use super::recent::Recent;
use crate::Result;
use crate::source::SourcePlan;

/// What the column of lengths must be.
const WANTED: &str = "buckets are made by the lengths of lists, or by whole numbers";

/// The number of groups whose buckets are kept. A group has 16 bytes for each of its rows, which are 64 KiB.
const GROUPS_MAX: usize = 128;

/// The bytes of a row in a bucket beside its columns: its address.
const ROW_BYTES: u64 = 8;

/// The rows of a query, and the buckets in which they come.
pub(crate) struct RowBuckets {
    spec: BucketSpec,
    bucketing: Bucketing,
    columns: BucketColumns,
    /// The length of each row.
    lengths: RowNumbers,
    /// The seed of the source's orders.
    seed: u64,
    /// The groups that were used last, by epoch and number.
    groups: Recent<(u64, u64), BucketGroup>,
}

impl RowBuckets {
    /// Reads the lengths of the rows and cuts them into buckets. `seed` is that of the source's orders; `is_shuffled` says
    /// whether a group has blocks from anywhere in the row set.
    ///
    /// # Errors
    /// [`Error::EpochColumn`](crate::Error::EpochColumn) for a column that the query does not have, or that has no lengths,
    /// and for a row that is too long under [`LongerRows::Error`]; [`Error::BadRow`](crate::Error::BadRow); errors of
    /// reading.
    pub async fn read(source: &SourcePlan, options: &BucketOptions, is_shuffled: bool, seed: u64) -> Result<Self> {
        let column = EpochColumn::find(source, "bucket", &options.column)?;
        let data_type = column.data_type();
        if !(data_type.is_integer() || matches!(data_type, DataType::List(_) | DataType::LargeList(_))) {
            return Err(column.error(format!("it is {data_type}; {WANTED}")));
        }
        let (num_rows, max_rows) = (source.row_set.num_rows(), options.max_rows.unwrap_or(u64::MAX));
        let size = BucketSize { max_tokens: options.max_tokens, max_rows, multiple: options.multiple };
        let check = |rows: &ColumnRows<'_>, lengths: &[u32]| match options.longer {
            LongerRows::Alone => Ok(()),
            LongerRows::Error => check_lengths(rows, lengths, size),
        };
        let RowLengths { lengths, digest } = RowLengths::read(column, WANTED, check).await?;
        let mut bucketing = Bucketing::new(size, num_rows, is_shuffled.then_some(seed));
        for group in 0..bucketing.num_groups() {
            let of_group = lengths_of(&bucketing, &lengths, group)?;
            bucketing.add(&of_group);
            tokio::task::yield_now().await;
        }
        tracing::info!(rows = num_rows, buckets = bucketing.num_buckets(), fill = bucketing.fill(), "bucketed");
        let spec = BucketSpec { version: BUCKET_VERSION, options: options.clone(), num_rows, digest };
        let (columns, groups) = (BucketColumns::default(), Recent::new(GROUPS_MAX));
        Ok(Self { spec, bucketing, columns, lengths, seed, groups })
    }

    /// Returns what the specification of a stream has about the buckets.
    pub fn spec(&self) -> &BucketSpec {
        &self.spec
    }

    /// Returns how the columns of buckets are made.
    pub fn columns(&self) -> &BucketColumns {
        &self.columns
    }

    /// Sets how the columns of buckets are made, which is known when all sources of the stream are.
    pub fn set_columns(&mut self, columns: BucketColumns) {
        self.columns = columns;
    }

    /// Returns the bytes that a bucket takes about, if its rows have `row_bytes` each.
    pub fn bucket_bytes(&self, row_bytes: u64) -> u64 {
        let rows = self.bucketing.num_rows().div_ceil(self.num_buckets().max(1));
        rows.saturating_mul(row_bytes.saturating_add(ROW_BYTES)).max(1)
    }

    /// Returns the number of buckets in an epoch.
    pub fn num_buckets(&self) -> u64 {
        self.bucketing.num_buckets()
    }

    /// Returns the rows of some buckets of an epoch of the source.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) for buckets that the epoch does not have; errors of the temporary file.
    pub fn buckets(&self, epoch: u64, numbers: &[u64]) -> Result<Vec<Vec<DocumentPiece>>> {
        let bucket = |number: &u64| {
            let beyond = || outside(*number, self.num_buckets());
            let (group, index) = self.bucketing.group_of(*number).ok_or_else(beyond)?;
            let group = self.groups.get((epoch, group), || self.group(epoch, group))?;
            let rows = group.bucket(to_usize(index)).ok_or_else(beyond)?;
            let whole = |row: &stoker_order::BucketRow| {
                let (document, length) = (row.row, u64::from(row.length));
                DocumentPiece { document, start: 0, length, is_whole: true }
            };
            Ok(rows.iter().map(whole).collect())
        };
        numbers.iter().map(bucket).collect()
    }

    fn group(&self, epoch: u64, number: u64) -> Result<BucketGroup> {
        let lengths = lengths_of(&self.bucketing, &self.lengths, number)?;
        Ok(self.bucketing.group(number, &lengths).in_epoch(self.seed, epoch))
    }
}

/// Refuses rows that do not fit a bucket.
fn check_lengths(rows: &ColumnRows<'_>, lengths: &[u32], size: BucketSize) -> Result<()> {
    let Some(row) = lengths.iter().position(|length| size.padded(*length) > size.max_tokens) else { return Ok(()) };
    let (length, padded) = (lengths[row], size.padded(lengths[row]));
    let found = match padded > u64::from(length) {
        true => format!("{length} tokens, {padded} when it is padded"),
        false => format!("{length} tokens"),
    };
    let wanted = format!(
        "a bucket has at most {}; leave longer rows out in the query, raise max_tokens, or use longer=\"alone\", which makes \
         such a row a bucket of its own",
        size.max_tokens
    );
    Err(rows.error(row, &found, &wanted))
}

/// Returns the lengths of the rows of a group.
fn lengths_of(bucketing: &Bucketing, lengths: &RowNumbers, group: u64) -> Result<Vec<u32>> {
    let mut all = Vec::new();
    for rows in bucketing.group_rows(group) {
        all.extend(lengths.get(rows.start, to_usize(rows.end - rows.start))?);
    }
    Ok(all)
}
