//! Splits text into words.

use std::fmt;

use lance_tokenizer::{
    AsciiFoldingFilter, Language, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, StopWordFilter, TextAnalyzer,
};

/// Longer words are left out. A base64 text is no word.
pub const MAX_WORD_BYTES: usize = 40;

/// The languages whose words can be reduced to their stems.
pub const LANGUAGES: [&str; 18] = [
    "arabic",
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "greek",
    "hungarian",
    "italian",
    "norwegian",
    "portuguese",
    "romanian",
    "russian",
    "spanish",
    "swedish",
    "tamil",
    "turkish",
];

/// How text is split into words.
///
/// A word is a longest sequence of letters and digits, in lower case, without accents. By default all words count, as
/// they are written: `an` finds `an`, and `run` does not find `running`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Analysis {
    language: Option<Language>,
    remove_stop_words: bool,
}

impl Analysis {
    /// Reduces words to their stems by the rules of this language, one of [`LANGUAGES`]. Returns `None` for another
    /// name.
    #[must_use]
    pub fn with_stems(self, language: &str) -> Option<Self> {
        let language = match language.to_lowercase().as_str() {
            "arabic" => Language::Arabic,
            "danish" => Language::Danish,
            "dutch" => Language::Dutch,
            "english" => Language::English,
            "finnish" => Language::Finnish,
            "french" => Language::French,
            "german" => Language::German,
            "greek" => Language::Greek,
            "hungarian" => Language::Hungarian,
            "italian" => Language::Italian,
            "norwegian" => Language::Norwegian,
            "portuguese" => Language::Portuguese,
            "romanian" => Language::Romanian,
            "russian" => Language::Russian,
            "spanish" => Language::Spanish,
            "swedish" => Language::Swedish,
            "tamil" => Language::Tamil,
            "turkish" => Language::Turkish,
            _ => return None,
        };
        Some(Self { language: Some(language), ..self })
    }

    /// Leaves out the most frequent words of the language. Without a language, that is English. Returns `None` if the
    /// frequent words of the language are not known.
    #[must_use]
    pub fn without_stop_words(self) -> Option<Self> {
        StopWordFilter::new(self.language_of_stop_words()).map(|_| Self { remove_stop_words: true, ..self })
    }

    /// The language by whose rules words are reduced to stems, capitalised, such as `English`.
    pub fn language(&self) -> Option<String> {
        self.language.map(|language| format!("{language:?}"))
    }

    /// Whether frequent words are left out.
    pub fn removes_stop_words(&self) -> bool {
        self.remove_stop_words
    }

    /// Creates the analyzer of these settings.
    pub fn analyzer(&self) -> Analyzer {
        // The order is the one in which Lance's full-text indexes apply the same steps.
        let mut steps = TextAnalyzer::builder(SimpleTokenizer::default()).dynamic();
        steps = steps.filter_dynamic(RemoveLongFilter::limit(MAX_WORD_BYTES)).filter_dynamic(LowerCaser);
        if let Some(language) = self.language {
            steps = steps.filter_dynamic(Stemmer::new(language));
        }
        if self.remove_stop_words
            && let Some(filter) = StopWordFilter::new(self.language_of_stop_words())
        {
            steps = steps.filter_dynamic(filter);
        }
        Analyzer { steps: steps.filter_dynamic(AsciiFoldingFilter).build() }
    }

    fn language_of_stop_words(&self) -> Language {
        self.language.unwrap_or(Language::English)
    }
}

/// Splits texts into words. Each thread needs its own.
#[derive(Clone)]
pub struct Analyzer {
    steps: TextAnalyzer,
}

impl Analyzer {
    /// Calls `word` with each word of the text and its position, which counts the words before it, also those that are
    /// left out.
    pub fn words(&mut self, text: &str, mut word: impl FnMut(&str, usize)) {
        let mut stream = self.steps.token_stream(text);
        // Only analyzers of documents that are not text report errors.
        while let Ok(Some(token)) = stream.try_next() {
            word(&token.text, token.position);
        }
    }
}

impl fmt::Debug for Analyzer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Analyzer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Analysis, LANGUAGES};

    fn words(analysis: Analysis, text: &str) -> Vec<(String, usize)> {
        let mut words = Vec::new();
        analysis.analyzer().words(text, |word, position| words.push((word.to_string(), position)));
        words
    }

    fn only_words(analysis: Analysis, text: &str) -> Vec<String> {
        words(analysis, text).into_iter().map(|(word, _)| word).collect()
    }

    #[test]
    fn words_are_letters_and_digits_in_lower_case_without_accents() {
        let plain = Analysis::default();
        assert_eq!(
            only_words(plain, "The Crème, state-of-the-art; 4x4!"),
            ["the", "creme", "state", "of", "the", "art", "4x4"]
        );
        assert_eq!(only_words(plain, ""), Vec::<String>::new());
        assert_eq!(only_words(plain, &"a".repeat(41)), Vec::<String>::new());
        assert_eq!(only_words(plain, "数据 training"), ["数据", "training"]);
    }

    #[test]
    fn stems_and_stop_words_are_asked_for() {
        let stems = Analysis::default().with_stems("English").expect("a language");
        assert_eq!(only_words(stems, "the foxes were running"), ["the", "fox", "were", "run"]);
        let short = stems.without_stop_words().expect("stop words");
        assert_eq!(words(short, "the foxes were running"), [("fox".to_string(), 1), ("run".to_string(), 3)]);
        assert!(Analysis::default().with_stems("Klingon").is_none());
        for language in LANGUAGES {
            let stems = Analysis::default().with_stems(language).expect("a language");
            assert_eq!(stems.language().expect("a language").to_lowercase(), language);
        }
    }
}
