//! `matches(text, query[, language])`: whether a text has what a search text asks for, by the rules of `stoker-text`.

use std::iter::repeat_n;
use std::sync::Arc;

use arrow_array::BooleanArray;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use datafusion::common::{Result as DfResult, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::Expr;
use stoker_text::{Analysis, LANGUAGES, Matcher, TextQuery, Vocabulary};

use crate::documented::documented;

/// The most characters of a query that a message shows.
const SHOWN_CHARS_MAX: usize = 100;

/// The function. The result is Boolean: TRUE where the text matches the query, NULL where one of the two is NULL. With a
/// language, words are reduced to their stems. The language, and a query that is a literal, are checked when the call is
/// simplified, so before rows are read.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TextMatches {
    documentation: Documentation,
    signature: Signature,
}

impl TextMatches {
    pub(crate) fn new() -> Self {
        let description = "Whether a text has the words of a search text, such as fox +dog -cat \"lazy dog\" wrld~1; with \
                           a language, such as 'english', words are compared by their stems";
        Self {
            documentation: documented("matches(text, query[, language])", description),
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

/// A parsed query, and what reads texts for it.
struct Search<'a> {
    written: &'a str,
    query: Arc<TextQuery>,
    matcher: Matcher,
}

impl<'a> Search<'a> {
    fn new(written: &'a str, query: TextQuery, analysis: &Analysis) -> Self {
        let vocabulary = Vocabulary::new(&query);
        let query = Arc::new(query);
        Self { written, query: query.clone(), matcher: Matcher::new(query, analysis, vocabulary) }
    }

    fn finds(&mut self, text: &str) -> bool {
        let document = self.matcher.read(text);
        stoker_text::matches(&self.query, self.matcher.vocabulary(), &[&document])
    }
}

/// Parses a query, or returns why it cannot be parsed.
fn parsed(query: &str, analysis: &Analysis) -> Result<TextQuery, String> {
    TextQuery::parse(query, analysis).map_err(|error| format!("matches: query {}: {error}", shown(query)))
}

/// Returns how the arguments of a call ask to split texts into words, or why the language is refused. `literal` returns
/// the text of an argument that is a literal.
fn analysis<T>(args: &[T], literal: impl Fn(&T) -> Option<&str>) -> Result<Analysis, String> {
    let Some(language) = args.get(2) else { return Ok(Analysis::default()) };
    let Some(language) = literal(language) else {
        return Err(format!("matches: the language must be a literal text, one of: {}", LANGUAGES.join(", ")));
    };
    Analysis::default().with_stems(language).ok_or_else(|| {
        format!("matches: {} is not a language; the languages are: {}", shown(language), LANGUAGES.join(", "))
    })
}

fn text_of_value(value: &ColumnarValue) -> Option<&str> {
    match value {
        ColumnarValue::Scalar(value) => value.try_as_str().flatten(),
        ColumnarValue::Array(_) => None,
    }
}

fn text_of_expr(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// Returns the beginning of a text in quotation marks.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

type Texts<'a> = Box<dyn Iterator<Item = Option<&'a str>> + 'a>;

/// Returns the texts of all rows.
fn texts(value: &ColumnarValue, num_rows: usize) -> DfResult<Texts<'_>> {
    let texts: Texts<'_> = match value {
        ColumnarValue::Scalar(_) => Box::new(repeat_n(text_of_value(value), num_rows)),
        ColumnarValue::Array(texts) => match texts.data_type() {
            DataType::Utf8 => Box::new(texts.as_string::<i32>().iter()),
            DataType::LargeUtf8 => Box::new(texts.as_string::<i64>().iter()),
            DataType::Utf8View => Box::new(texts.as_string_view().iter()),
            other => return internal_err!("matches was called with {other}"),
        },
    };
    Ok(texts)
}

/// Tells for each row whether its text matches its query. Neighbouring rows with the same query share its parsed form.
fn matching<'a>(texts: Texts<'_>, queries: Texts<'a>, analysis: &Analysis) -> DfResult<Vec<Option<bool>>> {
    let mut last: Option<Search<'a>> = None;
    let mut found = Vec::with_capacity(queries.size_hint().0);
    for (text, query) in texts.zip(queries) {
        let (Some(text), Some(query)) = (text, query) else {
            found.push(None);
            continue;
        };
        let search = match last.take() {
            Some(search) if search.written == query => search,
            _ => Search::new(query, parsed(query, analysis).or_else(|reason| exec_err!("{reason}"))?, analysis),
        };
        found.push(Some(last.insert(search).finds(text)));
    }
    Ok(found)
}

impl ScalarUDFImpl for TextMatches {
    fn name(&self) -> &str {
        "matches"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> DfResult<Vec<DataType>> {
        if !matches!(arg_types.len(), 2 | 3) {
            return plan_err!("matches needs a text and a query, and takes a language");
        }
        let text_type = |data_type: &DataType| {
            let text = if let DataType::Dictionary(_, values) = data_type { values.as_ref() } else { data_type };
            match text {
                DataType::Null => Ok(DataType::Utf8),
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(text.clone()),
                _ => plan_err!("matches needs texts, not {data_type}"),
            }
        };
        arg_types.iter().map(text_type).collect()
    }

    fn return_type(&self, _arg_types: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn simplify(&self, args: Vec<Expr>, _info: &SimplifyContext) -> DfResult<ExprSimplifyResult> {
        let analysis = analysis(&args, text_of_expr).or_else(|reason| plan_err!("{reason}"))?;
        if let Some(query) = args.get(1).and_then(text_of_expr) {
            parsed(query, &analysis).or_else(|reason| plan_err!("{reason}"))?;
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [text, query, ..] = args.args.as_slice() else {
            return internal_err!("matches was called with {} arguments", args.args.len());
        };
        let analysis = analysis(&args.args, text_of_value).or_else(|reason| exec_err!("{reason}"))?;
        let both_scalar = matches!((text, query), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let num_rows = if both_scalar { 1 } else { args.number_rows };
        let found = matching(texts(text, num_rows)?, texts(query, num_rows)?, &analysis)?;
        if both_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::Boolean(found.first().copied().flatten())));
        }
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(found))))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&self.documentation)
    }
}
