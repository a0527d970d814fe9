//! Statements that change rows, columns, tables, views, tags, branches and old versions.
//!
//! Names are parsed here. Queries and expressions stay texts, which the engine plans in queries of its own.

mod parse;

use std::fmt;

use crate::QualifiedName;

/// A statement that changes rows, columns, tables, views, tags, branches or old versions. Its `Display` is the statement as it
/// was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteStatement {
    /// The statement as it was written.
    pub text: String,
    /// What it does.
    pub action: WriteAction,
}

/// What a statement does. Queries and expressions are texts, in which each `?` has become `$1`, `$2`, ….
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteAction {
    /// `[WITH …] INSERT INTO table [(columns)] query`.
    Insert {
        /// The table.
        table: QualifiedName,
        /// The columns that get values, in the order of the query's columns; all columns of the table if empty.
        columns: Vec<String>,
        /// The rows.
        rows: InsertRows,
    },
    /// `[WITH …] UPDATE table [alias] SET column = expression, … [FROM relations] [WHERE predicate]`.
    Update {
        /// The table.
        table: Target,
        /// The new values.
        assignments: Vec<Assignment>,
        /// Other relations, as a list in `FROM`.
        from: Option<String>,
        /// Which rows are updated; all rows if `None`.
        predicate: Option<String>,
    },
    /// `[WITH …] DELETE FROM table [alias] [USING relations] [WHERE predicate]`.
    Delete {
        /// The table.
        table: Target,
        /// Other relations, as a list in `FROM`.
        using: Option<String>,
        /// Which rows are deleted; all rows if `None`.
        predicate: Option<String>,
    },
    /// `[WITH …] MERGE INTO table [alias] USING relation ON predicate WHEN …`.
    Merge {
        /// The table.
        table: Target,
        /// The other relation, as in `FROM`.
        source: String,
        /// Which rows of the table a row of the source matches.
        on: String,
        /// What happens to the rows. The first clause that fits a row decides.
        clauses: Vec<MergeClause>,
    },
    /// `TRUNCATE [TABLE] table`.
    Truncate {
        /// The table.
        table: QualifiedName,
    },
    /// `CREATE [OR REPLACE] TABLE [IF NOT EXISTS] table (column type, …)` or `… AS query`.
    CreateTable {
        /// The table.
        table: QualifiedName,
        /// What happens to a table of the same name.
        existing: Existing,
        /// The columns.
        content: TableContent,
    },
    /// `DROP TABLE [IF EXISTS] table [CASCADE]`.
    DropTable {
        /// The table.
        table: QualifiedName,
        /// Whether a name that no table has is no error.
        if_exists: bool,
        /// Whether the table is dropped although streams read it: `CASCADE`.
        cascades: bool,
    },
    /// `ALTER TABLE table ADD [COLUMN] [IF NOT EXISTS] column [type] [AS expression], …`.
    AddColumns {
        /// The table.
        table: QualifiedName,
        /// The columns.
        columns: Vec<AddedColumn>,
    },
    /// `ALTER TABLE table DROP [COLUMN] [IF EXISTS] column, …`.
    DropColumns {
        /// The table.
        table: QualifiedName,
        /// The names of the columns, and whether a name that no column has is no error.
        columns: Vec<(String, bool)>,
    },
    /// `ALTER TABLE table RENAME [COLUMN] column TO column`.
    RenameColumn {
        /// The table.
        table: QualifiedName,
        /// The name of the column.
        from: String,
        /// Its new name.
        to: String,
    },
    /// `ALTER TABLE table ALTER [COLUMN] column [[SET DATA] TYPE type] [AS | USING expression]`, with a type, an expression or
    /// both.
    AlterColumn {
        /// The table.
        table: QualifiedName,
        /// The name of the column.
        column: String,
        /// Its new type, as it was written; that of the expression if `None`.
        data_type: Option<String>,
        /// The expression of its new values; they are casts of the old ones if `None`.
        value: Option<String>,
    },
    /// `RESTORE [TABLE] table AT (VERSION => number | TAG => 'tag')`.
    Restore {
        /// The table.
        table: QualifiedName,
        /// The version that becomes the newest one again.
        at: NamedVersion,
    },
    /// `CREATE [OR REPLACE] VIEW [IF NOT EXISTS] view AS query`.
    CreateView {
        /// The view.
        view: QualifiedName,
        /// What happens to a view of the same name.
        existing: Existing,
        /// The query.
        query: String,
    },
    /// `DROP VIEW [IF EXISTS] view`.
    DropView {
        /// The view.
        view: QualifiedName,
        /// Whether a name that no view has is no error.
        if_exists: bool,
    },
    /// `CREATE BRANCH [IF NOT EXISTS] branch ON table [AT (VERSION => number | TAG => 'tag' | BRANCH => 'branch')]`.
    CreateBranch {
        /// The branch.
        branch: String,
        /// Whether a branch of the same name stays, without an error.
        if_not_exists: bool,
        /// The table, or the branch of it at which the branch begins.
        table: QualifiedName,
        /// The version at which the branch begins.
        at: NamedVersion,
    },
    /// `DROP BRANCH [IF EXISTS] branch ON table [CASCADE]`.
    DropBranch {
        /// The branch.
        branch: String,
        /// Whether a name that no branch has is no error.
        if_exists: bool,
        /// The table.
        table: QualifiedName,
        /// Whether the branch is dropped while streams hold versions of it.
        cascades: bool,
    },
    /// `CREATE TAG [IF NOT EXISTS] tag ON table [AT (VERSION => number | TAG => 'tag' | BRANCH => 'branch')]`.
    CreateTag {
        /// The tag.
        tag: String,
        /// Whether a tag of the same name stays, without an error.
        if_not_exists: bool,
        /// The table.
        table: QualifiedName,
        /// The version that the tag names.
        at: NamedVersion,
    },
    /// `DROP TAG [IF EXISTS] tag ON table`.
    DropTag {
        /// The tag.
        tag: String,
        /// Whether a name that no tag has is no error.
        if_exists: bool,
        /// The table.
        table: QualifiedName,
    },
    /// `VACUUM [table] [RETAIN number VERSIONS | OLDER THAN 'time'] [DRY RUN]`.
    Vacuum {
        /// The table; all tables if `None`.
        table: Option<QualifiedName>,
        /// Which versions stay.
        retain: Retained,
        /// Whether it is only told what would be removed.
        is_dry_run: bool,
    },
}

/// A table whose rows a statement changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The table.
    pub name: QualifiedName,
    /// The name by which the rest of the statement calls it; the last part of its name if `None`.
    pub alias: Option<String>,
    /// The `WITH` clause before the statement, without its first word.
    pub with: Option<String>,
}

/// The rows of an `INSERT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertRows {
    /// Those of a query.
    Query(String),
    /// One row, whose values are parameters: `VALUES ($1, $2)`. The numbers are zero-based.
    Parameters(Vec<usize>),
}

/// A new value: `column = expression`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The column.
    pub column: String,
    /// The expression.
    pub value: String,
}

/// `WHEN [NOT] MATCHED [AND predicate] THEN …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeClause {
    /// Which of the rows.
    pub predicate: Option<String>,
    /// What happens to them. It tells, too, whether the clause is about rows that matched.
    pub action: MergeAction,
}

/// What a clause of a `MERGE` does with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeAction {
    /// Updates the row of the table that matched.
    Update(Vec<Assignment>),
    /// Deletes the row of the table that matched.
    Delete,
    /// Inserts a row for a row of the source that matched nothing.
    Insert {
        /// The columns that get values; all columns of the table if empty.
        columns: Vec<String>,
        /// The expressions of the values.
        values: Vec<String>,
    },
}

impl MergeAction {
    /// Whether the action is about rows that matched.
    pub fn is_of_matched(&self) -> bool {
        !matches!(self, Self::Insert { .. })
    }
}

/// What happens to an object that has the name of a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is an error.
    Refused,
    /// It stays, and nothing is created: `IF NOT EXISTS`.
    Kept,
    /// It is replaced: `OR REPLACE`.
    Replaced,
}

/// The columns of a new table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableContent {
    /// Columns without rows.
    Columns(Vec<ColumnDefinition>),
    /// The columns and the rows of a query.
    Query(String),
}

/// `column type [NOT NULL]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// The name.
    pub name: String,
    /// The type, as it was written.
    pub data_type: String,
    /// Whether its values may be NULL.
    pub nullable: bool,
}

/// A column that is added to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedColumn {
    /// The name.
    pub name: String,
    /// Whether a column of the same name stays, without an error.
    pub if_not_exists: bool,
    /// The type, as it was written; that of the expression if `None`.
    pub data_type: Option<String>,
    /// Whether its values may be NULL.
    pub nullable: bool,
    /// The expression of the values of existing rows; they are NULL if `None`.
    pub value: Option<String>,
}

/// The version that a new tag names, at which a new branch begins, or that is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedVersion {
    /// The newest one.
    Newest,
    /// The one with this number.
    Number(u64),
    /// The one that a tag names.
    Tag(String),
}

/// Which old versions a `VACUUM` keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retained {
    /// Those that were replaced in the time that is retained by default.
    Default,
    /// This many of the newest.
    Versions(u64),
    /// Those that were replaced in this time, such as `7 days`.
    Newer(String),
}

impl WriteStatement {
    /// The kind of statement: its first words, such as `INSERT`.
    pub fn kind(&self) -> &'static str {
        match &self.action {
            WriteAction::Insert { .. } => "INSERT",
            WriteAction::Update { .. } => "UPDATE",
            WriteAction::Delete { .. } => "DELETE",
            WriteAction::Merge { .. } => "MERGE",
            WriteAction::Truncate { .. } => "TRUNCATE",
            WriteAction::CreateTable { .. } => "CREATE TABLE",
            WriteAction::DropTable { .. } => "DROP TABLE",
            WriteAction::AddColumns { .. }
            | WriteAction::DropColumns { .. }
            | WriteAction::RenameColumn { .. }
            | WriteAction::AlterColumn { .. } => "ALTER TABLE",
            WriteAction::Restore { .. } => "RESTORE",
            WriteAction::CreateView { .. } => "CREATE VIEW",
            WriteAction::DropView { .. } => "DROP VIEW",
            WriteAction::CreateBranch { .. } => "CREATE BRANCH",
            WriteAction::DropBranch { .. } => "DROP BRANCH",
            WriteAction::CreateTag { .. } => "CREATE TAG",
            WriteAction::DropTag { .. } => "DROP TAG",
            WriteAction::Vacuum { .. } => "VACUUM",
        }
    }
}

impl fmt::Display for WriteStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Target {
    /// The name by which the rest of the statement calls the table.
    pub fn shown(&self) -> &str {
        let last = self.name.0.last().map_or("", String::as_str);
        self.alias.as_deref().unwrap_or(last)
    }
}

#[cfg(test)]
mod tests;
