//! Parses the text of a search.

use crate::Analysis;

/// The most words of a query.
pub const WORDS_MAX: usize = 1_024;

/// A parsed search text.
///
/// ```text
/// fox dog          rows with any of the words; more of them score higher
/// +fox dog         rows with fox; dog scores
/// fox -dog         rows with fox, without dog
/// "quick fox"      rows with these words, one after the other
/// incidnt~1        rows with a word at most one edit away; ~2: two edits; ~ alone: one
/// ```
///
/// What the analysis splits into several words, such as `state-of-the-art`, is a phrase. What has no word, such as `&`,
/// is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextQuery {
    clauses: Vec<Clause>,
}

/// A part of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Whether rows must match it.
    pub occur: Occur,
    /// What it finds.
    pub pattern: Pattern,
}

/// Whether rows must match a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occur {
    /// Rows may match it. If no clause is required, they match one of these.
    Optional,
    /// All rows match it: `+fox`.
    Required,
    /// No row matches it: `-fox`.
    Excluded,
}

/// What a clause finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A word.
    Word(String),
    /// Words that at most `edits` insertions, deletions and replacements of characters make this word.
    Similar {
        /// The word.
        word: String,
        /// 1 or 2.
        edits: usize,
    },
    /// Words one after the other.
    Phrase(Vec<PhraseWord>),
}

/// A word of a phrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhraseWord {
    /// The word.
    pub word: String,
    /// How many words after the first word of the phrase it stands.
    pub offset: usize,
}

/// Why a text is not a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct QueryError {
    reason: String,
}

fn refused<T>(reason: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError { reason: reason.into() })
}

impl TextQuery {
    /// Parses the text of a search.
    ///
    /// # Errors
    /// A quotation mark without its pair, a wrong number of edits, a text without words or with exclusions only, too many
    /// words.
    pub fn parse(text: &str, analysis: &Analysis) -> Result<Self, QueryError> {
        let mut analyzer = analysis.analyzer();
        let mut parser = Parser { text, rest: text, clauses: Vec::new(), num_words: 0 };
        while parser.clause(|text| {
            let mut words: Vec<PhraseWord> = Vec::new();
            let mut first = None;
            analyzer.words(text, |word, position| {
                let first = *first.get_or_insert(position);
                words.push(PhraseWord { word: word.to_string(), offset: position.saturating_sub(first) });
            });
            words
        })? {}
        let Parser { clauses, .. } = parser;
        if clauses.is_empty() && analysis.removes_stop_words() {
            return refused("the text has no words but frequent ones, which this search leaves out");
        }
        if clauses.is_empty() {
            return refused("the text has no words: write letters or digits");
        }
        if clauses.iter().all(|clause| clause.occur == Occur::Excluded) {
            return refused("the text only excludes words: add a word that rows shall have");
        }
        Ok(Self { clauses })
    }

    /// The clauses, in order.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses
    }

    /// Tells whether a clause is a phrase, which needs the positions of words.
    pub fn has_phrases(&self) -> bool {
        self.clauses.iter().any(|clause| matches!(clause.pattern, Pattern::Phrase(_)))
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    clauses: Vec<Clause>,
    num_words: usize,
}

impl Parser<'_> {
    /// Parses the next clause. Returns `false` at the end of the text.
    fn clause(&mut self, words: impl FnOnce(&str) -> Vec<PhraseWord>) -> Result<bool, QueryError> {
        self.rest = self.rest.trim_start();
        let Some(first) = self.rest.chars().next() else { return Ok(false) };
        let occur = match first {
            '+' => Occur::Required,
            '-' => Occur::Excluded,
            _ => Occur::Optional,
        };
        if occur != Occur::Optional {
            self.rest = &self.rest[1..];
        }
        if let Some(quoted) = self.rest.strip_prefix('"') {
            let Some(end) = quoted.find('"') else {
                return refused(format!("the quotation mark at byte {} has no pair", self.offset()));
            };
            let phrase = words(&quoted[..end]);
            self.rest = &quoted[end + 1..];
            if self.rest.starts_with('~') {
                let reason = "edits are for single words: write word~1";
                return refused(format!("\"{}\"~: {reason}", &quoted[..end]));
            }
            self.add(occur, phrase, None)?;
            return Ok(true);
        }
        let end = self.rest.find(|character: char| character.is_whitespace() || character == '"');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let (written, edits) = edits(word)?;
        let found = words(written);
        if let (Some(_), [_, _, ..]) = (edits, found.as_slice()) {
            let parts: Vec<&str> = found.iter().map(|found| found.word.as_str()).collect();
            let reason = format!("it is several words ({}); give each its own ~", parts.join(", "));
            return refused(format!("{word}: {reason}"));
        }
        self.add(occur, found, edits)?;
        Ok(true)
    }

    fn add(&mut self, occur: Occur, mut words: Vec<PhraseWord>, edits: Option<usize>) -> Result<(), QueryError> {
        self.num_words += words.len();
        if self.num_words > WORDS_MAX {
            return refused(format!("the text has more than {WORDS_MAX} words"));
        }
        let single = if words.len() == 1 { words.pop() } else { None };
        let pattern = match (single, edits) {
            (Some(PhraseWord { word, .. }), None) => Pattern::Word(word),
            (Some(PhraseWord { word, .. }), Some(edits)) => Pattern::Similar { word, edits },
            (None, _) if words.is_empty() => return Ok(()),
            (None, _) => Pattern::Phrase(words),
        };
        self.clauses.push(Clause { occur, pattern });
        Ok(())
    }

    /// The offset in the text, in bytes.
    fn offset(&self) -> usize {
        self.text.len() - self.rest.len()
    }
}

/// Splits `word~n` into the word and the number of edits.
fn edits(word: &str) -> Result<(&str, Option<usize>), QueryError> {
    let Some((written, number)) = word.rsplit_once('~') else { return Ok((word, None)) };
    if !number.chars().all(|digit| digit.is_ascii_digit()) {
        return Ok((word, None));
    }
    match number {
        "" | "1" => Ok((written, Some(1))),
        "2" => Ok((written, Some(2))),
        _ => refused(format!("{word}: a word may differ by 1 or 2 edits: write {written}~1 or {written}~2")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Occur, Pattern, TextQuery};
    use crate::Analysis;

    fn parse(text: &str) -> Vec<(Occur, String)> {
        let query = TextQuery::parse(text, &Analysis::default()).expect("a query");
        let show = |pattern: &Pattern| match pattern {
            Pattern::Word(word) => word.clone(),
            Pattern::Similar { word, edits } => format!("{word}~{edits}"),
            Pattern::Phrase(words) => {
                words.iter().map(|word| format!("{}@{}", word.word, word.offset)).collect::<Vec<_>>().join(" ")
            }
        };
        query.clauses().iter().map(|clause| (clause.occur, show(&clause.pattern))).collect()
    }

    #[test]
    fn clauses() {
        use Occur::{Excluded, Optional, Required};
        let clauses = |found: &[(Occur, &str)]| -> Vec<(Occur, String)> {
            found.iter().map(|(occur, text)| (*occur, (*text).to_string())).collect()
        };
        for (text, expected) in [
            ("quick  Fox", vec![(Optional, "quick"), (Optional, "fox")]),
            ("+fox -dog", vec![(Required, "fox"), (Excluded, "dog")]),
            ("+\"the quick\" -\"a b\"", vec![(Required, "the@0 quick@1"), (Excluded, "a@0 b@1")]),
            ("incidnt~ worl~2 x~1", vec![(Optional, "incidnt~1"), (Optional, "worl~2"), (Optional, "x~1")]),
            ("state-of-art", vec![(Optional, "state@0 of@1 art@2")]),
            ("a & b + c - d", vec![(Optional, "a"), (Optional, "b"), (Optional, "c"), (Optional, "d")]),
            ("\"one\" two\"three four\"", vec![(Optional, "one"), (Optional, "two"), (Optional, "three@0 four@1")]),
            ("a~b", vec![(Optional, "a@0 b@1")]),
        ] {
            assert_eq!(parse(text), clauses(&expected), "{text}");
        }
    }

    #[test]
    fn refusals() {
        let long = "word ".repeat(1_025);
        for (text, part) in [
            ("", "no words"),
            (" & ! ", "no words"),
            ("-dog", "only excludes"),
            ("fox \"quick", "byte 4 has no pair"),
            ("fox~3", "fox~1 or fox~2"),
            ("\"quick fox\"~2", "single words"),
            ("wi-fi~1", "wi, fi"),
            (long.as_str(), "more than 1024 words"),
        ] {
            let error = TextQuery::parse(text, &Analysis::default()).expect_err(text);
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
        let short = Analysis::default().without_stop_words().expect("stop words");
        let error = TextQuery::parse("the", &short).expect_err("a stop word");
        assert!(error.to_string().contains("frequent"), "{error}");
        assert_eq!(TextQuery::parse("+fox +the", &short).expect("a query").clauses().len(), 1);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,40}") {
            if let Ok(query) = TextQuery::parse(&text, &Analysis::default()) {
                prop_assert!(!query.clauses().is_empty());
            }
        }
    }
}
