//! The function that searches texts.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeStringArray, StringArray, StringViewArray};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl as _};
use datafusion::prelude::{Expr, col, lit};

use crate::text_matches::TextMatches;

const TEXTS: [Option<&str>; 4] = [Some("The quick brown fox"), None, Some("two dogs"), Some("")];

fn literal(text: Option<&str>) -> ColumnarValue {
    ColumnarValue::Scalar(ScalarValue::Utf8(text.map(str::to_string)))
}

fn column(texts: &[Option<&str>]) -> ColumnarValue {
    ColumnarValue::Array(Arc::new(StringArray::from(texts.to_vec())))
}

/// Calls the function. Calls with literals only have one row.
fn found(args: &[ColumnarValue]) -> DfResult<Vec<Option<bool>>> {
    let length = args.iter().find_map(|arg| match arg {
        ColumnarValue::Array(array) => Some(array.len()),
        ColumnarValue::Scalar(_) => None,
    });
    let number_rows = length.unwrap_or(1);
    let arg_fields: Vec<FieldRef> =
        args.iter().map(|arg| Arc::new(Field::new("text", arg.data_type(), true))).collect();
    let result = TextMatches::new().invoke_with_args(ScalarFunctionArgs {
        args: args.to_vec(),
        arg_fields,
        number_rows,
        return_field: Arc::new(Field::new("matches", DataType::Boolean, true)),
        config_options: Arc::new(ConfigOptions::default()),
    })?;
    let result = result.into_array(number_rows)?;
    assert_eq!(result.len(), number_rows);
    Ok(result.as_boolean().iter().collect())
}

/// Simplifies a call, which is when its literals are checked. The first argument is a column.
fn simplified(others: &[Expr]) -> DfResult<()> {
    let args: Vec<Expr> = [col("text")].iter().chain(others).cloned().collect();
    match TextMatches::new().simplify(args.clone(), &SimplifyContext::default())? {
        ExprSimplifyResult::Original(same) => assert_eq!(same, args),
        ExprSimplifyResult::Simplified(other) => panic!("{other}"),
    }
    Ok(())
}

#[test]
fn columns_of_all_texts_are_searched() {
    let columns: [ArrayRef; 3] = [
        Arc::new(StringArray::from(TEXTS.to_vec())),
        Arc::new(LargeStringArray::from(TEXTS.to_vec())),
        Arc::new(StringViewArray::from(TEXTS.to_vec())),
    ];
    for array in columns {
        for (query, expected) in [
            ("fox dogs", [Some(true), None, Some(true), Some(false)]),
            ("+fox -brown", [Some(false), None, Some(false), Some(false)]),
            ("\"quick brown\" dog~1", [Some(true), None, Some(true), Some(false)]),
        ] {
            let args = [ColumnarValue::Array(array.clone()), literal(Some(query))];
            assert_eq!(found(&args).expect("results"), expected, "{query} in {}", array.data_type());
        }
        // The slice leaves out the first row.
        let slice = ColumnarValue::Array(array.slice(1, 2));
        assert_eq!(found(&[slice, literal(Some("dogs"))]).expect("results"), [None, Some(true)]);
    }
}

#[test]
fn each_row_may_have_its_own_query() {
    let texts = ["fox", "fox", "dog", "dog", "dog"].map(Some);
    let queries = [Some("fox"), Some("fox"), Some("fox"), None, Some("d0g~1")];
    let expected = [Some(true), Some(true), Some(false), None, Some(true)];
    assert_eq!(found(&[column(&texts), column(&queries)]).expect("results"), expected);
    let expected = [Some(true), Some(true), Some(true), None, Some(false)];
    assert_eq!(found(&[literal(Some("a fox")), column(&queries)]).expect("results"), expected);
    let error = found(&[column(&[None, Some("fox")]), column(&[Some("-a"), Some("-b")])]).expect_err("only excluded");
    assert!(error.to_string().contains("matches: query \"-b\": the text only excludes words"), "{error}");
}

#[test]
fn literals_give_a_literal() {
    for (text, query, expected) in [
        (Some("a fox"), Some("fox"), Some(true)),
        (Some("a fox"), Some("dog"), Some(false)),
        (None, Some("fox"), None),
        (Some("a fox"), None, None),
    ] {
        assert_eq!(found(&[literal(text), literal(query)]).expect("a result"), [expected]);
    }
}

#[test]
fn languages_have_stems() {
    let texts = column(&[Some("the foxes were running")]);
    let with = |language| found(&[texts.clone(), literal(Some("+fox +run")), literal(language)]);
    assert_eq!(found(&[texts.clone(), literal(Some("+fox +run"))]).expect("a result"), [Some(false)]);
    assert_eq!(with(Some("english")).expect("a result"), [Some(true)]);
    let error = with(Some("klingon")).expect_err("a language").to_string();
    assert!(error.contains("\"klingon\" is not a language; the languages are: arabic, danish"), "{error}");
    let error = with(None).expect_err("no language").to_string();
    assert!(error.contains("the language must be a literal text"), "{error}");
    let error = found(&[texts.clone(), literal(Some("fox")), column(&[Some("english")])]).expect_err("a column");
    assert!(error.to_string().contains("the language must be a literal text"), "{error}");
}

#[test]
fn literals_are_checked_before_rows_are_read() {
    simplified(&[lit("fox"), lit("English")]).expect("a call");
    simplified(&[col("query")]).expect("a call");
    simplified(&[lit(ScalarValue::Utf8(None))]).expect("a call");
    let long = "-word ".repeat(1_000);
    for (others, part) in [
        (vec![lit("fox~3")], "matches: query \"fox~3\": fox~3: a word may differ by 1 or 2 edits"),
        (vec![lit("-fox"), lit("english")], "only excludes words"),
        (vec![col("query"), lit("klingon")], "\"klingon\" is not a language; the languages are: arabic, danish"),
        (vec![lit("fox"), col("language")], "the language must be a literal text, one of: arabic, danish"),
        (vec![lit(long.as_str())], "-word -wo"),
    ] {
        let error = simplified(&others).expect_err(part).to_string();
        assert!(error.contains(part) && error.len() < 400, "{error}");
    }
}

#[test]
fn texts_are_taken_as_they_are() {
    let function = TextMatches::new();
    let types =
        [DataType::LargeUtf8, DataType::Null, DataType::Dictionary(DataType::Int32.into(), DataType::Utf8View.into())];
    let coerced = function.coerce_types(&types).expect("types");
    assert_eq!(coerced, [DataType::LargeUtf8, DataType::Utf8, DataType::Utf8View]);
    let error = function.coerce_types(&[DataType::Utf8, DataType::Int64]).expect_err("a number").to_string();
    assert!(error.contains("matches needs texts, not Int64"), "{error}");
    assert!(function.coerce_types(&[DataType::Utf8]).is_err());
}
