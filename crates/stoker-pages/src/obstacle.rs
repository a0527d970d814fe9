//! Reasons why a column cannot be read as plain bytes.

use std::fmt;

/// A reason why a column cannot be read as plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The values of the column's type do not have one fixed size, or do not lie side by side.
    NotFixedSizeLists,
    /// The elements of the column's lists are not numbers but booleans, lists, text, …
    NotNumbers,
    /// The table's schema does not have the column.
    NotInSchema,
    /// A fragment has overlays, which may replace values of the column.
    Overlays,
    /// A fragment has no file with the column's values: they are null there.
    NoFile,
    /// A file belongs to another table, of which this table is a clone.
    OtherBase,
    /// A file has a format version before 2.1, whose pages are encoded differently.
    OldFile,
    /// The manifest assigns the column no column index in its file.
    NoPageTable,
    /// The manifest assigns the column a column index that its file does not have.
    FewerColumns,
    /// A page has an encoding that is older than the stable one, or newer.
    OtherEncoding,
    /// A page stores the values of many rows in one compressed block.
    NotRowByRow,
    /// All rows of a page are null.
    OnlyNulls,
    /// Some rows of a page are null.
    Nulls,
    /// Elements inside the lists are null.
    NullItems,
    /// The values of a page are compressed.
    Compressed,
    /// A page has no buffer.
    NoBuffer,
    /// A page's size is not its number of rows times the bytes of a row.
    PageSize,
    /// The pages together have more or fewer rows than the file.
    RowsWithoutPages,
    /// The column's rows have no checksums of their own, although the file has checksums for the bytes that Lance
    /// decodes.
    Unchecked,
}

impl Obstacle {
    /// Returns a stable identifier of the obstacle, for programs.
    pub fn code(self) -> &'static str {
        match self {
            Obstacle::NotFixedSizeLists => "type",
            Obstacle::NotNumbers => "elements",
            Obstacle::NotInSchema => "unknown_column",
            Obstacle::Overlays => "overlays",
            Obstacle::NoFile => "missing_values",
            Obstacle::OtherBase => "other_base",
            Obstacle::OldFile => "old_file",
            Obstacle::NoPageTable => "no_page_table",
            Obstacle::FewerColumns => "fewer_columns",
            Obstacle::OtherEncoding => "other_encoding",
            Obstacle::NotRowByRow => "not_row_by_row",
            Obstacle::OnlyNulls => "only_nulls",
            Obstacle::Nulls => "nulls",
            Obstacle::NullItems => "null_items",
            Obstacle::Compressed => "compressed",
            Obstacle::NoBuffer => "no_buffer",
            Obstacle::PageSize => "page_size",
            Obstacle::RowsWithoutPages => "rows_without_pages",
            Obstacle::Unchecked => "unchecked_rows",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Obstacle::NotFixedSizeLists => "its values are not fixed-size lists",
            Obstacle::NotNumbers => "its elements are not numbers",
            Obstacle::NotInSchema => "the column is not in its schema",
            Obstacle::Overlays => "it has overlays",
            Obstacle::NoFile => "no file holds the column",
            Obstacle::OtherBase => "its file lies under another base path",
            Obstacle::OldFile => "its file is older than version 2.1",
            Obstacle::NoPageTable => "the column has no page table of its own",
            Obstacle::FewerColumns => "its file has fewer columns than the manifest says",
            Obstacle::OtherEncoding => "a page has an older or unstable encoding",
            Obstacle::NotRowByRow => "a page is not laid out row by row",
            Obstacle::OnlyNulls => "a page holds nothing but nulls",
            Obstacle::Nulls => "a page holds nulls, so that every row has a control word",
            Obstacle::NullItems => "a page has nulls inside its values",
            Obstacle::Compressed => "a page is compressed",
            Obstacle::NoBuffer => "a page has no buffer",
            Obstacle::PageSize => "a page's size is not its rows times their bytes",
            Obstacle::RowsWithoutPages => "its pages do not cover its rows",
            Obstacle::Unchecked => "its rows have no checksums of their own",
        })
    }
}
