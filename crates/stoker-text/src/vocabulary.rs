//! The words that matter to a query.

use std::collections::HashMap;

use crate::similar::are_similar;
use crate::{Pattern, TextQuery};

/// The words of a query, and the words of texts that were found to be similar to one of them. A word has a number: its
/// index here.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    words: Vec<String>,
    numbers: HashMap<String, u32>,
    /// For each clause, the numbers of the words that are similar to its word, if it is a [`Pattern::Similar`].
    similar: Vec<Vec<u32>>,
    patterns: Vec<Option<(String, usize)>>,
}

impl Vocabulary {
    /// Creates the vocabulary of the words that are written in a query.
    pub fn new(query: &TextQuery) -> Self {
        let similar = |pattern: &Pattern| match pattern {
            Pattern::Similar { word, edits } => Some((word.clone(), *edits)),
            _ => None,
        };
        let patterns: Vec<_> = query.clauses().iter().map(|clause| similar(&clause.pattern)).collect();
        let mut vocabulary =
            Self { words: Vec::new(), numbers: HashMap::new(), similar: vec![Vec::new(); patterns.len()], patterns };
        for clause in query.clauses() {
            match &clause.pattern {
                Pattern::Word(word) | Pattern::Similar { word, .. } => vocabulary.insert(word),
                Pattern::Phrase(words) => words.iter().for_each(|word| vocabulary.insert(&word.word)),
            }
        }
        vocabulary
    }

    fn insert(&mut self, word: &str) {
        if self.numbers.contains_key(word) {
            return;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a vocabulary of 2^32 words would not fit in memory")]
        let number = self.words.len() as u32;
        self.words.push(word.to_string());
        self.numbers.insert(word.to_string(), number);
        for (pattern, similar) in self.patterns.iter().zip(&mut self.similar) {
            if pattern.as_ref().is_some_and(|(sought, edits)| are_similar(sought, word, *edits)) {
                similar.push(number);
            }
        }
    }

    /// Returns the number of a word of a text; `None` if it matters to no clause. A similar word that was not known is
    /// added.
    pub fn number(&mut self, word: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(word) {
            return Some(*number);
        }
        let is_similar = |(sought, edits): &(String, usize)| are_similar(sought, word, *edits);
        if self.patterns.iter().flatten().any(is_similar) {
            self.insert(word);
            return self.numbers.get(word).copied();
        }
        None
    }

    /// Returns the number of a known word.
    pub fn known(&self, word: &str) -> Option<u32> {
        self.numbers.get(word).copied()
    }

    /// The words, by number.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The numbers of the words that are similar to the word of a clause. Empty for clauses of other kinds.
    pub fn similar(&self, clause: usize) -> &[u32] {
        self.similar.get(clause).map_or(&[], Vec::as_slice)
    }
}
