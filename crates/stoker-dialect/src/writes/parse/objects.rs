//! Statements about views, tags, branches and versions.

use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::{Parsed, Reader, refused};
use crate::named_version::named_version;
use crate::show::word;
use crate::writes::{Existing, NamedVersion, Retained, WriteAction};

impl Reader<'_> {
    pub(super) fn create_view(&mut self) -> Parsed<WriteAction> {
        let existing = self.creating("VIEW")?;
        let view = self.object("the name of a view")?;
        if self.parser.peek_token_ref().token == Token::LParen {
            return refused("the columns of a view are those of its query: name them there with AS");
        }
        self.expect(&["AS"])?;
        let query = self.text(Parser::parse_query)?;
        if self.source.has_placeholder() {
            return refused(
                "the query of a view has no parameters: write the values, or put the predicate where the view is read",
            );
        }
        Ok(WriteAction::CreateView { view, existing, query })
    }

    pub(super) fn drop_view(&mut self) -> Parsed<WriteAction> {
        let if_exists = self.dropping("VIEW")?;
        Ok(WriteAction::DropView { view: self.object("the name of a view")?, if_exists })
    }

    pub(super) fn create_tag(&mut self) -> Parsed<WriteAction> {
        let if_not_exists = self.creating("TAG")? == Existing::Kept;
        let tag = self.name_or_text("the name of a tag")?;
        self.expect(&["ON"])?;
        let (table, at) = named_version(&mut self.parser, "the name of a table")?;
        Ok(WriteAction::CreateTag { tag, if_not_exists, table, at })
    }

    pub(super) fn create_branch(&mut self) -> Parsed<WriteAction> {
        let if_not_exists = self.creating("BRANCH")? == Existing::Kept;
        let branch = self.name_or_text("the name of a branch")?;
        self.expect(&["ON"])?;
        let (table, at) = named_version(&mut self.parser, "the name of a table")?;
        Ok(WriteAction::CreateBranch { branch, if_not_exists, table, at })
    }

    pub(super) fn drop_branch(&mut self) -> Parsed<WriteAction> {
        let if_exists = self.dropping("BRANCH")?;
        let branch = self.name_or_text("the name of a branch")?;
        self.expect(&["ON"])?;
        let table = self.table()?;
        let cascades = self.cascades();
        Ok(WriteAction::DropBranch { branch, if_exists, table, cascades })
    }

    pub(super) fn drop_tag(&mut self) -> Parsed<WriteAction> {
        let if_exists = self.dropping("TAG")?;
        let tag = self.name_or_text("the name of a tag")?;
        self.expect(&["ON"])?;
        Ok(WriteAction::DropTag { tag, if_exists, table: self.table()? })
    }

    /// Parses the name of a tag or of a branch, which may be a text.
    fn name_or_text(&mut self, what: &str) -> Parsed<String> {
        match &self.parser.peek_token_ref().token {
            Token::SingleQuotedString(_) => self.parser.parse_literal_string(),
            _ => self.name(what),
        }
    }

    pub(super) fn restore(&mut self) -> Parsed<WriteAction> {
        self.expect(&["RESTORE"])?;
        self.take(&["TABLE"]);
        let (table, at) = named_version(&mut self.parser, "the name of a table")?;
        match at {
            NamedVersion::Newest => {
                refused("RESTORE: the version is missing; write RESTORE TABLE t AT (VERSION => 3) or AT (TAG => 'v1')")
            }
            at => Ok(WriteAction::Restore { table, at }),
        }
    }

    pub(super) fn vacuum(&mut self) -> Parsed<WriteAction> {
        self.expect(&["VACUUM"])?;
        self.take(&["TABLE"]);
        let is_named = match &self.parser.peek_token_ref().token {
            Token::Word(_) => !["RETAIN", "OLDER", "DRY"].iter().any(|word| self.next_is(word)),
            _ => false,
        };
        let table = if is_named { Some(self.table()?) } else { None };
        let retain = match word(&self.parser, 0).as_deref() {
            Some("RETAIN") => {
                self.expect(&["RETAIN"])?;
                let versions = self.parser.parse_literal_uint()?;
                if !self.take(&["VERSION"]) {
                    self.expect(&["VERSIONS"])?;
                }
                Retained::Versions(versions)
            }
            Some("OLDER") => {
                self.expect(&["OLDER", "THAN"])?;
                Retained::Newer(self.time()?)
            }
            _ => Retained::Default,
        };
        Ok(WriteAction::Vacuum { table, retain, is_dry_run: self.take(&["DRY", "RUN"]) })
    }

    /// Parses a time: `'7 days'`, `INTERVAL '7' DAY` or `7 DAYS`.
    fn time(&mut self) -> Parsed<String> {
        self.take(&["INTERVAL"]);
        let number = match &self.parser.peek_token_ref().token {
            Token::SingleQuotedString(_) => self.parser.parse_literal_string()?,
            _ => self.parser.parse_literal_uint()?.to_string(),
        };
        match word(&self.parser, 0) {
            Some(unit) if unit != "DRY" => {
                self.parser.advance_token();
                Ok(format!("{number} {}", unit.to_lowercase()))
            }
            _ => Ok(number),
        }
    }
}
