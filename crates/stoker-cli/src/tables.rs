//! `stoker tables`, `versions`, `tag` and `index`.

use std::io::Write;

use arrow_array::TimestampSecondArray;
use arrow_cast::display::array_value_to_string;
use clap::{Args, ValueEnum};
use stoker_lake::{IndexKind, LakeStore, Metric};
use stoker_types::calls::{ListTables, ListVersions, TableAt};
use stoker_types::{SnapshotRef, TableName};

use crate::connect::{AtArgs, LakeArgs};
use crate::output::output;

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
    /// The number of partitions of a vector index
    #[arg(long, default_value_t = 16)]
    partitions: usize,
    /// The number of sub-vectors of a product-quantised index, which must divide the dimension
    #[arg(long, default_value_t = 16)]
    sub_vectors: usize,
    /// The distance of a vector index; searches with another distance do not use the index
    #[arg(long, value_enum, default_value = "l2")]
    metric: Distance,
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
    Btree,
    Bitmap,
    Inverted,
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
    let table = TableName::try_new(args.table)?;
    let lake = LakeStore::open(lake.local("index")?, &lake.storage()?).await?;
    let table = lake.table(&table, &SnapshotRef::Latest).await?;
    let metric = match args.metric {
        Distance::L2 => Metric::L2,
        Distance::Cosine => Metric::Cosine,
        Distance::Dot => Metric::Dot,
    };
    let kind = match args.kind {
        Kind::IvfFlat => IndexKind::IvfFlat { num_partitions: args.partitions, metric },
        Kind::IvfPq => IndexKind::IvfPq { num_partitions: args.partitions, num_sub_vectors: args.sub_vectors, metric },
        Kind::Btree => IndexKind::BTree,
        Kind::Bitmap => IndexKind::Bitmap,
        Kind::Inverted => IndexKind::Inverted,
    };
    let version = table.create_index(&args.column, kind).await?;
    writeln!(output(), "column {} of {} is indexed since version {version}", args.column, table.name())?;
    Ok(())
}
