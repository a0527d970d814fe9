//! Resolves positions of an order to rows, before anything of the rows is read.

use std::borrow::Cow;

use futures::future::try_join_all;
use stoker_order::{StreamOrder, Visit};
use stoker_sql::{NO_ROW, ResolvedRows};
use stoker_types::to_usize;

use crate::Result;
use crate::plan::PlanInner;
use crate::source::SourcePlan;

/// The resolved rows at some positions.
pub(crate) struct FoundRows {
    /// For each position, the source of its row. It is empty if there is only one source.
    pub sources: Vec<usize>,
    /// For each source, its rows.
    pub by_source: Vec<SourceRows>,
}

/// The resolved rows of one source.
pub(crate) struct SourceRows {
    /// The ordinals of the rows, in the order of the positions.
    pub ordinals: Vec<u64>,
    /// The rows in ascending order of their ordinals, each of them once.
    pub rows: ResolvedRows,
    /// For each ordinal, the index of its row in `rows`.
    pub places: Vec<u64>,
    /// The indexes into `ordinals`, sorted so that the ordinals ascend. `None` if they ascend already, and `places` are
    /// the indexes themselves.
    pub ascending: Option<Vec<usize>>,
}

impl FoundRows {
    /// Resolves the rows at positions.
    pub async fn at(plan: &PlanInner, order: &StreamOrder, positions: impl Iterator<Item = u64>) -> Result<Self> {
        let mut visits = Vec::with_capacity(positions.size_hint().0);
        order.visits(positions, &mut visits);
        Self::of(plan, &visits).await
    }

    /// Resolves the rows of visits.
    pub async fn of(plan: &PlanInner, visits: &[Visit]) -> Result<Self> {
        if let [source] = &plan.sources[..] {
            return Ok(Self { sources: Vec::new(), by_source: vec![SourceRows::of_visits(source, visits.iter()).await?] });
        }
        let by_source = plan.sources.iter().enumerate().map(|(index, source)| {
            SourceRows::of_visits(source, visits.iter().filter(move |visit| visit.source == index))
        });
        let by_source = try_join_all(by_source).await?;
        Ok(Self { sources: visits.iter().map(|visit| visit.source).collect(), by_source })
    }
}

impl SourceRows {
    /// Returns the ordinals of `rows`, which ascend.
    pub fn unique_ordinals(&self) -> Cow<'_, [u64]> {
        let Some(ascending) = &self.ascending else { return self.ordinals.as_slice().into() };
        let mut ordinals: Vec<u64> = ascending.iter().map(|index| self.ordinals[*index]).collect();
        ordinals.dedup();
        ordinals.into()
    }

    /// Resolves the rows of visits of the source.
    async fn of_visits<'a>(source: &SourcePlan, visits: impl Iterator<Item = &'a Visit>) -> Result<Self> {
        if source.weights.is_none() {
            return Self::of(source, visits.map(|visit| visit.ordinal).collect()).await;
        }
        let visits: Vec<(u64, u64)> = visits.map(|visit| (visit.epoch, visit.ordinal)).collect();
        let mut ordinals = Vec::with_capacity(visits.len());
        for same in visits.chunk_by(|one, next| one.0 == next.0) {
            ordinals.extend(source.row_ordinals(same[0].0, same.iter().map(|(_, ordinal)| *ordinal).collect())?);
        }
        Self::of(source, ordinals).await
    }

    /// Resolves the rows with these ordinals, which need not ascend.
    pub async fn of(source: &SourcePlan, ordinals: Vec<u64>) -> Result<Self> {
        if ordinals.is_sorted_by(|one, next| one < next) {
            return Ok(Self {
                rows: source.row_set.resolve(&ordinals).await?,
                places: (0..ordinals.len() as u64).collect(),
                ascending: None,
                ordinals,
            });
        }
        let mut sorted: Vec<(u64, usize)> = ordinals.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        let mut unique: Vec<u64> = Vec::with_capacity(sorted.len());
        let mut places = vec![0; sorted.len()];
        for (ordinal, index) in &sorted {
            if unique.last() != Some(ordinal) {
                unique.push(*ordinal);
            }
            places[*index] = unique.len() as u64 - 1;
        }
        let ascending = Some(sorted.into_iter().map(|(_, index)| index).collect());
        Ok(Self { rows: source.row_set.resolve(&unique).await?, places, ascending, ordinals })
    }
}

/// Returns the row addresses of visits, as `[table][visit]` over the tables of all sources.
pub(crate) async fn row_addrs(plan: &PlanInner, visits: &[Visit]) -> Result<Vec<Vec<u64>>> {
    let mut all = Vec::new();
    for (index, found) in FoundRows::of(plan, visits).await?.by_source.into_iter().enumerate() {
        for addrs_of_rows in found.rows.addrs {
            let mine = (0..visits.len()).filter(|place| visits[*place].source == index);
            let mut addrs = vec![NO_ROW; visits.len()];
            mine.zip(&found.places).for_each(|(place, row)| addrs[place] = addrs_of_rows[to_usize(*row)]);
            all.push(addrs);
        }
    }
    Ok(all)
}
