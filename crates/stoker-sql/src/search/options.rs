//! The options of search functions, written `name => value`.

use arrow_schema::DataType;
use datafusion::sql::sqlparser::ast::Expr;
use stoker_lake::Metric;
use stoker_text::{Analysis, LANGUAGES};

use super::call::number;
use crate::params::Params;
use crate::resolve::Constant;
use crate::{Error, Result};

/// The most rows that one search may return.
pub(super) const K_MAX: i64 = 1_000_000;
const K_DEFAULT: usize = 10;
/// By which ranks count less: with 60, the first row counts 1.15 times as much as the tenth.
const RRF_K_DEFAULT: f64 = 60.0;

/// A search function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchFunction {
    Vector,
    Words,
    Hybrid,
}

/// The options of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchOptions {
    pub(super) k: usize,
    pub(super) metric: Metric,
    pub(super) use_index: bool,
    pub(super) nprobes: Option<usize>,
    pub(super) refine: Option<u32>,
    pub(super) analysis: Analysis,
    /// The rows that each side of a hybrid search finds; `k` if not given.
    pub(super) candidates: Option<usize>,
    pub(super) weights: [f64; 2],
    pub(super) rrf_k: f64,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            k: K_DEFAULT,
            metric: Metric::L2,
            use_index: true,
            nprobes: None,
            refine: None,
            analysis: Analysis::default(),
            candidates: None,
            weights: [1.0, 1.0],
            rrf_k: RRF_K_DEFAULT,
        }
    }
}

impl SearchFunction {
    /// Returns the function with this name, in lower case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Vector, Self::Words, Self::Hybrid].into_iter().find(|function| function.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vector => "vector_search",
            Self::Words => "text_search",
            Self::Hybrid => "hybrid_search",
        }
    }

    /// How a call is written.
    pub(super) fn usage(self) -> &'static str {
        match self {
            Self::Vector => {
                "write vector_search(table, column, query, k => 10, metric => 'l2' | 'cosine' | 'dot', nprobes => n, \
                 refine => n, exact => false); the query is an array, a parameter or a subquery in parentheses"
            }
            Self::Words => {
                "write text_search(table, column, 'words', k => 10, language => 'english', stop_words => true, \
                 use_index => true); for several columns, write [title, body]; the words are a text or a parameter"
            }
            Self::Hybrid => {
                "write hybrid_search(table, vector_column, query, text_column, 'words', k => 10, weights => [1, 1], \
                 rrf_k => 60, candidates => n), and the options of vector_search and text_search"
            }
        }
    }

    fn has(self, option: &str) -> bool {
        match option {
            "k" | "use_index" => true,
            "exact" | "metric" | "nprobes" | "refine" => self != Self::Words,
            "language" | "stop_words" => self != Self::Vector,
            "weights" | "rrf_k" | "candidates" => self == Self::Hybrid,
            _ => false,
        }
    }
}

impl SearchOptions {
    /// Sets an option.
    pub(super) fn set(
        &mut self,
        function: SearchFunction,
        name: &str,
        value: &Expr,
        params: &mut Params,
    ) -> Result<()> {
        let refuse = |value: &dyn std::fmt::Display| {
            Err(Error::refused(format!("{} option {name} => {value}", function.name()), function.usage()))
        };
        if !function.has(name) {
            return refuse(value);
        }
        if name == "weights" {
            let Some(weights) = weights(value, params)? else {
                return Err(Error::refused(
                    format!("weights => {value}"),
                    "it must be two numbers of at least 0, of the vector and of the words, such as [0.7, 0.3]",
                ));
            };
            self.weights = weights;
            return Ok(());
        }
        match name {
            "k" | "nprobes" | "refine" | "candidates" => params.expect(value, DataType::Int64),
            "use_index" | "exact" | "stop_words" => params.expect(value, DataType::Boolean),
            "rrf_k" => params.expect(value, DataType::Float64),
            _ => {}
        }
        match Constant::parse(value, params)? {
            Constant::Unbound => Ok(()),
            constant => self.set_constant(function, name, constant),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the patterns limit the numbers")]
    fn set_constant(&mut self, function: SearchFunction, name: &str, value: Constant) -> Result<()> {
        let refused = |reason: String, value: Constant| Err(Error::refused(format!("{name} => {value:?}"), reason));
        match (name, value) {
            ("k", Constant::Int(k)) if (1..=K_MAX).contains(&k) => self.k = k as usize,
            ("candidates", Constant::Int(n)) if (1..=K_MAX).contains(&n) => self.candidates = Some(n as usize),
            ("k" | "candidates", value) => return refused(format!("it must be from 1 to {K_MAX}"), value),
            ("metric", Constant::Text(metric)) => {
                self.metric = match metric.to_ascii_lowercase().as_str() {
                    "l2" => Metric::L2,
                    "cosine" => Metric::Cosine,
                    "dot" => Metric::Dot,
                    _ => return Err(Error::refused(format!("metric => '{metric}'"), "it must be l2, cosine or dot")),
                }
            }
            ("use_index", Constant::Bool(use_index)) => self.use_index = use_index,
            ("exact", Constant::Bool(exact)) => self.use_index = !exact,
            ("nprobes", Constant::Int(n)) if (1..=i64::from(u32::MAX)).contains(&n) => self.nprobes = Some(n as usize),
            ("refine", Constant::Int(n)) if (1..=1_000).contains(&n) => self.refine = Some(n as u32),
            ("language", Constant::Text(language)) => {
                self.analysis = self.analysis.with_stems(&language).ok_or_else(|| {
                    Error::refused(
                        format!("language => '{language}'"),
                        format!("the languages whose stems are known are: {}", LANGUAGES.join(", ")),
                    )
                })?;
            }
            ("stop_words", Constant::Bool(true)) => {}
            ("stop_words", Constant::Bool(false)) => {
                self.analysis = self.analysis.without_stop_words().ok_or_else(|| {
                    let language = self.analysis.language().unwrap_or_default();
                    Error::refused("stop_words => false", format!("the frequent words of {language} are not known"))
                })?;
            }
            ("rrf_k", Constant::Int(n)) if n >= 0 => self.rrf_k = n as f64,
            ("rrf_k", Constant::Float(n)) if n >= 0.0 && n.is_finite() => self.rrf_k = n,
            ("rrf_k", value) => return refused("it must be a number of at least 0".to_string(), value),
            (name, value) => {
                let attempted = format!("{} option {name} => {value:?}", function.name());
                return Err(Error::refused(attempted, function.usage()));
            }
        }
        Ok(())
    }
}

/// Reads two weights; `None` for anything else.
fn weights(value: &Expr, params: &mut Params) -> Result<Option<[f64; 2]>> {
    let Expr::Array(array) = value else { return Ok(None) };
    let [one, other] = array.elem.as_slice() else { return Ok(None) };
    // Without its value, a parameter counts as any weight.
    let weights = [number(one, params)?.unwrap_or(1.0), number(other, params)?.unwrap_or(1.0)];
    let fits =
        weights.iter().all(|weight| *weight >= 0.0 && weight.is_finite()) && weights.iter().any(|weight| *weight > 0.0);
    Ok(fits.then_some(weights))
}
