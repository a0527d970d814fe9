//! Reads texts for the words of a query.

use std::sync::Arc;

use crate::{Analysis, Analyzer, Pattern, TextQuery, Vocabulary};

/// What a query needs to know of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The number of words, also of those that do not matter to the query.
    pub length: u32,
    /// Each word of the vocabulary that the text has, by number, and how often; in ascending order of numbers.
    pub counts: Vec<(u32, u32)>,
    /// The indices of the clauses whose phrase the text has, in ascending order.
    pub phrases: Vec<u32>,
}

impl Document {
    /// Returns how often the text has a word.
    pub fn count(&self, number: u32) -> u32 {
        match self.counts.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(index) => self.counts[index].1,
            Err(_) => 0,
        }
    }

    /// Tells whether nothing in the text matters to the query.
    pub fn is_irrelevant(&self) -> bool {
        self.counts.is_empty()
    }

    /// Replaces the numbers of words: number `n` becomes `numbers[n]`.
    pub fn renumber(&mut self, numbers: &[u32]) {
        for (number, _) in &mut self.counts {
            *number = numbers[*number as usize];
        }
        self.counts.sort_unstable();
    }

    /// The bytes that it holds.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.counts.capacity() * size_of::<(u32, u32)>()
            + self.phrases.capacity() * size_of::<u32>()
    }
}

/// Reads texts. Each thread needs its own; they may find similar words in different order, and so number them
/// differently.
#[derive(Clone, Debug)]
pub struct Matcher {
    analyzer: Analyzer,
    query: Arc<TextQuery>,
    vocabulary: Vocabulary,
    has_phrases: bool,
    /// The positions of the words of the text that is read, by number.
    positions: Vec<Vec<usize>>,
}

impl Matcher {
    /// Creates a matcher that begins with this vocabulary.
    pub fn new(query: Arc<TextQuery>, analysis: &Analysis, vocabulary: Vocabulary) -> Self {
        let (analyzer, has_phrases) = (analysis.analyzer(), query.has_phrases());
        Self { analyzer, query, vocabulary, has_phrases, positions: Vec::new() }
    }

    /// The words that were found so far.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// Returns what the query needs to know of a text.
    pub fn read(&mut self, text: &str) -> Document {
        let mut document = Document::default();
        let Self { analyzer, vocabulary, positions, .. } = self;
        positions.iter_mut().for_each(Vec::clear);
        analyzer.words(text, |word, position| {
            document.length = document.length.saturating_add(1);
            let Some(number) = vocabulary.number(word) else { return };
            let index = number as usize;
            if positions.len() <= index {
                positions.resize_with(index + 1, Vec::new);
            }
            positions[index].push(position);
        });
        for (number, positions) in (0..).zip(&self.positions) {
            if !positions.is_empty() {
                document.counts.push((number, u32::try_from(positions.len()).unwrap_or(u32::MAX)));
            }
        }
        if self.has_phrases && !document.counts.is_empty() {
            document.phrases = self.phrases();
        }
        document
    }

    /// Returns the clauses whose phrase is in the text that was read.
    fn phrases(&self) -> Vec<u32> {
        let at = |word: &str| -> &[usize] {
            let number = self.vocabulary.known(word);
            number.and_then(|number| self.positions.get(number as usize)).map_or(&[], Vec::as_slice)
        };
        let has = |pattern: &Pattern| match pattern {
            Pattern::Phrase(words) => match words.split_first() {
                Some((first, rest)) => at(&first.word)
                    .iter()
                    .any(|start| rest.iter().all(|word| at(&word.word).binary_search(&(start + word.offset)).is_ok())),
                None => false,
            },
            _ => false,
        };
        let clauses = (0..).zip(self.query.clauses());
        clauses.filter(|(_, clause)| has(&clause.pattern)).map(|(index, _)| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Matcher;
    use crate::{Analysis, TextQuery, Vocabulary, matches};

    fn found(query: &str, text: &str) -> bool {
        let query = Arc::new(TextQuery::parse(query, &Analysis::default()).expect("a query"));
        let mut matcher = Matcher::new(query.clone(), &Analysis::default(), Vocabulary::new(&query));
        let document = matcher.read(text);
        matches(&query, matcher.vocabulary(), &[&document])
    }

    #[test]
    fn texts_match_by_their_clauses() {
        let text = "The quick brown fox jumps over the lazy dog. The fox is quick!";
        for (query, expected) in [
            ("fox", true),
            ("cat", false),
            ("cat fox", true),
            ("+cat fox", false),
            ("+fox cat", true),
            ("fox -dog", false),
            ("fox -cat", true),
            ("\"brown fox\"", true),
            ("\"fox brown\"", false),
            ("\"the fox\"", true),
            ("\"the fox is quick\"", true),
            ("\"quick fox\" dog", true),
            ("+\"quick fox\" dog", false),
            ("-\"quick fox\" dog", true),
            ("jmps~1", true),
            ("jmp~1", false),
            ("jmp~2", true),
            ("dog -fix~1", false),
            ("+an +fox", false),
            ("+is +fox", true),
        ] {
            assert_eq!(found(query, text), expected, "{query}");
        }
        assert!(!found("fox", ""));
    }

    #[test]
    fn documents_tell_words_and_length() {
        let query = Arc::new(TextQuery::parse("fox dgo~2", &Analysis::default()).expect("a query"));
        let mut matcher = Matcher::new(query.clone(), &Analysis::default(), Vocabulary::new(&query));
        let document = matcher.read("a fox, a dog, a fox");
        assert_eq!(document.length, 6);
        let count = |word| document.count(matcher.vocabulary().known(word).expect("a known word"));
        assert_eq!((count("fox"), count("dog"), count("dgo")), (2, 1, 0));
        let mut other = document.clone();
        other.renumber(&[7, 3, 5]);
        assert_eq!(other.count(7), 2);
        assert_eq!(matcher.read("nothing").counts, []);
    }
}
