//! Why a column cannot be read as plain bytes.

use std::fmt;

/// What is in the way of reading a column as plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The type is none whose values have one size and lie side by side.
    NotFixedSizeLists,
    /// The elements of its lists are booleans, lists, text, …
    NotNumbers,
    /// The table's schema does not have it.
    NotInSchema,
    /// A fragment has overlays, which may cover it.
    Overlays,
    /// A fragment has no file with its values: they are null there.
    NoFile,
    /// A file belongs to another table, of which this one is a clone.
    OtherBase,
    /// A file has a version whose pages are encoded in other ways.
    OldFile,
    /// The manifest gives it no column in its file.
    NoPageTable,
    /// The manifest gives it a column that its file lacks.
    FewerColumns,
    /// A page has an encoding from before or after the stable one.
    OtherEncoding,
    /// A page has values of many rows in one compressed block.
    NotRowByRow,
    /// All rows of a page are null.
    OnlyNulls,
    /// Some rows of a page are null.
    Nulls,
    /// Elements inside the lists are null.
    NullItems,
    /// The values of a page are compressed.
    Compressed,
    /// A page lies nowhere.
    NoBuffer,
    /// A page is larger or smaller than its rows.
    PageSize,
    /// The pages together have more or fewer rows than the file.
    RowsWithoutPages,
    /// Its rows have no checksums, while what Lance decodes of the file has.
    Unchecked,
}

impl Obstacle {
    /// A word that stays, for programs.
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
