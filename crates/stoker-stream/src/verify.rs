//! Checks whether receipts prove that every row of an epoch was delivered exactly once.

mod coverage;

use std::collections::{BTreeMap, BTreeSet};

use stoker_sql::Engine;
use stoker_types::{EpochVerdict, MixtureSpec, Receipt, ReceiptPart, Skipped, StreamSpec, SubstitutedRow, row_hash};

use coverage::{Coverage, coverage};

use crate::found_rows::{FoundRows, row_addrs};
use crate::plan::load_spec;
use crate::{Error, Result, StreamPlan};

/// The number of positions whose rows are resolved at once.
const LOOKUP_ROWS: usize = 1 << 16;

/// Returns what receipts prove about each epoch that they name. The specifications are loaded from the lake. Receipts
/// of a mixture from before and after a change of its weights are verified together.
///
/// # Errors
/// [`Error::Receipt`] if there are no receipts, or if they belong to different streams; the errors of
/// [`StreamPlan::verify`].
pub async fn verify(engine: &Engine, receipts: &[Receipt]) -> Result<Vec<EpochVerdict>> {
    let mut newest: Option<StreamSpec> = None;
    for stream_id in receipts.iter().map(|receipt| receipt.stream_id).collect::<BTreeSet<_>>() {
        let spec = load_spec(engine.lake(), stream_id).await?;
        let last_change = |spec: &StreamSpec| spec.mixture.as_ref().map_or(0, MixtureSpec::last_start);
        newest = match newest {
            Some(other) if !other.continues(&spec) => {
                let (one, another) = (stream_id.short(), other.stream_id().short());
                return Err(Error::Receipt { reason: format!("it belongs to stream {one}, not to stream {another}") });
            }
            Some(other) if last_change(&other) >= last_change(&spec) => Some(other),
            _ => Some(spec),
        };
    }
    let none = || Error::Receipt { reason: "the list of receipts is empty".into() };
    let plan = StreamPlan::load(engine, &newest.ok_or_else(none)?).await?;
    let renamed = |receipt: &Receipt| Receipt { stream_id: plan.stream_id(), ..receipt.clone() };
    plan.verify(&receipts.iter().map(renamed).collect::<Vec<_>>()).await
}

impl StreamPlan {
    /// Returns what the receipts of all ranks prove about each epoch that they name, in ascending order.
    ///
    /// The method checks that each position was delivered exactly once, and that each rank had the rows of its
    /// positions: it computes the sums of their hashes again from the row set and the order. If an epoch was continued
    /// after an interruption, the receipts from before and after it are needed.
    ///
    /// # Errors
    /// [`Error::Receipt`] for a receipt of another stream, with positions beyond the end of the stream, with impossible
    /// numbers, or with more positions than training jobs deliver; errors of reading the row set.
    pub async fn verify(&self, receipts: &[Receipt]) -> Result<Vec<EpochVerdict>> {
        let mut epochs: BTreeMap<u64, Vec<&ReceiptPart>> = BTreeMap::new();
        let mut skips: BTreeMap<u64, Vec<&Skipped>> = BTreeMap::new();
        let mut drops: BTreeMap<u64, Vec<&Skipped>> = BTreeMap::new();
        for receipt in receipts {
            receipt.check()?;
            if receipt.stream_id != self.stream_id() {
                let (found, mine) = (receipt.stream_id.short(), self.stream_id().short());
                return Err(Error::Receipt { reason: format!("it belongs to stream {found}, not to stream {mine}") });
            }
            for part in &receipt.parts {
                if part.end > self.num_rows() {
                    let reason = format!("position {} lies beyond the {} rows", part.end, self.num_rows());
                    return Err(Error::Receipt { reason });
                }
                epochs.entry(part.epoch).or_default().push(part);
            }
            for skipped in &receipt.skipped {
                epochs.entry(skipped.epoch).or_default();
                skips.entry(skipped.epoch).or_default().push(skipped);
            }
            for dropped in &receipt.dropped {
                epochs.entry(dropped.epoch).or_default();
                drops.entry(dropped.epoch).or_default().push(dropped);
            }
        }
        let oldest =
            epochs.iter().filter_map(|(epoch, parts)| Some((*epoch, parts.iter().map(|part| part.start).min()?)));
        // The weights of earlier streams are loaded once for all parts.
        let plan = match oldest.min() {
            Some((epoch, position)) => self.reaching(epoch, position).await?,
            None => self.clone(),
        };
        let mut verdicts = Vec::new();
        for (epoch, parts) in epochs {
            let left_out = (skips.remove(&epoch).unwrap_or_default(), drops.remove(&epoch).unwrap_or_default());
            let Coverage { missing, repeated, skipped, dropped } =
                coverage(&parts, &left_out.0, &left_out.1, self.num_rows()).await?;
            let mut wrong = Vec::new();
            let mut substituted = BTreeSet::new();
            for part in parts {
                if plan.sum(part).await? != part.sum {
                    wrong.push(part.clone());
                }
                substituted.extend(part.substituted.iter().cloned());
            }
            let (num_rows, substituted) = (self.num_rows(), substituted.into_iter().collect());
            verdicts.push(EpochVerdict { epoch, num_rows, missing, repeated, wrong, skipped, dropped, substituted });
        }
        Ok(verdicts)
    }

    /// Returns the addresses of the rows at these positions of an epoch, as `[table][position]` over the tables of the
    /// stream.
    ///
    /// # Errors
    /// `InvalidValue` for positions or an epoch that the stream does not have; errors of reading the row set.
    pub async fn row_addrs(&self, epoch: u64, positions: &[u64]) -> Result<Vec<Vec<u64>>> {
        let num_rows = self.num_rows();
        if let Some(beyond) = positions.iter().find(|position| **position >= num_rows) {
            let reason = format!("position {beyond} lies beyond the {num_rows} rows");
            return Err(stoker_types::Error::InvalidValue { what: "position", reason }.into());
        }
        self.spec().check_epoch(epoch)?;
        let mut visits = Vec::with_capacity(positions.len());
        let plan = self.reaching(epoch, positions.iter().copied().min().unwrap_or(0)).await?;
        plan.inner.orders.epoch(epoch).visits(positions.iter().copied(), &mut visits);
        row_addrs(&plan.inner, &visits).await
    }

    /// Returns the sum of row hashes that a part must have.
    async fn sum(&self, part: &ReceiptPart) -> Result<u128> {
        let mut positions = part.positions();
        let mut sum = self.sum_of_named(part).await?;
        loop {
            let some: Vec<u64> = positions.by_ref().take(LOOKUP_ROWS).collect();
            if some.is_empty() {
                return Ok(sum);
            }
            let addrs = self.row_addrs(part.epoch, &some).await?;
            for row in 0..some.len() {
                sum = sum.wrapping_add(row_hash(addrs.iter().map(|addrs| addrs[row])));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns what a part's sum has more than that of the first rows of its packs or buckets: where one of these was
    /// replaced, the receipt names the bad row, which may be another row than the first one.
    async fn sum_of_named(&self, part: &ReceiptPart) -> Result<u128> {
        let mut more = 0u128;
        if !self.inner.sources.iter().any(|source| source.epoch.has_groups()) {
            return Ok(more);
        }
        for bad in &part.substituted {
            let first = self.row_addrs(part.epoch, &[bad.position]).await?;
            let first: Vec<u64> = first.iter().filter_map(|addrs| addrs.first().copied()).collect();
            if self.has_in_group(part.epoch, bad, &first).await? {
                let named = row_hash(bad.row_addrs.iter().copied());
                more = more.wrapping_add(named).wrapping_sub(row_hash(first.iter().copied()));
            }
        }
        Ok(more)
    }

    /// Returns whether each address of a bad row is that of the first row of its pack or bucket, or of another row there.
    async fn has_in_group(&self, epoch: u64, bad: &SubstitutedRow, first: &[u64]) -> Result<bool> {
        let visit = self.inner.orders.epoch(epoch).visit(bad.position);
        let found = FoundRows::of(&self.inner, std::slice::from_ref(&visit)).await?;
        let tables = found.by_source.iter().flat_map(|source| &source.rows.addrs);
        let is_known =
            |((address, first), of_table): ((&u64, &u64), &Vec<u64>)| address == first || of_table.contains(address);
        Ok(bad.row_addrs.len() == first.len() && bad.row_addrs.iter().zip(first).zip(tables).all(is_known))
    }
}
