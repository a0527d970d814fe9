//! Statements that change a lake, and whether a text is one.
//!
//! These statements are parsed here, because sqlparser lacks some of them and leaves the options of the others as
//! expressions. A statement of another family gets a variant of [`Change`], and a function that parses it.

use std::collections::BTreeSet;
use std::fmt;

use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::named_version::newest;
use crate::show::word;
use crate::{Error, LakeDialect, Result, SQL_BYTES_MAX, WriteStatement, parser};

/// The first words of statements that change something.
pub(crate) const VERBS: [&str; 11] =
    ["ALTER", "CREATE", "DELETE", "DROP", "INSERT", "MERGE", "OPTIMIZE", "RESTORE", "TRUNCATE", "UPDATE", "VACUUM"];

/// The first words of statements that may follow a `WITH` clause, and whether they change something.
const AFTER_WITH: [(&str, bool); 7] = [
    ("SELECT", false),
    ("VALUES", false),
    ("FROM", false),
    ("INSERT", true),
    ("UPDATE", true),
    ("DELETE", true),
    ("MERGE", true),
];

/// The longest of these words.
const VERB_BYTES_MAX: usize = 8;

/// The statements that can be executed, as they begin.
const STATEMENTS: [&str; 21] = [
    "INSERT INTO",
    "UPDATE",
    "DELETE FROM",
    "MERGE INTO",
    "TRUNCATE",
    "CREATE TABLE",
    "DROP TABLE",
    "ALTER TABLE",
    "CREATE VIEW",
    "DROP VIEW",
    "CREATE INDEX",
    "DROP INDEX",
    "OPTIMIZE INDEX",
    "OPTIMIZE",
    "CREATE BRANCH",
    "CREATE TAG",
    "DROP BRANCH",
    "DROP TAG",
    "RESTORE",
    "VACUUM",
    "WITH … INSERT | UPDATE | DELETE | MERGE",
];

/// A statement that changes a lake. Its `Display` is the statement as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `CREATE INDEX`.
    CreateIndex(CreateIndex),
    /// `DROP INDEX`.
    DropIndex(DropIndex),
    /// `OPTIMIZE INDEX`.
    OptimizeIndex(OptimizeIndex),
    /// `OPTIMIZE`.
    OptimizeTable(OptimizeTable),
    /// A statement that changes rows, columns, tables, views, tags, branches or old versions.
    Write(WriteStatement),
}

/// `CREATE [OR REPLACE] INDEX [IF NOT EXISTS] [name] ON table [USING method] (column) [WITH (option = value, …)]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateIndex {
    /// Whether an index of the same name is replaced.
    pub or_replace: bool,
    /// Whether an index of the same name stays, without an error.
    pub if_not_exists: bool,
    /// The name; chosen by the column if `None`.
    pub name: Option<String>,
    /// The table.
    pub table: QualifiedName,
    /// The kind of index, such as `ivf_pq`.
    pub method: Option<String>,
    /// The column.
    pub column: String,
    /// The options, in order; each name occurs once.
    pub options: Vec<(String, OptionValue)>,
}

/// `DROP INDEX [IF EXISTS] name ON table`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropIndex {
    /// Whether a name that no index has is no error.
    pub if_exists: bool,
    /// The name.
    pub name: String,
    /// The table.
    pub table: QualifiedName,
}

/// `OPTIMIZE INDEX [name] ON table`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptimizeIndex {
    /// The name; all indexes of the table if `None`.
    pub name: Option<String>,
    /// The table.
    pub table: QualifiedName,
}

/// `OPTIMIZE [TABLE] table [WITH (option = value, …)] [DRY RUN]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptimizeTable {
    /// The table.
    pub table: QualifiedName,
    /// The options, in order; each name occurs once.
    pub options: Vec<(String, OptionValue)>,
    /// Whether only what would be done is told.
    pub is_dry_run: bool,
}

/// A name that may have a catalog and a schema before it. Parts that were not quoted are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QualifiedName(pub Vec<String>);

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A number, as it was written.
    Number(String),
    /// A text, or a word that was not quoted, in lower case.
    Text(String),
    /// `TRUE` or `FALSE`.
    Bool(bool),
}

/// Tells whether a text is a statement that changes something, by its first words. A text that cannot be read is none.
///
/// ```
/// use stoker_dialect::is_change;
/// assert!(is_change("-- a comment\n create index on t (a)"));
/// assert!(is_change("WITH old AS (SELECT 1) DELETE FROM t"));
/// assert!(!is_change("WITH t AS (SELECT 1) SELECT * FROM t") && !is_change("EXPLAIN DELETE FROM t"));
/// ```
pub fn is_change(sql: &str) -> bool {
    match first_word(sql).as_deref() {
        Some("WITH") => changes_after_with(sql),
        Some(verb) => VERBS.contains(&verb),
        None => false,
    }
}

/// Returns the first word of a text in upper case, if it is no longer than the verbs.
fn first_word(sql: &str) -> Option<String> {
    let mut rest = sql.trim_start();
    loop {
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n')?.1.trim_start()
        } else if rest.starts_with("/*") {
            after_comment(rest)?.trim_start()
        } else if let Some(after) = rest.strip_prefix(';') {
            after.trim_start()
        } else {
            break;
        };
    }
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    let end = rest.find(|letter: char| !is_of_word(letter)).unwrap_or(rest.len());
    (1..=VERB_BYTES_MAX).contains(&end).then(|| rest[..end].to_ascii_uppercase())
}

/// Returns what follows a comment, which may hold others; `None` if it has no end.
fn after_comment(text: &str) -> Option<&str> {
    let (bytes, mut depth, mut at) = (text.as_bytes(), 0_usize, 0);
    while let Some(pair) = bytes.get(at..at + 2) {
        match pair {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return text.get(at..);
        }
    }
    None
}

/// Tells whether the statement after a `WITH` clause changes something.
fn changes_after_with(sql: &str) -> bool {
    let text = &sql[..sql.floor_char_boundary(SQL_BYTES_MAX)];
    let mut tokens: Vec<TokenWithSpan> = Vec::new();
    // The tokens before an error are enough.
    Tokenizer::new(&LakeDialect, text).tokenize_with_location_into_buf(&mut tokens).ok();
    let tokens: Vec<Token> =
        tokens.into_iter().map(|token| token.token).filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(word) if depth == 0 && word.quote_style.is_none() => {
                let verb = word.value.to_ascii_uppercase();
                let found = AFTER_WITH.iter().find(|(known, _)| *known == verb);
                if let (Some((_, changes)), false) = (found, is_name_of_query(&tokens[..index])) {
                    return *changes;
                }
            }
            _ => {}
        }
    }
    false
}

/// Tells by the tokens before a word whether the word is the name of a query in a `WITH` clause. The word must stand
/// outside of parentheses, and before the statement that follows the clause.
fn is_name_of_query(before: &[Token]) -> bool {
    let is = |token: &Token, expected: &str| match token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected),
        _ => false,
    };
    match before {
        [.., Token::Comma] => true,
        [.., with, recursive] if is(recursive, "RECURSIVE") => is(with, "WITH"),
        [.., with] => is(with, "WITH"),
        [] => false,
    }
}

impl Change {
    /// Parses one statement.
    ///
    /// # Errors
    /// [`Error::Refused`] for a query, for several statements, and for a statement that cannot be parsed or executed.
    pub fn parse(sql: &str) -> Result<Self> {
        if !is_change(sql) {
            return Err(Error::refused(
                "this statement changes nothing",
                "run queries with lake.sql(…) in Python, Connection::sql in Rust, or `stoker sql`",
            ));
        }
        if let Some(write) = WriteStatement::parse(sql)? {
            return Ok(Self::Write(write));
        }
        let mut parser = parser(sql)?;
        while parser.consume_token(&Token::SemiColon) {}
        let change = change(&mut parser)?.map_err(cannot_parse)?;
        let is_ended = parser.consume_token(&Token::SemiColon);
        while parser.consume_token(&Token::SemiColon) {}
        match &parser.peek_token_ref().token {
            Token::EOF => Ok(change),
            _ if is_ended => Err(Error::refused("several statements", "send one statement at a time")),
            found => {
                let reason = format!("{found} after the end of {}", change.kind());
                Err(Error::refused("cannot parse the statement", reason))
            }
        }
    }

    /// The kind of statement: its first words, such as `CREATE INDEX`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::CreateIndex(_) => "CREATE INDEX",
            Self::DropIndex(_) => "DROP INDEX",
            Self::OptimizeIndex(_) => "OPTIMIZE INDEX",
            Self::OptimizeTable(_) => "OPTIMIZE",
            Self::Write(write) => write.kind(),
        }
    }
}

/// Parses a statement by its first words.
fn change(parser: &mut Parser) -> Result<Result<Change, ParserError>> {
    let words = [0, 1, 2, 3].map(|at| word(parser, at).unwrap_or_default());
    let words = words.each_ref().map(String::as_str);
    Ok(match words {
        ["CREATE", "INDEX", ..] | ["CREATE", "OR", "REPLACE", "INDEX"] => create_index(parser).map(Change::CreateIndex),
        ["CREATE", "UNIQUE", "INDEX", _] => {
            return Err(Error::refused("CREATE UNIQUE INDEX", "indexes here do not check values; leave out UNIQUE"));
        }
        ["DROP", "INDEX", ..] => drop_index(parser).map(Change::DropIndex),
        ["OPTIMIZE", "INDEX", ..] => optimize_index(parser).map(Change::OptimizeIndex),
        ["OPTIMIZE", ..] => optimize_table(parser).map(Change::OptimizeTable),
        [verb, object, ..] => {
            let statement = format!("{verb} {object}");
            return Err(Error::refused(
                format!("statement {:?} cannot be executed", statement.trim_end()),
                format!("the statements that change a lake are: {}", STATEMENTS.join(", ")),
            ));
        }
    })
}

/// Returns the error of sqlparser as an error of this crate.
pub(crate) fn cannot_parse(error: ParserError) -> Error {
    let reason = match error {
        ParserError::ParserError(text) | ParserError::TokenizerError(text) => text,
        ParserError::RecursionLimitExceeded => "it is nested too deeply".to_string(),
    };
    Error::refused("cannot parse the statement", reason)
}

fn create_index(parser: &mut Parser) -> Result<CreateIndex, ParserError> {
    expect_word(parser, "CREATE")?;
    let mut index = CreateIndex::default();
    if take_word(parser, "OR") {
        expect_word(parser, "REPLACE")?;
        index.or_replace = true;
    }
    expect_word(parser, "INDEX")?;
    if take_word(parser, "IF") {
        expect_word(parser, "NOT")?;
        expect_word(parser, "EXISTS")?;
        index.if_not_exists = true;
    }
    if index.or_replace && index.if_not_exists {
        return Err(ParserError::ParserError("write OR REPLACE or IF NOT EXISTS, not both".into()));
    }
    if word(parser, 0).as_deref() != Some("ON") {
        index.name = Some(identifier(parser, "the name of the index")?);
    }
    index.table = on_table(parser)?;
    if take_word(parser, "USING") {
        index.method = Some(identifier(parser, "the kind of index")?);
    }
    parser.expect_token(&Token::LParen)?;
    index.column = identifier(parser, "the column")?;
    if parser.peek_token_ref().token == Token::Comma {
        return Err(ParserError::ParserError("an index has one column: create an index for each column".into()));
    }
    parser.expect_token(&Token::RParen)?;
    if take_word(parser, "WITH") {
        index.options = options(parser)?;
    }
    Ok(index)
}

fn drop_index(parser: &mut Parser) -> Result<DropIndex, ParserError> {
    expect_word(parser, "DROP")?;
    expect_word(parser, "INDEX")?;
    let mut index = DropIndex::default();
    if take_word(parser, "IF") {
        expect_word(parser, "EXISTS")?;
        index.if_exists = true;
    }
    index.name = identifier(parser, "the name of the index")?;
    index.table = on_table(parser)?;
    Ok(index)
}

fn optimize_index(parser: &mut Parser) -> Result<OptimizeIndex, ParserError> {
    expect_word(parser, "OPTIMIZE")?;
    expect_word(parser, "INDEX")?;
    let name = match word(parser, 0).as_deref() {
        Some("ON") => None,
        _ => Some(identifier(parser, "the name of the index, or ON")?),
    };
    Ok(OptimizeIndex { name, table: on_table(parser)? })
}

fn optimize_table(parser: &mut Parser) -> Result<OptimizeTable, ParserError> {
    expect_word(parser, "OPTIMIZE")?;
    take_word(parser, "TABLE");
    let mut optimize = OptimizeTable { table: newest(parser, "the table")?.0, ..OptimizeTable::default() };
    if take_word(parser, "WITH") {
        optimize.options = options(parser)?;
    }
    if take_word(parser, "DRY") {
        expect_word(parser, "RUN")?;
        optimize.is_dry_run = true;
    }
    Ok(optimize)
}

/// Parses `ON table`.
fn on_table(parser: &mut Parser) -> Result<QualifiedName, ParserError> {
    if !take_word(parser, "ON") {
        return parser.expected_ref("ON and the table of the index", parser.peek_token_ref());
    }
    Ok(newest(parser, "the table")?.0)
}

/// Parses `(name = value, …)`.
fn options(parser: &mut Parser) -> Result<Vec<(String, OptionValue)>, ParserError> {
    parser.expect_token(&Token::LParen)?;
    let (mut options, mut names) = (Vec::new(), BTreeSet::new());
    if parser.consume_token(&Token::RParen) {
        return Ok(options);
    }
    loop {
        let name = identifier(parser, "the name of an option")?;
        parser.expect_token(&Token::Eq)?;
        if !names.insert(name.clone()) {
            return Err(ParserError::ParserError(format!("option {name} is given twice")));
        }
        options.push((name, option_value(parser)?));
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    parser.expect_token(&Token::RParen)?;
    Ok(options)
}

fn option_value(parser: &mut Parser) -> Result<OptionValue, ParserError> {
    let is_negative = parser.consume_token(&Token::Minus);
    let value = match &parser.peek_token_ref().token {
        Token::Number(digits, _) if is_negative => OptionValue::Number(format!("-{digits}")),
        Token::Number(digits, _) => OptionValue::Number(digits.clone()),
        Token::SingleQuotedString(text) if !is_negative => OptionValue::Text(text.clone()),
        Token::Word(word) if !is_negative && word.quote_style.is_none() => match word.value.to_lowercase().as_str() {
            "true" => OptionValue::Bool(true),
            "false" => OptionValue::Bool(false),
            word => OptionValue::Text(word.to_string()),
        },
        _ => return parser.expected_ref("a number, a text, TRUE or FALSE", parser.peek_token_ref()),
    };
    parser.advance_token();
    Ok(value)
}

/// Parses a name.
pub(crate) fn identifier(parser: &mut Parser, what: &str) -> Result<String, ParserError> {
    let name = match &parser.peek_token_ref().token {
        Token::Word(word) if word.quote_style.is_some() => word.value.clone(),
        Token::Word(word) => word.value.to_lowercase(),
        _ => return parser.expected_ref(what, parser.peek_token_ref()),
    };
    parser.advance_token();
    Ok(name)
}

/// Takes a word, if it is the next one.
pub(crate) fn take_word(parser: &mut Parser, expected: &str) -> bool {
    let is_next = word(parser, 0).as_deref() == Some(expected);
    if is_next {
        parser.advance_token();
    }
    is_next
}

pub(crate) fn expect_word(parser: &mut Parser, expected: &str) -> Result<(), ParserError> {
    match take_word(parser, expected) {
        true => Ok(()),
        false => parser.expected_ref(expected, parser.peek_token_ref()),
    }
}

/// Writes a name in quotes, so that it is read again as it is.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.replace('"', "\"\""))
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            let point = if index == 0 { "" } else { "." };
            write!(f, "{point}{}", Quoted(part))?;
        }
        Ok(())
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(digits) => f.write_str(digits),
            Self::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateIndex(index) => index.fmt(f),
            Self::DropIndex(index) => index.fmt(f),
            Self::OptimizeIndex(index) => index.fmt(f),
            Self::OptimizeTable(table) => table.fmt(f),
            Self::Write(write) => write.fmt(f),
        }
    }
}

impl fmt::Display for CreateIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.or_replace { "CREATE OR REPLACE INDEX" } else { "CREATE INDEX" })?;
        if self.if_not_exists {
            f.write_str(" IF NOT EXISTS")?;
        }
        if let Some(name) = &self.name {
            write!(f, " {}", Quoted(name))?;
        }
        write!(f, " ON {}", self.table)?;
        if let Some(method) = &self.method {
            write!(f, " USING {}", Quoted(method))?;
        }
        write!(f, " ({})", Quoted(&self.column))?;
        write_options(f, &self.options)
    }
}

/// Writes ` WITH (name = value, …)`, or nothing without options.
fn write_options(f: &mut fmt::Formatter<'_>, options: &[(String, OptionValue)]) -> fmt::Result {
    for (index, (name, value)) in options.iter().enumerate() {
        let before = if index == 0 { " WITH (" } else { ", " };
        write!(f, "{before}{} = {value}", Quoted(name))?;
    }
    f.write_str(if options.is_empty() { "" } else { ")" })
}

impl fmt::Display for DropIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let if_exists = if self.if_exists { "IF EXISTS " } else { "" };
        write!(f, "DROP INDEX {if_exists}{} ON {}", Quoted(&self.name), self.table)
    }
}

impl fmt::Display for OptimizeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "OPTIMIZE INDEX {} ON {}", Quoted(name), self.table),
            None => write!(f, "OPTIMIZE INDEX ON {}", self.table),
        }
    }
}

impl fmt::Display for OptimizeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OPTIMIZE TABLE {}", self.table)?;
        write_options(f, &self.options)?;
        f.write_str(if self.is_dry_run { " DRY RUN" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(digits: &str) -> OptionValue {
        OptionValue::Number(digits.into())
    }

    fn parse(sql: &str) -> Change {
        Change::parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    #[test]
    fn statements_that_change_something_are_known_by_their_first_words() {
        for sql in [
            "CREATE INDEX ON t (a)",
            "  ;; drop index a on t",
            "/* a /* nested */ */ -- and this\n optimize index on t",
            "insert into t values (1)",
            "WITH a AS (SELECT 1), b (c) AS (SELECT 'delete') UPDATE t SET x = 1",
            "with delete as (select 1) merge into t using delete on true when matched then delete",
            "WITH select (x) AS (SELECT 1), values AS (SELECT 2) DELETE FROM t",
            "WITH RECURSIVE select AS (SELECT 1), recursive AS (SELECT 2) INSERT INTO t SELECT * FROM select",
            "VACUUM",
            "restore table t at (version => 3)",
        ] {
            assert!(is_change(sql), "{sql}");
        }
        for sql in [
            "SELECT 1",
            "(SELECT 1)",
            "EXPLAIN CREATE INDEX ON t (a)",
            "SHOW INDEXES FROM t",
            "created",
            "create_index",
            "WITH update AS (SELECT 1) SELECT * FROM update",
            "WITH a AS (DELETE FROM t RETURNING 1) SELECT 1",
            "WITH a AS (SELECT 1 AS x) SELECT (1) AS one, x AS y, update FROM a",
            "WITH a AS (SELECT 1 AS x) SELECT (1), delete FROM a",
            "WITH a AS (SELECT 1 AS x) VALUES (1), (2)",
            "WITH update (x) AS (SELECT 1), delete AS (SELECT 2) SELECT (x), merge FROM update",
            "WITH a AS (SELECT 'never ends",
            "/* never ends",
            "-- only a comment",
            "",
            "VALUES (1)",
            "\u{e4}\u{e4}",
        ] {
            assert!(!is_change(sql), "{sql}");
        }
        let long = format!("WITH a AS (SELECT '{}') SELECT 1", "\u{e4}".repeat(SQL_BYTES_MAX));
        assert!(!is_change(&long));
    }

    #[test]
    fn statements_about_indexes_are_parsed() {
        let expected = CreateIndex {
            name: Some("by_emb".into()),
            table: QualifiedName(vec!["public".into(), "My Photos".into()]),
            method: Some("ivf_pq".into()),
            column: "emb".into(),
            options: vec![
                ("num_partitions".into(), number("16")),
                ("metric".into(), OptionValue::Text("cosine".into())),
                ("scale".into(), number("-0.5")),
                ("fast".into(), OptionValue::Bool(true)),
            ],
            ..CreateIndex::default()
        };
        let sql = "create index By_Emb on public.\"My Photos\" using IVF_PQ (Emb) with (num_partitions = 16, \
                   metric='cosine', scale = -0.5, fast = TRUE);";
        assert_eq!(parse(sql), Change::CreateIndex(expected.clone()));
        let sql = "CREATE INDEX IF NOT EXISTS ON t (\"a\"\"b\") WITH (metric = Dot)";
        let parsed = CreateIndex {
            if_not_exists: true,
            table: QualifiedName(vec!["t".into()]),
            column: "a\"b".into(),
            options: vec![("metric".into(), OptionValue::Text("dot".into()))],
            ..CreateIndex::default()
        };
        assert_eq!(parse(sql), Change::CreateIndex(parsed));
        let replaced = Change::CreateIndex(CreateIndex { or_replace: true, ..expected });
        assert_eq!(parse(&replaced.to_string()), replaced, "{replaced}");
        for sql in [
            "CREATE INDEX ON \"t\" (\"a\")",
            "DROP INDEX IF EXISTS \"a \"\"b\" ON \"t\"",
            "DROP INDEX \"a\" ON \"lake\".\"public\".\"t\"",
            "OPTIMIZE INDEX \"a\" ON \"t\"",
            "OPTIMIZE INDEX ON \"t\"",
            "OPTIMIZE TABLE \"t\"",
            "OPTIMIZE TABLE \"public\".\"a t@dev\" WITH (\"rows_per_fragment\" = 100, \"all\" = true) DRY RUN",
        ] {
            let change = parse(sql);
            assert_eq!(change.to_string(), sql);
            assert!(sql.starts_with(change.kind()));
        }
    }

    #[test]
    fn tables_are_optimised_with_options_or_without() {
        let of = |table: &str| OptimizeTable { table: QualifiedName(vec![table.into()]), ..OptimizeTable::default() };
        assert_eq!(parse("optimize T"), Change::OptimizeTable(of("t")));
        assert_eq!(parse("OPTIMIZE TABLE \"index\";"), Change::OptimizeTable(of("index")));
        let options = vec![("rate_mb_per_sec".into(), number("50"))];
        let expected = OptimizeTable { options, is_dry_run: true, ..of("t") };
        assert_eq!(parse("OPTIMIZE t WITH (rate_mb_per_sec = 50) dry run"), Change::OptimizeTable(expected));
    }

    #[test]
    fn other_statements_say_what_is_wrong() {
        for (sql, part) in [
            ("SELECT 1", "lake.sql"),
            ("CREATE INDEX a ON t (b); DROP INDEX a ON t", "one statement at a time"),
            ("CREATE INDEX a ON t (b) WHERE c > 1", "WHERE after the end of CREATE INDEX"),
            ("CREATE INDEX a ON t (b, c)", "one column"),
            ("CREATE INDEX a ON t (b) WITH (x = 1, X = 2)", "option x is given twice"),
            ("CREATE INDEX a ON t (b) WITH (x = $1)", "a number, a text, TRUE or FALSE"),
            ("CREATE INDEX a ON t (b) WITH (x = -true)", "a number, a text, TRUE or FALSE"),
            ("CREATE INDEX a ON t AT (VERSION => 3) (b)", "leave it out"),
            ("CREATE INDEX a (b)", "ON and the table"),
            ("CREATE INDEX 'a' ON t (b)", "the name of the index"),
            ("CREATE OR REPLACE INDEX IF NOT EXISTS a ON t (b)", "not both"),
            ("CREATE UNIQUE INDEX a ON t (b)", "leave out UNIQUE"),
            ("DROP INDEX a", "ON and the table"),
            ("OPTIMIZE INDEX a", "ON and the table"),
            ("OPTIMIZE", "the table"),
            ("OPTIMIZE TABLE t WITH", "("),
            ("OPTIMIZE t DRY", "RUN"),
            ("OPTIMIZE t AT (VERSION => 3)", "leave it out"),
            ("OPTIMIZE t ZORDER BY (a)", "ZORDER after the end of OPTIMIZE"),
            ("CREATE THING t", "the statements that change a lake are: INSERT INTO"),
            ("CREATE FUNCTION f", "statement \"CREATE FUNCTION\" cannot be executed"),
            ("CREATE INDEX a ON t ('never ends", "cannot parse"),
        ] {
            let error = Change::parse(sql).expect_err(sql).to_string();
            assert!(error.contains(part), "{sql}: {error}");
        }
    }
}
