//! Statements that make, drop and alter tables.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::{Parsed, Reader, distinct, refused};
use crate::QualifiedName;
use crate::show::word;
use crate::writes::{AddedColumn, ColumnDefinition, Existing, TableContent, WriteAction};

/// The words that may follow the type of a column.
const AFTER_TYPE: [&str; 11] =
    ["NOT", "NULL", "AS", "USING", "DEFAULT", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES", "GENERATED", "COLLATE"];

/// The most brackets that open in the type of a column. Readers of types call themselves for each level of nesting, and
/// pairs in sequence, as in `INT[][]`, nest too.
const TYPE_BRACKETS_MAX: usize = 64;

impl Reader<'_> {
    /// Parses `CREATE [OR REPLACE] what [IF NOT EXISTS]`.
    pub(super) fn creating(&mut self, what: &str) -> Parsed<Existing> {
        self.expect(&["CREATE"])?;
        let replaces = self.take(&["OR", "REPLACE"]);
        self.expect(&[what])?;
        match (replaces, self.take(&["IF", "NOT", "EXISTS"])) {
            (true, true) => refused("write OR REPLACE or IF NOT EXISTS, not both"),
            (true, false) => Ok(Existing::Replaced),
            (false, true) => Ok(Existing::Kept),
            (false, false) => Ok(Existing::Refused),
        }
    }

    /// Parses `DROP what [IF EXISTS]`.
    pub(super) fn dropping(&mut self, what: &str) -> Parsed<bool> {
        self.expect(&["DROP", what])?;
        Ok(self.take(&["IF", "EXISTS"]))
    }

    pub(super) fn create_table(&mut self) -> Parsed<WriteAction> {
        let existing = self.creating("TABLE")?;
        let table = self.table()?;
        let has_columns = self.parser.peek_token_ref().token == Token::LParen && !self.begins_query(1);
        let content = match has_columns {
            true => TableContent::Columns(self.definitions()?),
            false => {
                self.expect(&["AS"])?;
                TableContent::Query(self.text(Parser::parse_query)?)
            }
        };
        if has_columns && self.next_is("AS") {
            return refused("CREATE TABLE … (…) AS: the columns are those of the query; cast and name them there");
        }
        Ok(WriteAction::CreateTable { table, existing, content })
    }

    /// Parses `(column type, …)`.
    fn definitions(&mut self) -> Parsed<Vec<ColumnDefinition>> {
        let mut columns = Vec::new();
        self.parser.expect_token(&Token::LParen)?;
        loop {
            let next = word(&self.parser, 0).unwrap_or_default();
            if ["CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK"].contains(&next.as_str()) {
                return refused(format!("{next}: tables have no keys and no checks"));
            }
            let name = self.name("a column")?;
            let data_type = self.data_type()?;
            columns.push(ColumnDefinition { name, data_type, nullable: self.nullable()? });
            if !self.parser.consume_token(&Token::Comma) {
                break;
            }
        }
        self.parser.expect_token(&Token::RParen)?;
        distinct(columns.iter().map(|column| column.name.as_str()))?;
        Ok(columns)
    }

    /// Parses a type: all that stands before the next comma or closing parenthesis, or before a word that may follow.
    fn data_type(&mut self) -> Parsed<String> {
        let (start, mut depth) = (self.parser.index(), 0_usize);
        loop {
            let next = word(&self.parser, 0);
            match &self.parser.peek_token_ref().token {
                Token::EOF | Token::SemiColon => break,
                Token::LParen | Token::LBracket | Token::Lt => depth += 1,
                Token::RParen | Token::Comma if depth == 0 => break,
                Token::RParen | Token::RBracket | Token::Gt => depth = depth.saturating_sub(1),
                Token::ShiftRight => depth = depth.saturating_sub(2),
                Token::Word(_) if depth == 0 && next.as_deref().is_some_and(|next| AFTER_TYPE.contains(&next)) => break,
                _ => {}
            }
            self.parser.advance_token();
        }
        let text = self.source.part(start..self.parser.index());
        if text.is_empty() {
            return self.parser.expected_ref("the type of a column", self.parser.peek_token_ref());
        }
        // Brackets in quotes and comments count too: those who read the text later may take them for nesting.
        let num_brackets = text.matches(['[', '<', '(']).count();
        if num_brackets > TYPE_BRACKETS_MAX {
            return refused(format!(
                "the type of a column opens {num_brackets} brackets, and the limit is {TYPE_BRACKETS_MAX}: nest lists \
                 and structs less deeply"
            ));
        }
        Ok(text)
    }

    /// Parses `[NULL | NOT NULL]`.
    fn nullable(&mut self) -> Parsed<bool> {
        let nullable = !self.take(&["NOT", "NULL"]);
        if nullable {
            self.take(&["NULL"]);
        }
        let next = word(&self.parser, 0).unwrap_or_default();
        if AFTER_TYPE.contains(&next.as_str()) && next != "AS" {
            return refused(format!("{next} after a column: tables have no defaults, no keys and no checks"));
        }
        Ok(nullable)
    }

    pub(super) fn drop_table(&mut self) -> Parsed<WriteAction> {
        let if_exists = self.dropping("TABLE")?;
        let table = self.table()?;
        let cascades = self.cascades();
        Ok(WriteAction::DropTable { table, if_exists, cascades })
    }

    /// Parses `CASCADE` or `RESTRICT`, which may be left out.
    pub(super) fn cascades(&mut self) -> bool {
        let cascades = self.take(&["CASCADE"]);
        if !cascades {
            self.take(&["RESTRICT"]);
        }
        cascades
    }

    pub(super) fn alter_table(&mut self) -> Parsed<WriteAction> {
        self.expect(&["ALTER", "TABLE"])?;
        let table = self.table()?;
        match word(&self.parser, 0).as_deref() {
            Some("ADD") => {
                let columns = self.alterations("ADD", Self::added_column)?;
                distinct(columns.iter().map(|column| column.name.as_str()))?;
                Ok(WriteAction::AddColumns { table, columns })
            }
            Some("DROP") => {
                let columns = self.alterations("DROP", |reader| {
                    let if_exists = reader.take(&["IF", "EXISTS"]);
                    Ok((reader.name("a column")?, if_exists))
                })?;
                distinct(columns.iter().map(|(name, _)| name.as_str()))?;
                Ok(WriteAction::DropColumns { table, columns })
            }
            Some("RENAME") => {
                self.expect(&["RENAME"])?;
                if self.next_is("TO") {
                    return refused("RENAME TO: a table keeps its name; copy it with CREATE TABLE … AS SELECT …");
                }
                self.take(&["COLUMN"]);
                let from = self.name("a column")?;
                self.expect(&["TO"])?;
                Ok(WriteAction::RenameColumn { table, from, to: self.name("a column")? })
            }
            Some("ALTER") => self.altered_column(table),
            _ => self.parser.expected_ref("ADD, ALTER, DROP or RENAME COLUMN", self.parser.peek_token_ref()),
        }
    }

    /// Parses `ALTER [COLUMN] column [[SET DATA] TYPE type] [AS | USING expression]`.
    fn altered_column(&mut self, table: QualifiedName) -> Parsed<WriteAction> {
        self.expect(&["ALTER"])?;
        self.take(&["COLUMN"]);
        let column = self.name("a column")?;
        let is_typed = self.take(&["SET", "DATA", "TYPE"]) || self.take(&["TYPE"]);
        let data_type = if is_typed { Some(self.data_type()?) } else { None };
        let value = match self.after("AS")? {
            Some(value) => Some(value),
            None => self.after("USING")?,
        };
        if data_type.is_none() && value.is_none() {
            return refused(format!(
                "ALTER COLUMN {column}: a column has no defaults and keeps its NULLs; write TYPE and a type, AS and an \
                 expression, or both"
            ));
        }
        if self.parser.peek_token_ref().token == Token::Comma {
            return refused("one ALTER TABLE changes the type or the values of one column: write a statement for each");
        }
        Ok(WriteAction::AlterColumn { table, column, data_type, value })
    }

    /// Parses `verb [COLUMN] …, verb [COLUMN] …`.
    fn alterations<T>(&mut self, verb: &str, parse: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut parsed = Vec::new();
        loop {
            if !self.next_is(verb) {
                return refused(format!("one ALTER TABLE either adds, drops or renames columns: write {verb} again"));
            }
            self.expect(&[verb])?;
            self.take(&["COLUMN"]);
            parsed.push(parse(self)?);
            if !self.parser.consume_token(&Token::Comma) {
                return Ok(parsed);
            }
        }
    }

    fn added_column(&mut self) -> Parsed<AddedColumn> {
        let if_not_exists = self.take(&["IF", "NOT", "EXISTS"]);
        let name = self.name("a column")?;
        let data_type = if self.next_is("AS") { None } else { Some(self.data_type()?) };
        let nullable = self.nullable()?;
        let value = self.after("AS")?;
        Ok(AddedColumn { name, if_not_exists, data_type, nullable, value })
    }
}
