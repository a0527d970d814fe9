//! Decides whether a row matches, and scores it.
//!
//! The score is Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) with the idf of Lucene,
//! which is never negative: for each word of the clauses that a row matches,
//!
//! ```text
//! ln(1 + (N − n + 0.5) / (n + 0.5)) · f · (K1 + 1) / (f + K1 · (1 − B + B · length / mean length))
//! ```
//!
//! N texts have a word, n of them this word; the text has it f times. A row with several columns has the sum of the
//! columns' scores. A word that is written twice counts twice. Sums are made in the order of the clauses, in 64 bits, so
//! that a row has the same score however it was found.

use crate::{Clause, Document, Occur, Pattern, TextQuery, Vocabulary};

/// How fast repetitions of a word stop to count.
pub const K1: f64 = 1.2;
/// How much longer texts score lower.
pub const B: f64 = 0.75;

/// What scores need to know of all texts of a column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnStatistics {
    /// The number of texts with at least one word.
    pub num_texts: u64,
    /// The number of words of all texts.
    pub num_words: u64,
    /// For each word of the vocabulary, by number, the number of texts that have it.
    pub texts_with: Vec<u64>,
}

impl ColumnStatistics {
    /// Counts a text.
    pub fn add(&mut self, document: &Document) {
        if document.length == 0 {
            return;
        }
        self.num_texts += 1;
        self.num_words += u64::from(document.length);
        for (number, _) in &document.counts {
            self.count(*number, 1);
        }
    }

    /// Counts texts that have a word.
    pub fn count(&mut self, number: u32, texts: u64) {
        let index = number as usize;
        if self.texts_with.len() <= index {
            self.texts_with.resize(index + 1, 0);
        }
        self.texts_with[index] += texts;
    }

    fn weight(&self, number: u32, document: &Document) -> f64 {
        let count = f64::from(document.count(number));
        let with = self.texts_with.get(number as usize).copied().unwrap_or(0);
        if count == 0.0 || with == 0 {
            return 0.0;
        }
        let (texts, with) = (self.num_texts as f64, with as f64);
        let idf = (1.0 + (texts - with + 0.5) / (with + 0.5)).ln();
        let mean = self.num_words as f64 / texts;
        idf * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * f64::from(document.length) / mean))
    }
}

/// Tells whether a row matches a query. `documents` has one document for each searched column.
pub fn matches(query: &TextQuery, vocabulary: &Vocabulary, documents: &[&Document]) -> bool {
    let mut any = false;
    let mut needs_any = true;
    for (index, clause) in (0..).zip(query.clauses()) {
        let found = documents.iter().any(|document| has(clause, index, vocabulary, document));
        match clause.occur {
            Occur::Required if !found => return false,
            Occur::Excluded if found => return false,
            Occur::Required => needs_any = false,
            Occur::Excluded => {}
            Occur::Optional => any |= found,
        }
    }
    any || !needs_any
}

/// Returns the score of a row that matches. `documents` and `statistics` have one entry for each searched column.
pub fn score(
    query: &TextQuery,
    vocabulary: &Vocabulary,
    documents: &[&Document],
    statistics: &[ColumnStatistics],
) -> f32 {
    let mut sum = 0.0;
    for (document, statistics) in documents.iter().zip(statistics) {
        for (index, clause) in (0..).zip(query.clauses()) {
            if clause.occur == Occur::Excluded {
                continue;
            }
            match &clause.pattern {
                Pattern::Word(word) => {
                    sum += vocabulary.known(word).map_or(0.0, |number| statistics.weight(number, document));
                }
                Pattern::Similar { .. } => {
                    let mut found: Vec<u32> = vocabulary.similar(index as usize).to_vec();
                    found.retain(|number| document.count(*number) > 0);
                    // Numbers depend on the order in which words were found; words do not.
                    found.sort_unstable_by_key(|number| vocabulary.words().get(*number as usize));
                    sum += found.into_iter().map(|number| statistics.weight(number, document)).sum::<f64>();
                }
                Pattern::Phrase(words) => {
                    if document.phrases.contains(&index) {
                        let numbers = words.iter().filter_map(|word| vocabulary.known(&word.word));
                        sum += numbers.map(|number| statistics.weight(number, document)).sum::<f64>();
                    }
                }
            }
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "the column of scores is f32")]
    let score = sum as f32;
    score
}

fn has(clause: &Clause, index: u32, vocabulary: &Vocabulary, document: &Document) -> bool {
    match &clause.pattern {
        Pattern::Word(word) => vocabulary.known(word).is_some_and(|number| document.count(number) > 0),
        Pattern::Similar { .. } => vocabulary.similar(index as usize).iter().any(|number| document.count(*number) > 0),
        Pattern::Phrase(_) => document.phrases.contains(&index),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{ColumnStatistics, score};
    use crate::{Analysis, Document, Matcher, TextQuery, Vocabulary};

    #[test]
    fn scores_are_bm25() {
        let query = Arc::new(TextQuery::parse("fox \"lazy dog\"", &Analysis::default()).expect("a query"));
        let mut matcher = Matcher::new(query.clone(), &Analysis::default(), Vocabulary::new(&query));
        let texts = ["the fox", "fox fox dog", "a lazy dog", "", "dog lazy", "nothing of it at all"];
        let documents: Vec<Document> = texts.iter().map(|text| matcher.read(text)).collect();
        let mut statistics = ColumnStatistics::default();
        documents.iter().for_each(|document| statistics.add(document));
        assert_eq!((statistics.num_texts, statistics.num_words), (5, 15));
        let scores: Vec<f32> = documents
            .iter()
            .map(|document| score(&query, matcher.vocabulary(), &[document], &[statistics.clone()]))
            .collect();
        // By hand: idf(fox) = ln(1 + 3.5 / 2.5), idf(dog) = ln(1 + 2.5 / 3.5), idf(lazy) = idf(fox), mean length 3.
        let (two, three) = ((1.0_f64 + 3.5 / 2.5).ln(), (1.0_f64 + 2.5 / 3.5).ln());
        let weight = |count: f64, length: f64| count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / 3.0));
        let expected =
            [two * weight(1.0, 2.0), two * weight(2.0, 3.0), (two + three) * weight(1.0, 3.0), 0.0, 0.0, 0.0];
        for (score, expected) in scores.iter().zip(expected) {
            assert!((f64::from(*score) - expected).abs() < 1e-6, "{scores:?} {expected}");
        }
    }
}
