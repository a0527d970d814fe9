//! `SHOW` and `DESCRIBE`, questions about the catalog, which are parsed as the queries that answer them; and `EXPLAIN`.
//!
//! sqlparser's own parser of `EXPLAIN` forgets what is wrong with the statement in it.

use sqlparser::ast::{
    BinaryOperator, DescribeAlias, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, SetExpr, Statement,
    TableFactor, UtilityOption, Value,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::LakeDialect;
use crate::dialect::{AT_PRECEDENCE, at_clause_follows};

/// What follows `FROM` in a question.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Nothing,
    /// A schema, which may be left out.
    Schema,
    /// A table, which must be named.
    Table,
}

/// A question about the catalog.
struct Question {
    /// The words after `SHOW` that ask it.
    words: &'static [&'static str],
    source: Source,
    /// The query that answers it. The function in its `FROM` gets the table as its argument.
    query: &'static str,
    /// The column that `LIKE` compares.
    name: &'static str,
}

const COLUMNS: Question = Question {
    words: &["COLUMNS", "FIELDS"],
    source: Source::Table,
    query: "SELECT column_name, data_type, is_nullable, kind FROM columns() ORDER BY ordinal_position",
    name: "column_name",
};

const QUESTIONS: [Question; 8] = [
    Question {
        words: &["TABLES"],
        source: Source::Schema,
        query: "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables \
                ORDER BY table_name",
        name: "table_name",
    },
    COLUMNS,
    Question {
        words: &["FUNCTIONS"],
        source: Source::Nothing,
        query: "SELECT function_name, function_type, syntax, description FROM functions() \
                ORDER BY function_name, function_type",
        name: "function_name",
    },
    Question {
        words: &["INDEXES", "INDEX", "INDICES"],
        source: Source::Table,
        query: "SELECT index_name, column_names, index_type, num_rows_covered, num_rows_not_covered, size_bytes, \
                parameters, recall FROM indexes() ORDER BY index_name",
        name: "index_name",
    },
    Question {
        words: &["VERSIONS"],
        source: Source::Table,
        query: "SELECT version, committed_at, tags FROM versions() ORDER BY version",
        name: "array_to_string(tags, ' ')",
    },
    Question {
        words: &["TAGS"],
        source: Source::Table,
        query: "SELECT tag_name, version FROM tags() ORDER BY tag_name",
        name: "tag_name",
    },
    Question {
        words: &["BRANCHES"],
        source: Source::Table,
        query: "SELECT branch_name, parent_branch, parent_version, created_at FROM branches() ORDER BY branch_name",
        name: "branch_name",
    },
    Question {
        words: &["SCHEMAS"],
        source: Source::Nothing,
        query: "SELECT catalog_name, schema_name FROM information_schema.schemata ORDER BY schema_name",
        name: "schema_name",
    },
];

/// Parses `SHOW …`, `DESCRIBE table` and `EXPLAIN …`; returns `None` for other statements.
pub(crate) fn parse(parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
    match word(parser, 0)?.as_str() {
        "SHOW" => {
            parser.advance_token();
            Some(show(parser))
        }
        "EXPLAIN" => {
            parser.advance_token();
            Some(explain(parser))
        }
        "DESCRIBE" | "DESC" if is_name(parser, 1) && !begins_statement(parser, 1) => {
            parser.advance_token();
            if word(parser, 0).as_deref() == Some("TABLE") && is_name(parser, 1) {
                parser.advance_token();
            }
            Some(table(parser).and_then(|table| answer(parser, &COLUMNS, Some(table), None)))
        }
        _ => None,
    }
}

/// Parses `EXPLAIN [ANALYZE] [VERBOSE] [FORMAT name] statement` and PostgreSQL's `EXPLAIN (option, …) statement`, after
/// its first word. The format is one of the options, in both.
fn explain(parser: &mut Parser) -> Result<Statement, ParserError> {
    let has_options = parser.peek_token_ref().token == Token::LParen
        && parser.peek_nth_token_ref(1).token != Token::LParen
        && !begins_statement(parser, 1);
    let mut options = if has_options { parser.parse_utility_options()? } else { Vec::new() };
    let analyze = parser.parse_keyword(Keyword::ANALYZE);
    let verbose = parser.parse_keyword(Keyword::VERBOSE);
    if parser.parse_keyword(Keyword::FORMAT) {
        let _ = parser.consume_token(&Token::Eq);
        let format = Expr::Identifier(parser.parse_identifier()?);
        options.push(UtilityOption { name: Ident::new("FORMAT"), arg: Some(format) });
    }
    Ok(Statement::Explain {
        describe_alias: DescribeAlias::Explain,
        analyze,
        verbose,
        query_plan: false,
        estimate: false,
        statement: Box::new(parser.parse_statement()?),
        format: None,
        options: Some(options).filter(|options| !options.is_empty()),
    })
}

fn is_name(parser: &Parser, position: usize) -> bool {
    matches!(parser.peek_nth_token_ref(position).token, Token::Word(_))
}

fn begins_statement(parser: &Parser, position: usize) -> bool {
    let words = ["SELECT", "WITH", "VALUES", "SHOW", "EXPLAIN", "DESCRIBE", "DESC"];
    word(parser, position).is_some_and(|word| words.contains(&word.as_str()))
}

fn show(parser: &mut Parser) -> Result<Statement, ParserError> {
    let asked = word(parser, 0).unwrap_or_default();
    let Some(question) = QUESTIONS.iter().find(|question| question.words.contains(&asked.as_str())) else {
        let known: Vec<_> = QUESTIONS.iter().map(|question| question.words[0]).collect();
        let found = &parser.peek_token_ref().token;
        return Err(ParserError::ParserError(format!("SHOW {found}: write SHOW and one of {}", known.join(", "))));
    };
    parser.advance_token();
    let is_from =
        question.source != Source::Nothing && parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::IN]).is_some();
    match question.source {
        Source::Table if !is_from => {
            Err(ParserError::ParserError(format!("SHOW {asked} needs a table: write SHOW {asked} FROM table")))
        }
        Source::Table => table(parser).and_then(|table| answer(parser, question, Some(table), None)),
        Source::Schema => {
            let schema = if is_from { parser.parse_object_name(false)? } else { ident("public").into() };
            answer(parser, question, None, Some(&schema))
        }
        Source::Nothing => answer(parser, question, None, None),
    }
}

/// Returns the word at a position, in upper case; `None` for another token and for a quoted name.
pub(crate) fn word(parser: &Parser, position: usize) -> Option<String> {
    match &parser.peek_nth_token_ref(position).token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    }
}

/// Parses a table, with its `AT` clause.
fn table(parser: &mut Parser) -> Result<Expr, ParserError> {
    let name = parser.parse_object_name(false)?;
    let names: Option<Vec<Ident>> = name.0.iter().map(|part| part.as_ident().cloned()).collect();
    let mut names = names.ok_or_else(|| ParserError::ParserError(format!("{name} is not the name of a table")))?;
    let table = match names.len() {
        1 => Expr::Identifier(names.swap_remove(0)),
        _ => Expr::CompoundIdentifier(names),
    };
    if at_clause_follows(parser) { parser.parse_infix(table, AT_PRECEDENCE) } else { Ok(table) }
}

/// Parses what follows, `LIKE …` or `WHERE …`, and returns the query that answers a question.
fn answer(
    parser: &mut Parser,
    question: &Question,
    table: Option<Expr>,
    schema: Option<&ObjectName>,
) -> Result<Statement, ParserError> {
    let mut filters = Vec::new();
    if let Some(schema) = schema {
        filters.extend(is_in_schema(schema)?);
    }
    let like = parser.parse_one_of_keywords(&[Keyword::LIKE, Keyword::ILIKE]);
    if let Some(keyword) = like {
        let pattern = Box::new(parser.parse_subexpr(AT_PRECEDENCE - 1)?);
        let (negated, any, escape_char) = (false, false, None);
        let expr = Box::new(sub_parser(question.name)?.parse_expr()?);
        filters.push(match keyword {
            Keyword::ILIKE => Expr::ILike { negated, any, expr, pattern, escape_char },
            _ => Expr::Like { negated, any, expr, pattern, escape_char },
        });
    } else if parser.parse_keyword(Keyword::WHERE) {
        filters.push(Expr::Nested(Box::new(parser.parse_expr()?)));
    }
    let mut query = sub_parser(question.query)?.parse_query()?;
    let SetExpr::Select(select) = query.body.as_mut() else { return Err(no_select()) };
    if let Some(table) = table {
        match select.from.first_mut().map(|from| &mut from.relation) {
            Some(TableFactor::Table { args: Some(function), .. }) => {
                function.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(table)));
            }
            _ => return Err(no_select()),
        }
    }
    let both = |left, right| Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) };
    select.selection = filters.into_iter().reduce(both);
    Ok(Statement::Query(query))
}

/// Returns the predicates for the tables of a schema.
fn is_in_schema(schema: &ObjectName) -> Result<Vec<Expr>, ParserError> {
    let names: Option<Vec<&Ident>> = schema.0.iter().map(|part| part.as_ident()).collect();
    let columns: &[&str] = match schema.0.len() {
        1 => &["table_schema"],
        2 => &["table_catalog", "table_schema"],
        _ => return Err(ParserError::ParserError(format!("{schema} is not the name of a schema"))),
    };
    let equal = |(name, column): (&Ident, &&str)| {
        let name = if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() };
        Expr::BinaryOp {
            left: Box::new(Expr::Identifier(ident(column))),
            op: BinaryOperator::Eq,
            right: Box::new(Expr::Value(Value::SingleQuotedString(name).into())),
        }
    };
    let names = names.ok_or_else(|| ParserError::ParserError(format!("{schema} is not the name of a schema")))?;
    Ok(names.into_iter().zip(columns).map(equal).collect())
}

fn ident(name: &str) -> Ident {
    Ident::new(name)
}

fn sub_parser(text: &str) -> Result<Parser<'static>, ParserError> {
    Parser::new(&LakeDialect).try_with_sql(text)
}

fn no_select() -> ParserError {
    ParserError::ParserError("a question about the catalog has no answer".into())
}

#[cfg(test)]
mod tests {
    use crate::{is_same_query, parser};

    #[test]
    fn questions_are_the_queries_that_answer_them() {
        let columns = "SELECT column_name, data_type, is_nullable, kind FROM columns(t) ORDER BY ordinal_position";
        let with = |filter: &str| columns.replace(" ORDER", &format!(" WHERE {filter} ORDER"));
        let tables = |filter: &str| {
            format!(
                "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables \
                 WHERE {filter} ORDER BY table_name"
            )
        };
        let same = [
            ("DESCRIBE t", columns.into()),
            ("desc t;", columns.into()),
            ("DESCRIBE TABLE t", columns.into()),
            ("DESCRIBE \"select\"", columns.replace("(t)", "(\"select\")")),
            ("DESCRIBE TABLE \"t\"", columns.replace("(t)", "(\"t\")")),
            ("SHOW COLUMNS FROM t", columns.into()),
            ("show fields in public.t", columns.replace("(t)", "(public.t)")),
            ("SHOW COLUMNS FROM t AT (TAG => 'v1')", columns.replace("(t)", "(t AT (TAG => 'v1'))")),
            ("SHOW COLUMNS FROM t LIKE 'a%'", with("column_name LIKE 'a%'")),
            ("SHOW COLUMNS FROM t ILIKE $1", with("column_name ILIKE $1")),
            ("SHOW COLUMNS FROM t WHERE kind = 'text' OR true", with("(kind = 'text' OR true)")),
            ("SHOW TABLES", tables("table_schema = 'public'")),
            ("SHOW TABLES FROM \"A'b\"", tables("table_schema = 'A''b'")),
            ("SHOW TABLES FROM Lake.Public", tables("table_catalog = 'lake' AND table_schema = 'public'")),
            ("SHOW TABLES LIKE 'x'", tables("table_schema = 'public' AND table_name LIKE 'x'")),
        ];
        for (asked, query) in same {
            assert!(is_same_query(asked, &query), "{asked} is not {query}");
        }
    }

    #[test]
    fn explain_has_options_in_two_forms() {
        for sql in [
            "EXPLAIN SELECT 1",
            "EXPLAIN (SELECT 1) UNION SELECT 2",
            "EXPLAIN ((SELECT 1))",
            "EXPLAIN ANALYZE VERBOSE SELECT 1",
            "EXPLAIN ANALYZE FORMAT = JSON SELECT 1",
            "explain (analyze, format json) show tables",
            "EXPLAIN (FORMAT TREE) (SELECT 1)",
        ] {
            let statements =
                parser(sql).expect("tokens").parse_statements().unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert!(matches!(statements.as_slice(), [sqlparser::ast::Statement::Explain { .. }]), "{sql}");
        }
    }

    #[test]
    fn other_questions_say_what_to_write() {
        let error = |sql: &str| parser(sql).expect("tokens").parse_statements().expect_err("no statement").to_string();
        let unknown = error("SHOW search_path");
        assert!(unknown.contains("search_path") && unknown.contains("TABLES, COLUMNS"), "{unknown}");
        let incomplete = error("SHOW VERSIONS LIKE 'x'");
        assert!(incomplete.contains("SHOW VERSIONS FROM table"), "{incomplete}");
        let explained = error("EXPLAIN ANALYZE SHOW VERSIONS");
        assert!(explained.contains("SHOW VERSIONS FROM table"), "{explained}");
        for wrong in ["SHOW", "SHOW TABLES FROM a.b.c", "SHOW COLUMNS FROM", "SHOW COLUMNS FROM t t", "DESCRIBE"] {
            error(wrong);
        }
    }
}
