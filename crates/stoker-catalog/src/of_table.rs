//! The relations about one table: `columns(t)`, `indexes(t)`, `versions(t)`, `tags(t)` and `branches(t)`.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{
    ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray, TimestampMillisecondArray, UInt64Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::Result as DfResult;
use stoker_columns::kind_of;
use stoker_lake::Table;
use stoker_types::{BranchInfo, MAIN_BRANCH};

use crate::of_lake::{text, yes_or_no};

/// A relation about one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableView {
    /// `columns(t)`.
    Columns,
    /// `indexes(t)`.
    Indexes,
    /// `versions(t)`.
    Versions,
    /// `tags(t)`.
    Tags,
    /// `branches(t)`.
    Branches,
}

const ALL: [TableView; 5] =
    [TableView::Columns, TableView::Indexes, TableView::Versions, TableView::Tags, TableView::Branches];

impl TableView {
    /// Returns the relation that a table function of this name has.
    pub fn of_function(name: &str) -> Option<Self> {
        ALL.into_iter().find(|view| view.name() == name)
    }

    /// The name of the table function.
    pub fn name(self) -> &'static str {
        match self {
            Self::Columns => "columns",
            Self::Indexes => "indexes",
            Self::Versions => "versions",
            Self::Tags => "tags",
            Self::Branches => "branches",
        }
    }

    pub(crate) fn schema(self) -> SchemaRef {
        let text = |name, nullable| Field::new(name, DataType::Utf8, nullable);
        let count = |name, nullable| Field::new(name, DataType::UInt64, nullable);
        let time =
            |name, nullable| Field::new(name, DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), nullable);
        let list = |name| Field::new(name, DataType::new_list(DataType::Utf8, true), false);
        let fields = match self {
            Self::Columns => vec![
                Field::new("ordinal_position", DataType::Int32, false),
                text("column_name", false),
                text("data_type", false),
                text("is_nullable", false),
                text("kind", false),
            ],
            Self::Indexes => vec![
                text("index_name", false),
                list("column_names"),
                text("index_type", false),
                count("num_rows_covered", false),
                count("num_rows_not_covered", false),
                count("size_bytes", true),
                text("parameters", false),
                Field::new("recall", DataType::Float64, true),
            ],
            Self::Versions => vec![count("version", false), time("committed_at", false), list("tags")],
            Self::Tags => vec![text("tag_name", false), count("version", false)],
            Self::Branches => vec![
                text("branch_name", false),
                text("parent_branch", true),
                count("parent_version", true),
                time("created_at", true),
            ],
        };
        Arc::new(Schema::new(fields))
    }

    /// Reads the rows of the relation.
    pub(crate) async fn rows(self, table: &Table) -> DfResult<RecordBatch> {
        let columns: Vec<ArrayRef> = match self {
            Self::Columns => return Ok(columns(&table.schema())?),
            Self::Indexes => {
                let indexes = table.indexes().await?;
                vec![
                    text(indexes.iter().map(|index| &index.name)),
                    lists(indexes.iter().map(|index| &index.columns)),
                    text(indexes.iter().map(|index| &index.kind)),
                    Arc::new(UInt64Array::from_iter_values(indexes.iter().map(|index| index.num_rows_covered))),
                    Arc::new(UInt64Array::from_iter_values(indexes.iter().map(|index| index.num_rows_not_covered))),
                    Arc::new(indexes.iter().map(|index| index.bytes).collect::<UInt64Array>()),
                    text(indexes.iter().map(|index| &index.parameters)),
                    Arc::new(indexes.iter().map(|index| index.recall).collect::<Float64Array>()),
                ]
            }
            Self::Versions => {
                let versions = table.versions().await?;
                let times = versions.iter().map(|version| version.timestamp_millis);
                vec![
                    Arc::new(UInt64Array::from_iter_values(versions.iter().map(|version| version.version))),
                    Arc::new(TimestampMillisecondArray::from_iter_values(times).with_timezone("UTC")),
                    lists(versions.iter().map(|version| &version.tags)),
                ]
            }
            Self::Tags => {
                let tags = table.tags().await?;
                vec![text(tags.keys()), Arc::new(UInt64Array::from_iter_values(tags.into_values()))]
            }
            Self::Branches => {
                let branches = table.branches().await?;
                // A branch that began on the main one has no name of a parent.
                let parent = |branch: &BranchInfo| branch.parent_branch.clone().unwrap_or(MAIN_BRANCH.into());
                let parents = branches.iter().map(|branch| Some(parent(branch)));
                let versions = branches.iter().map(|branch| Some(branch.parent_version));
                let times = branches.iter().map(|branch| Some(branch.created_millis));
                let times: TimestampMillisecondArray = std::iter::once(None).chain(times).collect();
                vec![
                    text(std::iter::once(MAIN_BRANCH).chain(branches.iter().map(|branch| branch.name.as_str()))),
                    Arc::new(std::iter::once(None).chain(parents).collect::<StringArray>()),
                    Arc::new(std::iter::once(None).chain(versions).collect::<UInt64Array>()),
                    Arc::new(times.with_timezone("UTC")),
                ]
            }
        };
        Ok(RecordBatch::try_new(self.schema(), columns)?)
    }
}

/// Makes the rows of `columns(t)`.
pub(crate) fn columns(schema: &Schema) -> Result<RecordBatch, ArrowError> {
    let fields = schema.fields();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values((1..).take(fields.len()))),
        text(fields.iter().map(|field| field.name())),
        text(fields.iter().map(|field| field.data_type().to_string())),
        text(fields.iter().map(|field| yes_or_no(field.is_nullable()))),
        text(fields.iter().map(|field| kind_of(field).label(field))),
    ];
    RecordBatch::try_new(TableView::Columns.schema(), columns)
}

fn lists<'a>(lists: impl IntoIterator<Item = &'a Vec<String>>) -> ArrayRef {
    let mut built = ListBuilder::new(StringBuilder::new());
    for list in lists {
        built.append_value(list.iter().map(Some));
    }
    Arc::new(built.finish())
}
