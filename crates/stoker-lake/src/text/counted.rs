//! Counts words by an index, for the rows of a snapshot only.
//!
//! An index counts rows that were deleted since, and rows of fragments that it no longer covers. Where such rows can exist,
//! what they contribute is subtracted. One case is not seen: a fragment whose column was rewritten and that was compacted
//! later, by another writer than Stoker, while the index was kept. Then scores deviate slightly; the rows are right.

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use datafusion::common::Result;
use futures::TryStreamExt as _;
use lance::dataset::scanner::RowAddrTreeMap;
use roaring::RoaringBitmap;
use stoker_text::{ColumnStatistics, Vocabulary};

use super::indexed::{ColumnIndex, Segment};
use crate::damage::caught;
use crate::row_id_set::fragment_id;
use crate::{ROW_ID, ScanRequest, Table};

/// The rows of a scan of row ids.
const BATCH_ROWS: usize = 65_536;

/// Rows whose share of the counts of a segment is known.
enum Share {
    /// All rows count.
    All,
    /// These rows do not count.
    Without(RowAddrTreeMap),
    /// Only these rows count.
    Only(RowAddrTreeMap),
}

impl Table {
    /// Adds the counts of the searched fragments.
    pub(super) async fn count_indexed(
        &self,
        index: &ColumnIndex,
        vocabulary: &Vocabulary,
        statistics: &mut ColumnStatistics,
    ) -> Result<()> {
        for segment in &index.segments {
            let (num_words, num_texts, texts_with) = self.counts(index, segment, vocabulary.words()).await?;
            statistics.num_words += num_words;
            statistics.num_texts += num_texts as u64;
            for (number, texts) in (0..).zip(texts_with) {
                statistics.count(number, texts as u64);
            }
        }
        Ok(())
    }

    /// Returns the number of words and of texts of a segment, and for each of these words the number of texts that have it.
    async fn counts(
        &self,
        index: &ColumnIndex,
        segment: &Segment,
        words: &[String],
    ) -> Result<(u64, usize, Vec<usize>)> {
        let share = self.share(index, segment).await?;
        let counted = async {
            let index = &segment.index;
            match &share {
                Share::All => index.bm25_stats_for_terms(words, None).await,
                Share::Without(rows) => index.bm25_row_stats_for_terms(words, Some(rows), None).await,
                Share::Only(rows) => {
                    let all = index.bm25_row_stats_for_terms(words, None, None).await?;
                    let others = index.bm25_row_stats_for_terms(words, Some(rows), None).await?;
                    let texts_with = all.2.iter().zip(&others.2).map(|(all, others)| all.saturating_sub(*others));
                    Ok((all.0.saturating_sub(others.0), all.1.saturating_sub(others.1), texts_with.collect()))
                }
            }
        };
        match caught(counted).await {
            Ok(counts) => Ok(counts),
            Err(source) => Err(self.read_error(self.searching(), source).await.into()),
        }
    }

    /// Finds out which rows of a segment are rows of the searched fragments.
    async fn share(&self, index: &ColumnIndex, segment: &Segment) -> Result<Share> {
        let fragments = self.dataset().fragments();
        let known: RoaringBitmap = fragments.iter().map(|fragment| fragment_id(fragment.id)).collect();
        let range = segment.made_for.min().unwrap_or(0)..=segment.made_for.max().unwrap_or(0);
        let is_gone = !segment.made_for.is_subset(&known) || !segment.index.deleted_fragments().is_empty();
        // The segment may have rows of a fragment whose column was rewritten, so that it is no longer covered.
        let is_other = |id: &u32| {
            let may_be_in = range.contains(id) || !index.fragments.contains(*id);
            may_be_in && !segment.searched.contains(*id)
        };
        let others: RoaringBitmap = known.iter().filter(is_other).collect();
        let with_deletions: Vec<_> = self
            .dataset()
            .get_fragments()
            .into_iter()
            .filter(|fragment| {
                fragment.metadata().deletion_file.is_some()
                    && segment.searched.contains(fragment_id(fragment.id() as u64))
            })
            .collect();
        if !is_gone && others.is_empty() && with_deletions.is_empty() {
            return Ok(Share::All);
        }
        if is_gone || self.dataset().manifest().uses_stable_row_ids() {
            return Ok(Share::Only(self.row_ids_of(&segment.searched).await?));
        }
        let mut rows = RowAddrTreeMap::new();
        for fragment in fragments.iter().filter(|fragment| others.contains(fragment_id(fragment.id))) {
            let first = fragment.id << 32;
            rows.insert_range(first..first + fragment.physical_rows.unwrap_or(0) as u64);
        }
        for fragment in with_deletions {
            let deleted = match caught(fragment.get_deletion_vector()).await {
                Ok(deleted) => deleted,
                Err(source) => return Err(self.read_error(self.searching(), source).await.into()),
            };
            if let Some(deleted) = deleted {
                rows.insert_bitmap(fragment_id(fragment.id() as u64), RoaringBitmap::from(deleted.as_ref()));
            }
        }
        Ok(Share::Without(rows))
    }

    /// Returns the ids of the rows of these fragments.
    async fn row_ids_of(&self, fragments: &RoaringBitmap) -> Result<RowAddrTreeMap> {
        let request = ScanRequest {
            with_row_id: true,
            fragments: Some(fragments.iter().collect()),
            batch_size: BATCH_ROWS,
            ..ScanRequest::default()
        };
        let mut batches = self.scan(&request).await?;
        let mut rows = RowAddrTreeMap::new();
        while let Some(batch) = batches.try_next().await? {
            if let Some(ids) = batch.column_by_name(ROW_ID).and_then(|ids| ids.as_primitive_opt::<UInt64Type>()) {
                rows.extend(ids.values());
            }
        }
        Ok(rows)
    }
}
