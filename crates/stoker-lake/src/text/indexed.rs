//! Finds the full-text indexes that can serve a search.

use std::collections::BTreeMap;
use std::sync::Arc;

use lance::dataset::scanner::{RowAddrMask, RowAddrTreeMap};
use lance::index::prefilter::DatasetPreFilter;
use lance::index::{DatasetIndexExt as _, DatasetIndexInternalExt as _};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::InvertedIndexParams;
use lance_index::scalar::inverted::InvertedIndex;
use lance_index::scalar::inverted::document_tokenizer::DocType;
use lance_index::scalar::inverted::query::{FtsSearchParams, Tokens};
use lance_table::format::IndexMetadata;
use roaring::RoaringBitmap;
use serde_json::{Map, Value};
use stoker_text::{Analysis, Pattern, Vocabulary};

use super::TextSearch;
use crate::damage::caught;
use crate::row_id_set::fragment_id;
use crate::{Error, Result, Table};

/// The most words of an index that are taken as similar to a word of a query. Some may have only rows that were deleted.
const SIMILAR_MAX: usize = 65_536;

/// The settings of an index on which the words of a text depend.
const ANALYSIS_SETTINGS: [&str; 9] = [
    "base_tokenizer",
    "max_token_length",
    "lower_case",
    "stem",
    "remove_stop_words",
    "custom_stop_words",
    "ascii_folding",
    "language",
    "lance_tokenizer",
];

/// The indexes of a search, and the fragments that they do not cover.
#[derive(Debug)]
pub(super) struct Covered {
    /// One index for each column; none if a column has no index that fits.
    pub(super) indexes: Vec<ColumnIndex>,
    /// The fragments that are to be read.
    pub(super) others: Vec<u32>,
}

/// A full-text index of a column. It may consist of several segments, each of which covers other fragments.
#[derive(Debug)]
pub(super) struct ColumnIndex {
    pub(super) name: String,
    pub(super) segments: Vec<Segment>,
    pub(super) has_positions: bool,
    pub(super) fragments: RoaringBitmap,
}

/// A part of an index.
pub(super) struct Segment {
    pub(super) index: Arc<InvertedIndex>,
    /// The fragments that the segment was made for. It may have entries of other fragments, which are out of date.
    pub(super) made_for: RoaringBitmap,
    /// The fragments in which it is searched.
    pub(super) searched: RoaringBitmap,
    /// The rows that it may find.
    pub(super) mask: Arc<RowAddrMask>,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").field("searched", &self.searched).finish_non_exhaustive()
    }
}

impl Table {
    /// Finds an index for each column, and the fragments that all of them cover.
    pub(super) async fn covered_texts(&self, search: &TextSearch) -> Result<Covered> {
        let all: Vec<u32> = self.fragments().iter().map(|fragment| fragment.id).collect();
        let none = Covered { indexes: Vec::new(), others: all.clone() };
        if !search.use_index {
            return Ok(none);
        }
        let mut indexes = Vec::with_capacity(search.columns.len());
        for column in &search.columns {
            let Some(index) = self.text_index(column, search).await? else { return Ok(none) };
            indexes.push(index);
        }
        let mut covered: RoaringBitmap = all.iter().copied().collect();
        indexes.iter().for_each(|index| covered &= &index.fragments);
        if covered.is_empty() {
            return Ok(none);
        }
        for segment in indexes.iter_mut().flat_map(|index| &mut index.segments) {
            segment.searched &= &covered;
            segment.mask = self.rows_of(segment, search).await?;
        }
        indexes.iter_mut().for_each(|index| index.segments.retain(|segment| !segment.searched.is_empty()));
        Ok(Covered { indexes, others: all.into_iter().filter(|id| !covered.contains(*id)).collect() })
    }

    /// Returns the index of a column that fits the search best: one with the positions of words if it needs them, then the
    /// one that covers most fragments, then the first by name.
    async fn text_index(&self, column: &str, search: &TextSearch) -> Result<Option<ColumnIndex>> {
        let fail = |source| Error::storage(self.searching(), source);
        let Some(field) = self.dataset().schema().field(column) else { return Ok(None) };
        let mut by_name: BTreeMap<&str, Vec<&IndexMetadata>> = BTreeMap::new();
        let all = caught(self.dataset().load_indices()).await.map_err(fail)?;
        for index in all.iter() {
            let details = index.index_details.as_ref();
            if index.fields == [field.id]
                && details.is_some_and(|details| details.type_url.ends_with("InvertedIndexDetails"))
            {
                by_name.entry(&index.name).or_default().push(index);
            }
        }
        let mut best: Option<ColumnIndex> = None;
        for (name, segments) in by_name {
            let Some(index) = self.open_text_index(column, name, &segments, search).await? else { continue };
            let rank = |index: &ColumnIndex| (index.has_positions && search.query.has_phrases(), index.fragments.len());
            if best.as_ref().is_none_or(|best| rank(&index) > rank(best)) {
                best = Some(index);
            }
        }
        Ok(best)
    }

    /// Opens an index; `None` if its words are not those of the search, or if it is not known which fragments it covers.
    async fn open_text_index(
        &self,
        column: &str,
        name: &str,
        segments: &[&IndexMetadata],
        search: &TextSearch,
    ) -> Result<Option<ColumnIndex>> {
        // An index does not know which rows an overlay has changed since.
        let known = self.dataset().fragments().iter().filter(|fragment| fragment.overlays.is_empty());
        let known: RoaringBitmap = known.map(|fragment| fragment_id(fragment.id)).collect();
        let mut index = ColumnIndex {
            name: name.to_string(),
            segments: Vec::new(),
            has_positions: true,
            fragments: RoaringBitmap::new(),
        };
        for metadata in segments {
            let Some(made_for) = metadata.fragment_bitmap.clone() else { return Ok(None) };
            let opening = self.dataset().open_scalar_index(column, &metadata.uuid, &NoOpMetricsCollector);
            let opened = match caught(opening).await {
                Ok(opened) => opened,
                Err(source) => {
                    let attempted = format!("opening index {name} of {}", self.snapshot());
                    return Err(self.read_error(attempted, source).await);
                }
            };
            let Some(inverted) = opened.as_any().downcast_ref::<InvertedIndex>() else { return Ok(None) };
            if inverted.is_legacy() || !has_analysis(inverted.params(), &search.analysis) {
                return Ok(None);
            }
            index.has_positions &= inverted.params().has_positions();
            let searched = &made_for & &known;
            index.fragments |= &searched;
            let mask = Arc::new(RowAddrMask::all_rows());
            index.segments.push(Segment { index: Arc::new(inverted.clone()), made_for, searched, mask });
        }
        Ok(Some(index))
    }

    /// Returns the rows that a segment may find: those of the searched fragments that are not deleted and that the search
    /// allows.
    async fn rows_of(&self, segment: &Segment, search: &TextSearch) -> Result<Arc<RowAddrMask>> {
        let live = match self.dataset().manifest().uses_stable_row_ids() {
            true => self.live_row_ids(segment).await?,
            false => self.live_row_addrs(segment).await?,
        };
        Ok(match (live, &search.rows) {
            (None, None) => Arc::new(RowAddrMask::all_rows()),
            (Some(live), None) => live,
            (None, Some(rows)) => Arc::new(rows.mask()),
            (Some(live), Some(rows)) => Arc::new(rows.mask().intersect(live.as_ref().clone())),
        })
    }

    /// Returns the rows of the searched fragments that are not deleted, or `None` if these are all rows that the segment
    /// was made for.
    async fn live_row_addrs(&self, segment: &Segment) -> Result<Option<Arc<RowAddrMask>>> {
        let fragments = self.dataset().get_fragments();
        let searched = fragments.iter().filter(|fragment| segment.searched.contains(fragment_id(fragment.id() as u64)));
        let searched: Vec<_> = searched.collect();
        let are_whole = searched.iter().all(|fragment| fragment.metadata().deletion_file.is_none());
        if are_whole && segment.made_for == segment.searched {
            return Ok(None);
        }
        let mut live = RowAddrTreeMap::new();
        for fragment in searched {
            let id = fragment_id(fragment.id() as u64);
            let deleted = match caught(fragment.get_deletion_vector()).await {
                Ok(deleted) => deleted,
                Err(source) => return Err(self.read_error(self.searching(), source).await),
            };
            let num_rows = u32::try_from(fragment.metadata().physical_rows.unwrap_or(0)).unwrap_or(u32::MAX);
            match deleted {
                None => live.insert_fragment(id),
                Some(deleted) => {
                    let mut offsets = RoaringBitmap::new();
                    offsets.insert_range(0..num_rows);
                    live.insert_bitmap(id, offsets - RoaringBitmap::from(deleted.as_ref()));
                }
            }
        }
        Ok(Some(Arc::new(RowAddrMask::from_allowed(live))))
    }

    /// Does the same for a table with stable row ids.
    async fn live_row_ids(&self, segment: &Segment) -> Result<Option<Arc<RowAddrMask>>> {
        let searched = segment.searched.clone();
        // Fragments that are gone have deleted rows.
        let known: RoaringBitmap = self.fragments().iter().map(|fragment| fragment.id).collect();
        let fragments = searched | (&segment.made_for - known);
        let loading = DatasetPreFilter::create_restricted_deletion_mask(self.dataset().clone(), fragments);
        let Some(loading) = loading else { return Ok(None) };
        match caught(loading).await {
            Ok(live) => Ok(Some(live)),
            Err(source) => Err(self.read_error(self.searching(), source).await),
        }
    }
}

impl Covered {
    /// Adds the words of the indexes that are similar to words of the query.
    pub(super) fn add_similar(&self, table: &Table, search: &TextSearch, vocabulary: &mut Vocabulary) -> Result<()> {
        for clause in search.query.clauses() {
            let Pattern::Similar { word, edits } = &clause.pattern else { continue };
            let tokens = Tokens::new(vec![word.clone()], DocType::Text);
            let fuzziness = u32::try_from(*edits).ok();
            let params = FtsSearchParams::new().with_fuzziness(fuzziness).with_max_expansions(SIMILAR_MAX);
            for segment in self.indexes.iter().flat_map(|index| &index.segments) {
                let found = segment.index.expand_fuzzy_tokens(&tokens, &params);
                let found = found.map_err(|source| Error::storage(table.searching(), source))?;
                for similar in &found {
                    vocabulary.number(similar);
                }
            }
        }
        Ok(())
    }
}

/// Tells whether an index was made with this analysis.
fn has_analysis(params: &InvertedIndexParams, analysis: &Analysis) -> bool {
    let Some(expected) = index_params(analysis) else { return false };
    match (settings(params), settings(&expected)) {
        (Some(found), Some(expected)) => found == expected,
        _ => false,
    }
}

/// Returns the parameters of an index with this analysis, and with the positions of words.
pub(crate) fn index_params(analysis: &Analysis) -> Option<InvertedIndexParams> {
    let params = InvertedIndexParams::default()
        .stem(analysis.language().is_some())
        .remove_stop_words(analysis.removes_stop_words())
        .with_position(true);
    match analysis.language() {
        Some(language) => params.language(&language).ok(),
        None => Some(params),
    }
}

/// Returns the settings on which the words of a text depend.
fn settings(params: &InvertedIndexParams) -> Option<Map<String, Value>> {
    let Value::Object(mut all) = serde_json::to_value(params).ok()? else { return None };
    all.retain(|name, _| ANALYSIS_SETTINGS.contains(&name.as_str()));
    let is_set = |name: &str| all.get(name).and_then(Value::as_bool).unwrap_or(false);
    if !is_set("stem") && !is_set("remove_stop_words") {
        all.remove("language");
    }
    if all.get("lance_tokenizer").is_some_and(|tokenizer| tokenizer.is_null() || tokenizer == "text") {
        all.remove("lance_tokenizer");
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use lance_index::scalar::InvertedIndexParams;
    use stoker_text::{Analysis, LANGUAGES};

    use super::{has_analysis, index_params};

    #[test]
    fn indexes_have_the_words_of_their_analysis() {
        let text = "The Crème de la crème: foxes were running over 12 lazy dogs, state-of-the-art, ÄÖÜ Straße ×";
        let mut analyses = vec![Analysis::default(), Analysis::default().without_stop_words().expect("English")];
        for language in LANGUAGES {
            let stems = Analysis::default().with_stems(language).expect("a language");
            analyses.push(stems);
            analyses.extend(stems.without_stop_words());
        }
        for analysis in &analyses {
            let params = index_params(analysis).expect("parameters");
            let mut tokenizer = params.build().expect("a tokenizer");
            let (mut theirs, mut ours) = (Vec::new(), Vec::new());
            let mut stream = tokenizer.token_stream_for_doc(text);
            while let Ok(Some(token)) = stream.try_next() {
                theirs.push((token.text.clone(), token.position));
            }
            analysis.analyzer().words(text, |word, position| ours.push((word.to_string(), position)));
            assert_eq!(theirs, ours, "{analysis:?}");
            for other in &analyses {
                assert_eq!(has_analysis(&params, other), analysis == other, "{analysis:?} {other:?}");
            }
        }
        // Lance's default index has stems and no stop words.
        let default = Analysis::default().with_stems("english").and_then(Analysis::without_stop_words);
        assert!(has_analysis(&InvertedIndexParams::default(), &default.expect("English")));
    }
}
