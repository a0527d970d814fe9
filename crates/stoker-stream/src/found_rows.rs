//! Resolves positions of an order to rows, before anything of the rows is read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use arrow_array::ArrayRef;
use futures::future::try_join_all;
use stoker_batch::BufferPool;
use stoker_order::{DocumentPiece, StreamOrder, Visit};
use stoker_sql::{NO_ROW, ResolvedRows};

use crate::Result;
use crate::epoch_rows::{EpochOrdinals, EpochRows, PackedRows};
use crate::plan::PlanInner;
use crate::read::{Damage, Damaged, at_places, bad_places, pick};
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
    /// The ordinals of the rows, in the order of the positions. For packs, those of all documents, pack by pack; so for
    /// buckets.
    pub ordinals: Vec<u64>,
    /// The documents of each pack, or the rows of each bucket; `None` for rows that are neither.
    pub packs: Option<Vec<Vec<DocumentPiece>>>,
    /// The rows in ascending order of their ordinals, each of them once.
    pub rows: ResolvedRows,
    /// For each ordinal, the index of its row in `rows`.
    pub places: Vec<u64>,
    /// The indexes into `ordinals`, sorted so that the ordinals ascend. `None` if they ascend already, and `places` are
    /// the indexes themselves.
    pub ascending: Option<Vec<usize>>,
    /// Where the rows are delivered, for columns of clips.
    pub delivered: DeliveredAt,
}

/// The positions of a stream at which rows are delivered. A row that substitutes another one is delivered at the position of
/// that row.
#[derive(Default)]
pub(crate) struct DeliveredAt {
    pub epoch: u64,
    /// For each ordinal, the position. Empty in streams without clips.
    pub positions: Vec<u64>,
}

impl FoundRows {
    /// Resolves the rows at positions.
    pub async fn at(plan: &PlanInner, order: &StreamOrder, positions: impl Iterator<Item = u64>) -> Result<Self> {
        let mut visits = Vec::with_capacity(positions.size_hint().0);
        if plan.clips.is_empty() {
            order.visits(positions, &mut visits);
            return Self::of(plan, &visits).await;
        }
        let positions: Vec<u64> = positions.collect();
        order.visits(positions.iter().copied(), &mut visits);
        Ok(Self::of(plan, &visits).await?.delivered(order.number(), positions))
    }

    /// Says at which positions of an epoch the rows are delivered, in their order.
    pub fn delivered(mut self, epoch: u64, positions: impl IntoIterator<Item = u64>) -> Self {
        for (row, position) in positions.into_iter().enumerate() {
            let source = self.sources.get(row).copied().unwrap_or(0);
            if let Some(rows) = self.by_source.get_mut(source) {
                rows.delivered.epoch = epoch;
                rows.delivered.positions.push(position);
            }
        }
        self
    }

    /// Resolves the rows of visits.
    pub async fn of(plan: &PlanInner, visits: &[Visit]) -> Result<Self> {
        if let [source] = &plan.sources[..] {
            return Ok(Self {
                sources: Vec::new(),
                by_source: vec![SourceRows::of_visits(source, visits.iter()).await?],
            });
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

    /// Returns the row addresses at each position, as `[table][position]`. A pack has those of its first document,
    /// and a bucket those of its first row.
    pub fn addrs(&self) -> Cow<'_, [Vec<u64>]> {
        let places = match &self.packs {
            None if self.ascending.is_none() => return self.rows.addrs.as_slice().into(),
            None => Cow::Borrowed(self.places.as_slice()),
            Some(packs) => {
                let firsts = packs.iter().scan(0, |next, pack| Some(std::mem::replace(next, *next + pack.len())));
                Cow::Owned(firsts.map(|first| self.places[first]).collect())
            }
        };
        Cow::Owned(self.rows.addrs.iter().map(|addrs| pick(addrs, &places)).collect())
    }

    /// Returns the positions whose rows are bad.
    pub fn bad(&self, damaged: &Damaged) -> BTreeMap<usize, Damage> {
        if damaged.is_empty() {
            return BTreeMap::new();
        }
        let addrs: Vec<Vec<u64>> = self.rows.addrs.iter().map(|addrs| pick(addrs, &self.places)).collect();
        let bad = bad_places(&addrs, damaged);
        match &self.packs {
            None => bad,
            Some(packs) => self.packed(packs).by_pack(bad),
        }
    }

    /// Returns the addresses whose rows are read: those at each position, or of each document of packs once.
    pub fn addrs_to_read(&self) -> Cow<'_, [Vec<u64>]> {
        if self.packs.is_some() { self.rows.addrs.as_slice().into() } else { self.addrs() }
    }

    /// Returns arrays of `rows` as arrays of the rows that are read.
    pub fn arrays_at_positions(&self, arrays: Vec<Option<ArrayRef>>) -> Result<Vec<Option<ArrayRef>>> {
        if self.packs.is_some() { Ok(arrays) } else { at_places(arrays, &self.places) }
    }

    /// Returns the columns at each position, from those that were read.
    pub fn arrays(
        &self,
        source: &SourcePlan,
        read: Vec<Option<ArrayRef>>,
        pool: &BufferPool,
    ) -> Result<Vec<Option<ArrayRef>>> {
        let Some(packs) = &self.packs else { return Ok(read) };
        source.epoch.arrays(source, self.packed(packs), &read, pool)
    }

    fn packed<'a>(&'a self, packs: &'a [Vec<DocumentPiece>]) -> PackedRows<'a> {
        PackedRows { packs, places: &self.places, addrs: &self.rows.addrs }
    }

    /// Resolves the rows of visits of the source.
    async fn of_visits<'a>(source: &SourcePlan, visits: impl Iterator<Item = &'a Visit>) -> Result<Self> {
        if matches!(source.epoch, EpochRows::Each) {
            return Self::of_rows(source, visits.map(|visit| visit.ordinal).collect()).await;
        }
        // The rows of a mixture's source may belong to two of its epochs.
        let visits: Vec<(u64, u64)> = visits.map(|visit| (visit.epoch, visit.ordinal)).collect();
        let mut all = EpochOrdinals { packs: source.epoch.has_groups().then(Vec::new), ..EpochOrdinals::default() };
        for same in visits.chunk_by(|one, next| one.0 == next.0) {
            let ordinals = same.iter().map(|(_, ordinal)| *ordinal).collect();
            all.add(source.epoch.ordinals(same[0].0, ordinals)?);
        }
        Ok(Self { packs: all.packs, ..Self::of_rows(source, all.rows).await? })
    }

    /// Resolves the rows at some ordinals of an epoch, which need not ascend.
    pub async fn of(source: &SourcePlan, epoch: u64, ordinals: Vec<u64>) -> Result<Self> {
        let EpochOrdinals { rows, packs } = source.epoch.ordinals(epoch, ordinals)?;
        Ok(Self { packs, ..Self::of_rows(source, rows).await? })
    }

    /// Resolves the rows with these ordinals.
    async fn of_rows(source: &SourcePlan, ordinals: Vec<u64>) -> Result<Self> {
        if ordinals.is_sorted_by(|one, next| one < next) {
            return Ok(Self {
                rows: source.row_set.resolve(&ordinals).await?,
                places: (0..ordinals.len() as u64).collect(),
                ascending: None,
                ordinals,
                packs: None,
                delivered: DeliveredAt::default(),
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
        let (rows, delivered) = (source.row_set.resolve(&unique).await?, DeliveredAt::default());
        Ok(Self { rows, places, ascending, ordinals, packs: None, delivered })
    }
}

/// Returns the row addresses of visits, as `[table][visit]` over the tables of all sources.
pub(crate) async fn row_addrs(plan: &PlanInner, visits: &[Visit]) -> Result<Vec<Vec<u64>>> {
    let mut all = Vec::new();
    for (index, found) in FoundRows::of(plan, visits).await?.by_source.into_iter().enumerate() {
        for addrs_of_rows in found.addrs().iter() {
            let mine = (0..visits.len()).filter(|place| visits[*place].source == index);
            let mut addrs = vec![NO_ROW; visits.len()];
            mine.zip(addrs_of_rows).for_each(|(place, addr)| addrs[place] = *addr);
            all.push(addrs);
        }
    }
    Ok(all)
}
