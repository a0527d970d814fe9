//! Reads rows by address.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::Schema as ArrowSchema;
use arrow_select::take::take_record_batch;
use futures::FutureExt;
use lance::dataset::TakeBuilder;
use lance_core::datatypes::Schema;
use lance_datafusion::projection::ProjectionPlan;

use crate::address::row_offset;
use crate::caught::caught;
use crate::damage::decode_error;
use crate::precheck::Checked;
use crate::{Error, Result, Table};

impl Table {
    /// Reads the rows at these addresses, in this order; duplicates are allowed.
    ///
    /// The result has one column for each name in `columns`, in this order, and one row for each address.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an address without a row; `DataCorrupt` naming table and columns when a file cannot be
    /// decoded.
    pub async fn take(&self, columns: &[String], row_addrs: &[u64]) -> Result<RecordBatch> {
        self.check_columns(columns)?;
        self.refuse_blobs(columns.iter().map(String::as_str))?;
        let (sorted, places) = sorted(row_addrs);
        self.check_addresses(&sorted)?;
        let attempted = || format!("reading {} rows of {} ({})", row_addrs.len(), self.snapshot(), columns.join(", "));
        let arrow = |source| Error::storage(attempted(), source);
        if let Err(error) = self.check_take(columns, &sorted).await {
            return Err(self.check_error(attempted(), error).await);
        }
        let taken = match caught(self.take_sorted(columns, sorted.clone())).await {
            Ok(taken) => taken,
            Err(source) => return Err(self.read_error(attempted(), source).await),
        };
        if taken.num_rows() != sorted.len() {
            return Err(self.deleted(&sorted).await?);
        }
        // Lance returns the columns in the order of the schema.
        let wanted: Vec<usize> =
            columns.iter().map(|column| taken.schema().index_of(column)).collect::<Result<_, _>>().map_err(arrow)?;
        let taken = taken.project(&wanted).map_err(arrow)?;
        let Some(places) = places else { return Ok(taken) };
        if columns.is_empty() {
            return without_columns(row_addrs.len()).map_err(arrow);
        }
        take_record_batch(&taken, &UInt64Array::from(places)).map_err(arrow)
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
        let attempted = || format!("reading the deletions of {}", self.snapshot());
        for fragment in self.dataset().get_fragments() {
            let deletions = caught(fragment.get_deletion_vector()).await;
            let Some(deletions) = deletions.map_err(|source| decode_error(attempted(), source))? else { continue };
            let in_fragment = |addr: &&u64| (**addr >> 32) as usize == fragment.id();
            if let Some(addr) = sorted.iter().filter(in_fragment).find(|addr| deletions.contains(row_offset(**addr))) {
                return Ok(Error::NotFound { what: self.row_name(*addr), hint: "; it was deleted".into() });
            }
        }
        let attempted = format!("reading {} rows of {}", sorted.len(), self.snapshot());
        Ok(Error::DataCorrupt { attempted, reason: "its files hold fewer rows than the manifest says".into() })
    }

    fn row_name(&self, addr: u64) -> String {
        let (fragment, offset) = (addr >> 32, addr & 0xffff_ffff);
        format!("row {addr} (fragment {fragment}, offset {offset}) of {}", self.snapshot())
    }
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

fn without_columns(num_rows: usize) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
    RecordBatch::try_new_with_options(Arc::new(ArrowSchema::empty()), Vec::new(), &options)
}
