//! Reads rows by address. Where sectors of a file are damaged, damaged rows can be separated from sound ones.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array};
use arrow_schema::{ArrowError, Schema as ArrowSchema};
use arrow_select::interleave::interleave;
use arrow_select::take::take_record_batch;
use futures::FutureExt;
use futures::future::{try_join, try_join_all};
use lance::dataset::TakeBuilder;
use lance_core::datatypes::Schema;
use lance_datafusion::projection::ProjectionPlan;
use stoker_batch::BufferPool;
use stoker_types::to_usize;

use crate::damage::{caught, decode_error};
use crate::lists::ListColumn;
use crate::precheck::Checked;
use crate::row_id_set::row_offset;
use crate::{Error, Result, Table};

/// The maximum number of damaged rows that one read separates; with more, the read fails.
const DAMAGED_MAX: usize = 1 << 10;

/// Rows of a table, some of which may be damaged.
#[derive(Debug)]
pub struct SoundRows {
    /// One array for each requested column, with one value for each address; the value of a damaged row is null.
    pub columns: Vec<ArrayRef>,
    /// The addresses of the damaged rows, each with a description of its damage.
    pub damaged: BTreeMap<u64, String>,
}

impl Table {
    /// Reads the rows at these addresses, in this order; duplicates are allowed.
    ///
    /// The result has one column for each name in `columns`, in this order, and one row for each address.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an address without a row; `DataCorrupt` naming table and columns when a file cannot be
    /// decoded.
    pub async fn take(&self, columns: &[String], row_addrs: &[u64]) -> Result<RecordBatch> {
        self.take_into(columns, row_addrs, None).await
    }

    /// Reads rows as [`Table::take`] does. The memory of lists of numbers comes from `pool`, if there is one.
    async fn take_into(&self, columns: &[String], row_addrs: &[u64], pool: Option<&BufferPool>) -> Result<RecordBatch> {
        self.check_columns(columns)?;
        self.refuse_nested_blobs(columns.iter().map(String::as_str))?;
        let (sorted, places) = sorted(row_addrs);
        self.check_addresses(&sorted)?;
        let places = places.as_deref();
        let mut lists: Vec<(String, Arc<ListColumn>)> = Vec::new();
        let mut others = Vec::new();
        for column in columns {
            match self.list_column(column).boxed().await? {
                Some(found) => lists.push((column.clone(), found)),
                None => others.push(column.clone()),
            }
        }
        if lists.is_empty() {
            return self.take_decoded(columns, &sorted, places, row_addrs.len()).boxed().await;
        }
        let names: Vec<String> = lists.iter().map(|(column, _)| column.clone()).collect();
        if let Err(error) = self.check_take(&names, &sorted).await {
            return Err(self.check_error(self.reading(columns, row_addrs.len()), error).await);
        }
        let decoding = async {
            if others.is_empty() {
                return self.refuse_deleted(&sorted).await.map(|()| None);
            }
            self.take_decoded(&others, &sorted, places, row_addrs.len()).await.map(Some)
        };
        let mut reading = Vec::with_capacity(lists.len());
        for (column, lists) in &lists {
            reading.push(self.take_lists(column, lists, &sorted, places, pool).boxed());
        }
        let (decoded, read) = try_join(decoding.boxed(), try_join_all(reading)).await?;
        if let Some(stats) = self.stats() {
            read.iter().for_each(|array| stats.add_bytes(array.get_array_memory_size()));
        }
        let schema = self.schema();
        let (mut fields, mut arrays) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
        for column in columns {
            let list = lists.iter().position(|(name, _)| name == column).and_then(|index| read.get(index));
            let field = match (list, &decoded) {
                (None, Some(decoded)) => decoded.schema().field_with_name(column).cloned(),
                _ => schema.field_with_name(column).cloned(),
            };
            let array = list.or_else(|| decoded.as_ref()?.column_by_name(column));
            fields.push(field.map_err(|source| self.take_error(columns, row_addrs.len(), source))?);
            arrays.extend(array.cloned());
        }
        RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays)
            .map_err(|source| self.take_error(columns, row_addrs.len(), source))
    }

    /// Reads the rows at `sorted` addresses through Lance's decoder. The result has `num_rows` rows: each is the row with
    /// the number in `places` among those, or all of those in their order.
    async fn take_decoded(
        &self,
        columns: &[String],
        sorted: &[u64],
        places: Option<&[u64]>,
        num_rows: usize,
    ) -> Result<RecordBatch> {
        let arrow = |source| self.take_error(columns, num_rows, source);
        let taken = self.stored(columns, sorted.to_vec()).await?;
        if taken.num_rows() != sorted.len() {
            return Err(self.deleted(sorted).await?);
        }
        let taken = self.with_blobs(taken, sorted).await?;
        if let Some(stats) = self.stats() {
            stats.add_bytes(taken.get_array_memory_size());
        }
        // Lance returns the columns in the order of the schema.
        let wanted: Vec<usize> =
            columns.iter().map(|column| taken.schema().index_of(column)).collect::<Result<_, _>>().map_err(arrow)?;
        let taken = taken.project(&wanted).map_err(arrow)?;
        let Some(places) = places else { return Ok(taken) };
        if columns.is_empty() {
            return without_columns(num_rows).map_err(arrow);
        }
        take_record_batch(&taken, &UInt64Array::from(places.to_vec())).map_err(arrow)
    }

    fn take_error(&self, columns: &[String], num_rows: usize, source: ArrowError) -> Error {
        Error::storage(self.reading(columns, num_rows), source)
    }

    /// Reads columns as they are stored, with descriptors in place of blobs, of those rows at these addresses that were
    /// not deleted. The addresses are ascending.
    ///
    /// # Errors
    /// `DataCorrupt` naming table and columns when a file cannot be decoded; storage errors.
    pub(crate) async fn stored(&self, columns: &[String], sorted: Vec<u64>) -> Result<RecordBatch> {
        let attempted = self.reading(columns, sorted.len());
        if let Err(error) = self.check_take(columns, &sorted).await {
            return Err(self.check_error(attempted, error).await);
        }
        match caught(self.take_sorted(columns, sorted)).await {
            Ok(taken) => Ok(taken),
            Err(source) => Err(self.read_error(attempted, source).await),
        }
    }

    fn reading(&self, columns: &[String], num_rows: usize) -> String {
        format!("reading {num_rows} rows of {} ({})", self.snapshot(), columns.join(", "))
    }

    /// Reads the rows at these addresses, as [`Table::take`] does. If damaged bytes prevent that, a binary search
    /// separates the rows that cannot be read alone from the others. Cost: one read, and for each damaged row about as
    /// many more reads as the binary logarithm of the number of rows. The memory of lists of numbers comes from `pool`.
    ///
    /// # Errors
    /// As for [`Table::take`]; [`Error::DamagedRows`] where more than 1,024 rows are damaged.
    pub async fn take_sound(&self, columns: &[String], row_addrs: &[u64], pool: &BufferPool) -> Result<SoundRows> {
        match self.take_into(columns, row_addrs, Some(pool)).await {
            Ok(batch) => Ok(SoundRows { columns: in_order(&batch, columns)?, damaged: BTreeMap::new() }),
            Err(Error::DamagedRows { .. }) => self.take_apart(columns, row_addrs).await,
            Err(error) => Err(error),
        }
    }

    async fn take_apart(&self, columns: &[String], row_addrs: &[u64]) -> Result<SoundRows> {
        let mut sorted = row_addrs.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let (mut parts, mut damaged) = (Vec::new(), BTreeMap::new());
        // For each address that was read: the index of its part and its row in that part.
        let mut places = HashMap::new();
        let mut left = vec![sorted.as_slice()];
        while let Some(addrs) = left.pop() {
            match self.take(columns, addrs).await {
                Ok(batch) => {
                    places.extend(addrs.iter().zip(0..).map(|(addr, row)| (*addr, (parts.len(), row))));
                    parts.push(in_order(&batch, columns)?);
                }
                Err(Error::DamagedRows { attempted, reason }) => match addrs {
                    [] => {}
                    [addr] if damaged.len() < DAMAGED_MAX => {
                        damaged.insert(*addr, reason);
                    }
                    [_] => return Err(Error::DamagedRows { attempted, reason }),
                    many => left.extend([&many[many.len() / 2..], &many[..many.len() / 2]]),
                },
                Err(error) => return Err(error),
            }
        }
        let null = (parts.len(), 0);
        let places: Vec<(usize, usize)> =
            row_addrs.iter().map(|addr| places.get(addr).copied().unwrap_or(null)).collect();
        let schema = self.schema();
        let mut joined = Vec::with_capacity(columns.len());
        for (index, name) in columns.iter().enumerate() {
            let arrow = |source| Error::storage(format!("joining rows of {}", self.snapshot()), source);
            let field = schema.field_with_name(name).map_err(arrow)?;
            let nulls = new_null_array(field.data_type(), 1);
            let mut arrays: Vec<&dyn Array> = parts.iter().map(|part| part[index].as_ref()).collect();
            arrays.push(nulls.as_ref());
            joined.push(interleave(&arrays, &places).map_err(arrow)?);
        }
        Ok(SoundRows { columns: joined, damaged })
    }

    async fn take_sorted(&self, columns: &[String], sorted: Vec<u64>) -> lance_core::Result<RecordBatch> {
        let schema = self.dataset().schema();
        let wanted = schema.fields.iter().filter(|field| columns.contains(&field.name)).cloned().collect();
        let projected = Schema { fields: wanted, metadata: schema.metadata.clone() };
        if columns.is_empty() {
            return Ok(without_columns(sorted.len())?);
        }
        if sorted.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::new(ArrowSchema::from(&projected))));
        }
        let plan = ProjectionPlan::from_schema(self.dataset().clone(), &projected)?;
        TakeBuilder::try_new_from_addresses(self.dataset().clone(), sorted, Arc::new(plan))?.execute().boxed().await
    }

    /// Checks the files of these rows before Lance reads them.
    async fn check_take(&self, columns: &[String], sorted: &[u64]) -> Result<()> {
        let columns: HashSet<&str> = columns.iter().map(String::as_str).collect();
        let ids = sorted.chunk_by(|one, next| one >> 32 == next >> 32).filter_map(<[u64]>::first);
        let ids: HashSet<u64> = ids.map(|addr| addr >> 32).collect();
        let fragments = self.dataset().fragments().iter().filter(|fragment| ids.contains(&fragment.id));
        let fragments: Vec<_> = fragments.collect();
        self.check_read(&columns, fragments.clone(), Checked::FootersAndTypes).await?;
        self.check_row_offsets(&columns, &fragments).await
    }

    /// Checks that the snapshot has the fragment and the offset of each address.
    fn check_addresses(&self, sorted: &[u64]) -> Result<()> {
        let rows: HashMap<u64, u64> =
            self.fragments().iter().map(|fragment| (u64::from(fragment.id), fragment.physical_rows)).collect();
        for of_fragment in sorted.chunk_by(|one, next| one >> 32 == next >> 32) {
            let Some(first) = of_fragment.first() else { continue };
            let known = rows.get(&(first >> 32));
            let num_rows = known.copied().unwrap_or(0);
            let Some(addr) = of_fragment.iter().find(|addr| **addr & 0xffff_ffff >= num_rows) else { continue };
            let hint = match known {
                None => "; there is no such fragment".to_string(),
                Some(rows) => format!("; the fragment has {rows} rows"),
            };
            return Err(Error::NotFound { what: self.row_name(*addr), hint });
        }
        Ok(())
    }

    /// Returns the error that names a deleted row among these.
    async fn deleted(&self, sorted: &[u64]) -> Result<Error> {
        if let Err(error) = self.refuse_deleted(sorted).await {
            return Ok(error);
        }
        let attempted = format!("reading {} rows of {}", sorted.len(), self.snapshot());
        Ok(Error::DataCorrupt { attempted, reason: "its files hold fewer rows than the manifest says".into() })
    }

    /// Checks that none of these rows is deleted.
    async fn refuse_deleted(&self, sorted: &[u64]) -> Result<()> {
        let attempted = || format!("reading the deletions of {}", self.snapshot());
        if self.dataset().fragments().iter().all(|fragment| fragment.deletion_file.is_none()) {
            return Ok(());
        }
        for of_fragment in sorted.chunk_by(|one, next| one >> 32 == next >> 32) {
            let Some(id) = of_fragment.first().map(|addr| to_usize(addr >> 32)) else { continue };
            let Some(fragment) = self.dataset().get_fragment(id) else { continue };
            let deletions = caught(fragment.get_deletion_vector()).await;
            let Some(deletions) = deletions.map_err(|source| decode_error(attempted(), source))? else { continue };
            if let Some(addr) = of_fragment.iter().find(|addr| deletions.contains(row_offset(**addr))) {
                return Err(Error::NotFound { what: self.row_name(*addr), hint: "; it was deleted".into() });
            }
        }
        Ok(())
    }

    /// Names a row in messages.
    pub(crate) fn row_name(&self, addr: u64) -> String {
        let (fragment, offset) = (addr >> 32, addr & 0xffff_ffff);
        format!("row {addr} (fragment {fragment}, offset {offset}) of {}", self.snapshot())
    }
}

/// Returns the columns of a batch in the requested order.
fn in_order(batch: &RecordBatch, columns: &[String]) -> Result<Vec<ArrayRef>> {
    let column = |name: &String| batch.schema().index_of(name).map(|index| batch.column(index).clone());
    let arrays = columns.iter().map(column).collect::<Result<_, _>>();
    arrays.map_err(|source| Error::storage("reading the columns of a batch", source))
}

/// Returns the addresses in ascending order without duplicates, and for each given address its index among them. The
/// indices are `None` if the given addresses were already sorted and unique.
fn sorted(row_addrs: &[u64]) -> (Vec<u64>, Option<Vec<u64>>) {
    if row_addrs.is_sorted_by(|one, next| one < next) {
        return (row_addrs.to_vec(), None);
    }
    let mut pairs: Vec<(u64, usize)> = row_addrs.iter().copied().zip(0..).collect();
    pairs.sort_unstable();
    let (mut sorted, mut places) = (Vec::with_capacity(pairs.len()), vec![0; pairs.len()]);
    for (addr, index) in pairs {
        if sorted.last() != Some(&addr) {
            sorted.push(addr);
        }
        places[index] = sorted.len() as u64 - 1;
    }
    (sorted, Some(places))
}

fn without_columns(num_rows: usize) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    RecordBatch::try_new_with_options(Arc::new(ArrowSchema::empty()), Vec::new(), &options)
}
