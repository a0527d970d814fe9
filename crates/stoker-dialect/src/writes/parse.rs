//! Parses statements that change rows, columns, tables, views, tags, branches and old versions. Those that change rows are here.

mod objects;
mod tables;

use std::collections::BTreeSet;

use sqlparser::ast::{Expr, Query, SetExpr, Value};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::{Assignment, InsertRows, MergeAction, MergeClause, Target, WriteAction, WriteStatement};
use crate::change::{cannot_parse, expect_word, identifier, take_word};
use crate::named_version::newest;
use crate::same_query::on_large_stack;
use crate::show::word;
use crate::source_text::SourceText;
use crate::{Error, QualifiedName, Result, SQL_BYTES_MAX};

/// Words with which a statement goes on that other databases have.
const FOREIGN: [(&str, &str); 4] = [
    ("RETURNING", "a statement tells the number of its rows and not the rows; query them after it"),
    ("ON", "ON CONFLICT and ON DUPLICATE KEY: write MERGE INTO … USING … ON …"),
    ("LIMIT", "name the rows in WHERE, for example with id IN (SELECT id FROM … LIMIT 10)"),
    ("ORDER", "name the rows in WHERE, for example with id IN (SELECT id FROM … ORDER BY … LIMIT 10)"),
];

type Parsed<T> = std::result::Result<T, ParserError>;

impl WriteStatement {
    /// Parses a statement of this family; `None` for others, by their first words.
    ///
    /// # Errors
    /// [`Error::Refused`] for a statement that cannot be parsed, and for parts of it that are not supported.
    pub(crate) fn parse(sql: &str) -> Result<Option<Self>> {
        if sql.len() > SQL_BYTES_MAX {
            return Err(Error::refused(
                format!("the statement has {} bytes", sql.len()),
                format!("the limit is {SQL_BYTES_MAX}; pass values as parameters, or write rows with an ingest"),
            ));
        }
        let parse = || {
            let source = SourceText::try_new(sql)?;
            let mut reader = Reader { parser: source.parser(), source: &source };
            let parsed = reader.statement().and_then(|action| {
                if action.is_some() {
                    reader.end()?;
                }
                Ok(action)
            });
            parsed.map_err(cannot_parse)
        };
        let no_thread = || Error::refused("cannot parse the statement", "this machine has no thread for it; try again");
        let action = on_large_stack(parse).ok_or_else(no_thread)??;
        Ok(action.map(|action| Self { text: sql.trim().to_string(), action }))
    }
}

/// Reads a statement from the front.
struct Reader<'a> {
    source: &'a SourceText<'a>,
    parser: Parser<'static>,
}

fn refused<T>(reason: impl Into<String>) -> Parsed<T> {
    Err(ParserError::ParserError(reason.into()))
}

/// Returns the zero-based numbers of the parameters of `VALUES ($1, $2, …)`; `None` for other queries.
fn parameters(query: &Query) -> Option<Vec<usize>> {
    let is_alone = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.pipe_operators.is_empty();
    let SetExpr::Values(values) = query.body.as_ref() else { return None };
    let [row] = values.rows.as_slice() else { return None };
    let number = |expr: &Expr| {
        let Expr::Value(value) = expr else { return None };
        let Value::Placeholder(name) = &value.value else { return None };
        name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
    };
    if is_alone { row.content.iter().map(number).collect() } else { None }
}

impl Reader<'_> {
    fn statement(&mut self) -> Parsed<Option<WriteAction>> {
        while self.parser.consume_token(&Token::SemiColon) {}
        let with = self.with()?;
        let words = [0, 1, 2, 3].map(|at| word(&self.parser, at).unwrap_or_default());
        let words = words.each_ref().map(String::as_str);
        let action = match words {
            ["INSERT", ..] => self.insert(with)?,
            ["UPDATE", ..] => self.update(with)?,
            ["DELETE", ..] => self.delete(with)?,
            ["MERGE", ..] => self.merge(with)?,
            _ if with.is_some() => return refused("WITH may stand before SELECT, INSERT, UPDATE, DELETE and MERGE"),
            ["TRUNCATE", ..] => self.truncate()?,
            ["CREATE", "TABLE", ..] | ["CREATE", "OR", "REPLACE", "TABLE"] => self.create_table()?,
            ["CREATE", "VIEW", ..] | ["CREATE", "OR", "REPLACE", "VIEW"] => self.create_view()?,
            ["CREATE", "TAG", ..] => self.create_tag()?,
            ["CREATE", "BRANCH", ..] => self.create_branch()?,
            ["DROP", "TABLE", ..] => self.drop_table()?,
            ["DROP", "VIEW", ..] => self.drop_view()?,
            ["DROP", "TAG", ..] => self.drop_tag()?,
            ["DROP", "BRANCH", ..] => self.drop_branch()?,
            ["ALTER", "TABLE", ..] => self.alter_table()?,
            ["RESTORE", ..] => self.restore()?,
            ["VACUUM", ..] => self.vacuum()?,
            ["CREATE", "TEMPORARY" | "TEMP" | "EXTERNAL" | "UNLOGGED" | "MATERIALIZED", ..] => {
                return refused(format!("CREATE {}: all tables and views are of the lake, and stay", words[1]));
            }
            _ => return Ok(None),
        };
        Ok(Some(action))
    }

    /// Checks that nothing but semicolons follows.
    fn end(&mut self) -> Parsed<()> {
        let is_ended = self.parser.consume_token(&Token::SemiColon);
        while self.parser.consume_token(&Token::SemiColon) {}
        if self.parser.peek_token_ref().token == Token::EOF {
            return Ok(());
        }
        if is_ended {
            return refused("several statements: send one statement at a time");
        }
        let next = word(&self.parser, 0).unwrap_or_default();
        match FOREIGN.iter().find(|(first, _)| *first == next) {
            Some((first, advice)) => refused(format!("{first} after the end of the statement: {advice}")),
            None => refused(format!("{} after the end of the statement", self.parser.peek_token_ref())),
        }
    }

    /// Parses a part, and returns its text.
    fn text<T>(&mut self, parse: impl FnOnce(&mut Parser<'static>) -> Parsed<T>) -> Parsed<String> {
        let start = self.parser.index();
        parse(&mut self.parser)?;
        Ok(self.source.part(start..self.parser.index()))
    }

    fn expression(&mut self) -> Parsed<String> {
        if self.next_is("DEFAULT") {
            return refused("DEFAULT: columns have no default; name the value, or NULL");
        }
        self.text(Parser::parse_expr)
    }

    /// Parses `word expression`, where the word is next.
    fn after(&mut self, word: &str) -> Parsed<Option<String>> {
        if take_word(&mut self.parser, word) { self.expression().map(Some) } else { Ok(None) }
    }

    /// Parses `word relation, …`, where the word is next.
    fn relations_after(&mut self, word: &str) -> Parsed<Option<String>> {
        match take_word(&mut self.parser, word) {
            true => self.text(|parser| parser.parse_comma_separated(Parser::parse_table_and_joins)).map(Some),
            false => Ok(None),
        }
    }

    fn with(&mut self) -> Parsed<Option<String>> {
        if !take_word(&mut self.parser, "WITH") {
            return Ok(None);
        }
        if self.next_is("RECURSIVE") {
            return refused("WITH RECURSIVE: recursion can take any number of steps");
        }
        self.text(|parser| parser.parse_comma_separated(Parser::parse_cte)).map(Some)
    }

    fn next_is(&self, expected: &str) -> bool {
        word(&self.parser, 0).as_deref() == Some(expected)
    }

    fn expect(&mut self, words: &[&str]) -> Parsed<()> {
        words.iter().try_for_each(|word| expect_word(&mut self.parser, word))
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let are_next =
            words.iter().enumerate().all(|(at, expected)| word(&self.parser, at).as_deref() == Some(*expected));
        if are_next {
            words.iter().for_each(|_| self.parser.advance_token());
        }
        are_next
    }

    fn name(&mut self, what: &str) -> Parsed<String> {
        identifier(&mut self.parser, what)
    }

    /// Parses the name of an object whose newest version the statement changes.
    fn object(&mut self, what: &str) -> Parsed<QualifiedName> {
        Ok(newest(&mut self.parser, what)?.0)
    }

    fn table(&mut self) -> Parsed<QualifiedName> {
        self.object("the name of a table")
    }

    /// Parses a table and the name by which the statement calls it, which is none of the words that may follow.
    fn target(&mut self, with: Option<String>, following: &[&str]) -> Parsed<Target> {
        let (name, plain) = newest(&mut self.parser, "the name of a table")?;
        let is_alias = match &self.parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_none() => {
                let word = word.value.to_uppercase();
                word == "AS" || !following.contains(&word.as_str())
            }
            Token::Word(_) => true,
            _ => false,
        };
        take_word(&mut self.parser, "AS");
        let alias = if is_alias { Some(self.name("another name of the table")?) } else { plain };
        Ok(Target { name, alias, with })
    }

    /// Parses `(column, …)`.
    fn columns(&mut self) -> Parsed<Vec<String>> {
        let mut columns = Vec::new();
        self.parser.expect_token(&Token::LParen)?;
        loop {
            columns.push(self.name("a column")?);
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        self.parser.expect_token(&Token::RParen)?;
        distinct(columns.iter().map(String::as_str))?;
        Ok(columns)
    }

    /// Whether a query begins at a position.
    fn begins_query(&self, position: usize) -> bool {
        self.parser.peek_nth_token_ref(position).token == Token::LParen
            || word(&self.parser, position)
                .is_some_and(|word| ["SELECT", "WITH", "VALUES", "FROM"].contains(&word.as_str()))
    }

    fn insert(&mut self, with: Option<String>) -> Parsed<WriteAction> {
        self.expect(&["INSERT"])?;
        let next = word(&self.parser, 0).unwrap_or_default();
        if ["OVERWRITE", "OR", "IGNORE", "REPLACE"].contains(&next.as_str()) {
            return refused(format!("INSERT {next}: write MERGE INTO, or CREATE OR REPLACE TABLE … AS SELECT …"));
        }
        self.expect(&["INTO"])?;
        let table = self.table()?;
        let has_columns = self.parser.peek_token_ref().token == Token::LParen && !self.begins_query(1);
        let columns = if has_columns { self.columns()? } else { Vec::new() };
        if self.next_is("DEFAULT") {
            return refused("DEFAULT VALUES: columns have no defaults; name the values");
        }
        let start = self.parser.index();
        let query = self.parser.parse_query()?;
        let text = self.source.part(start..self.parser.index());
        let rows = match (parameters(&query), with) {
            (Some(parameters), None) => InsertRows::Parameters(parameters),
            (_, None) => InsertRows::Query(text),
            (_, Some(with)) => InsertRows::Query(format!("WITH {with} SELECT * FROM ({text}) AS \"rows\"")),
        };
        Ok(WriteAction::Insert { table, columns, rows })
    }

    fn update(&mut self, with: Option<String>) -> Parsed<WriteAction> {
        self.expect(&["UPDATE"])?;
        let table = self.target(with, &["SET"])?;
        self.expect(&["SET"])?;
        let assignments = self.assignments(table.shown())?;
        let from = self.relations_after("FROM")?;
        let predicate = self.after("WHERE")?;
        Ok(WriteAction::Update { table, assignments, from, predicate })
    }

    fn delete(&mut self, with: Option<String>) -> Parsed<WriteAction> {
        self.expect(&["DELETE", "FROM"])?;
        let table = self.target(with, &["USING", "WHERE", "RETURNING", "ORDER", "LIMIT"])?;
        let using = self.relations_after("USING")?;
        let predicate = self.after("WHERE")?;
        Ok(WriteAction::Delete { table, using, predicate })
    }

    /// Parses `column = expression, …`. A column may have the name of the table before it.
    fn assignments(&mut self, table: &str) -> Parsed<Vec<Assignment>> {
        let mut assignments = Vec::new();
        loop {
            if self.parser.peek_token_ref().token == Token::LParen {
                return refused("SET (a, b) = …: assign each column by itself");
            }
            let mut column = self.name("a column")?;
            if self.parser.consume_token(&Token::Period) {
                if column != table {
                    return refused(format!("SET {column}.…: columns of table {table} are set, not parts of them"));
                }
                column = self.name("a column")?;
            }
            self.parser.expect_token(&Token::Eq)?;
            assignments.push(Assignment { column, value: self.expression()? });
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        distinct(assignments.iter().map(|assignment| assignment.column.as_str()))?;
        Ok(assignments)
    }

    fn merge(&mut self, with: Option<String>) -> Parsed<WriteAction> {
        self.expect(&["MERGE"])?;
        self.take(&["INTO"]);
        let table = self.target(with, &["USING"])?;
        self.expect(&["USING"])?;
        let source = self.text(Parser::parse_table_factor)?;
        self.expect(&["ON"])?;
        let on = self.expression()?;
        let mut clauses: Vec<MergeClause> = Vec::new();
        while self.take(&["WHEN"]) {
            let clause = self.merge_clause(table.shown())?;
            let is_hidden = |earlier: &MergeClause| {
                earlier.predicate.is_none() && earlier.action.is_of_matched() == clause.action.is_of_matched()
            };
            if clauses.iter().any(is_hidden) {
                return refused("a WHEN clause is never reached, because an earlier one has no AND and takes all rows");
            }
            clauses.push(clause);
        }
        if clauses.is_empty() {
            return self.parser.expected_ref("WHEN", self.parser.peek_token_ref());
        }
        Ok(WriteAction::Merge { table, source, on, clauses })
    }

    /// Parses what follows `WHEN`.
    fn merge_clause(&mut self, table: &str) -> Parsed<MergeClause> {
        let is_of_matched = !self.take(&["NOT"]);
        self.expect(&["MATCHED"])?;
        if self.take(&["BY", "SOURCE"]) {
            return refused("NOT MATCHED BY SOURCE: change these rows by another statement, with WHERE NOT EXISTS (…)");
        }
        if !is_of_matched {
            self.take(&["BY", "TARGET"]);
        }
        let predicate = self.after("AND")?;
        self.expect(&["THEN"])?;
        let action = match word(&self.parser, 0).as_deref() {
            Some("UPDATE") if is_of_matched => {
                self.expect(&["UPDATE", "SET"])?;
                MergeAction::Update(self.assignments(table)?)
            }
            Some("DELETE") if is_of_matched => {
                self.expect(&["DELETE"])?;
                MergeAction::Delete
            }
            Some("INSERT") if !is_of_matched => self.merge_insert()?,
            _ if is_of_matched => {
                return self.parser.expected_ref("UPDATE SET or DELETE after MATCHED", self.parser.peek_token_ref());
            }
            _ => return self.parser.expected_ref("INSERT after NOT MATCHED", self.parser.peek_token_ref()),
        };
        Ok(MergeClause { predicate, action })
    }

    fn merge_insert(&mut self) -> Parsed<MergeAction> {
        self.expect(&["INSERT"])?;
        let has_columns = self.parser.peek_token_ref().token == Token::LParen;
        let columns = if has_columns { self.columns()? } else { Vec::new() };
        self.expect(&["VALUES"])?;
        self.parser.expect_token(&Token::LParen)?;
        let mut values = Vec::new();
        loop {
            values.push(self.expression()?);
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        self.parser.expect_token(&Token::RParen)?;
        if !columns.is_empty() && columns.len() != values.len() {
            return refused(format!("INSERT has {} columns and {} values", columns.len(), values.len()));
        }
        Ok(MergeAction::Insert { columns, values })
    }

    fn truncate(&mut self) -> Parsed<WriteAction> {
        self.expect(&["TRUNCATE"])?;
        self.take(&["TABLE"]);
        Ok(WriteAction::Truncate { table: self.table()? })
    }
}

/// Refuses a column that is named twice.
fn distinct<'a>(columns: impl Iterator<Item = &'a str>) -> Parsed<()> {
    let mut names = BTreeSet::new();
    for column in columns {
        if !names.insert(column) {
            return refused(format!("column {column} is named twice"));
        }
    }
    Ok(())
}
