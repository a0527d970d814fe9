//! `stoker tables`, `versions`, `tag` and `index`.

use std::io::Write;

use arrow_array::TimestampSecondArray;
use arrow_cast::display::array_value_to_string;
use clap::{Args, ValueEnum};
use stoker_dialect::{CreateIndex, OptionValue, QualifiedName};
use stoker_types::SnapshotRef;
use stoker_types::calls::{ListTables, ListVersions, TableAt};

use crate::connect::{AtArgs, LakeArgs};
use crate::output::output;
use crate::print::Format;
use crate::statement::execute;

/// The table that a command is about.
#[derive(Debug, Args)]
pub struct TableArgs {
    /// The table
    table: String,
}

/// A table, a version and its new tag.
#[derive(Debug, Args)]
pub struct TagArgs {
    /// The table
    table: String,
    /// The new tag
    name: String,
    #[command(flatten)]
    at: AtArgs,
}

/// An index to build.
#[derive(Debug, Args)]
pub struct IndexArgs {
    /// The table
    table: String,
    /// The column
    column: String,
    /// The kind of index
    #[arg(long, value_enum)]
    kind: Kind,
    /// The name of the index, which replaces one of this name [default: COLUMN_idx]
    #[arg(long)]
    name: Option<String>,
    /// The number of partitions of a vector index [default: by the number of rows]
    #[arg(long, value_name = "N")]
    partitions: Option<u64>,
    /// The number of sub-vectors of a product-quantised index, which must divide the dimension [default: up to 16]
    #[arg(long, value_name = "N")]
    sub_vectors: Option<u64>,
    /// The distance of a vector index; searches with another distance do not use the index [default: l2]
    #[arg(long, value_enum)]
    metric: Option<Distance>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Distance {
    L2,
    Cosine,
    Dot,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    IvfFlat,
    IvfPq,
    IvfHnswSq,
    Btree,
    Bitmap,
    LabelList,
    Ngram,
    Inverted,
}

impl IndexArgs {
    /// Returns the statement that builds the index.
    fn into_statement(self) -> CreateIndex {
        let method = match self.kind {
            Kind::IvfFlat => "ivf_flat",
            Kind::IvfPq => "ivf_pq",
            Kind::IvfHnswSq => "ivf_hnsw_sq",
            Kind::Btree => "btree",
            Kind::Bitmap => "bitmap",
            Kind::LabelList => "label_list",
            Kind::Ngram => "ngram",
            Kind::Inverted => "inverted",
        };
        let metric = self.metric.map(|metric| match metric {
            Distance::L2 => "l2",
            Distance::Cosine => "cosine",
            Distance::Dot => "dot",
        });
        let number = |number: Option<u64>| number.map(|number| OptionValue::Number(number.to_string()));
        let options = [
            ("num_partitions", number(self.partitions)),
            ("num_sub_vectors", number(self.sub_vectors)),
            ("metric", metric.map(|metric| OptionValue::Text(metric.to_string()))),
        ];
        CreateIndex {
            or_replace: true,
            name: self.name,
            table: QualifiedName(vec![self.table]),
            method: Some(method.to_string()),
            column: self.column,
            options: options.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect(),
            ..CreateIndex::default()
        }
    }
}

/// Prints all tables with their versions and numbers of rows.
pub async fn list(lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect().await?;
    let names = connection.call(ListTables {}).await?;
    if names.is_empty() {
        eprintln!("the lake has no tables yet; write one with `stoker ingest`, or from Python with lake.create_table");
    }
    let mut out = output();
    for name in names {
        let info = connection.table(&name, &SnapshotRef::Latest).await?;
        writeln!(out, "{name}\tversion {}\t{} rows", info.version, info.num_rows)?;
    }
    Ok(())
}

/// Prints the versions of a table.
pub async fn versions(args: TableArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let mut out = output();
    for version in lake.connect().await?.call(ListVersions(TableAt::new(&args.table, &SnapshotRef::Latest))).await? {
        let time = TimestampSecondArray::from(vec![version.timestamp_millis / 1000]).with_timezone("+00:00");
        let time = array_value_to_string(&time, 0)?;
        writeln!(out, "version {}\t{time}\t{}", version.version, version.tags.join(", "))?;
    }
    Ok(())
}

/// Creates a tag.
pub async fn tag(args: TagArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect().await?;
    let at = SnapshotRef::Version(connection.table(&args.table, &args.at.snapshot()).await?.version);
    connection.tag(&args.table, &at, &args.name).await?;
    writeln!(output(), "tag '{}' names {at} of {}", args.name, args.table)?;
    Ok(())
}

/// Builds an index.
pub async fn index(args: IndexArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let statement = args.into_statement().to_string();
    execute(&lake.connect().await?, &statement, &[], Format::Table, &mut output()).await
}
