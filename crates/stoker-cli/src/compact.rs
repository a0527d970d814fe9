//! `stoker compact`.

use clap::Args;
use stoker_dialect::{OptimizeTable, OptionValue, QualifiedName};

use crate::connect::LakeArgs;
use crate::output::output;
use crate::print::Format;
use crate::statement::execute;

/// A table, and how its fragments are written again.
#[derive(Debug, Args)]
pub struct CompactArgs {
    /// The table
    table: String,
    /// The rows of a new fragment at most; fragments of less than half of them are joined [default: 1048576]
    #[arg(long, value_name = "N")]
    rows_per_fragment: Option<u64>,
    /// The megabytes of a new fragment at most; fragments of less than half of them are joined [default: 4295]
    #[arg(long, value_name = "MB")]
    mb_per_fragment: Option<u64>,
    /// The share of deleted rows from which on a fragment is written again [default: 10]
    #[arg(long, value_name = "PERCENT")]
    deleted_percent: Option<u64>,
    /// The megabytes that are written again per second at most, so that streams are not slowed down [default: no limit]
    #[arg(long, value_name = "MB/S")]
    rate: Option<u64>,
    /// Write all fragments again, also those that need it for no other reason
    #[arg(long)]
    all: bool,
    /// Only print what would be written again
    #[arg(long)]
    dry_run: bool,
}

impl CompactArgs {
    /// Returns the statement that compacts the table.
    fn into_statement(self) -> OptimizeTable {
        let number = |number: Option<u64>| number.map(|number| OptionValue::Number(number.to_string()));
        let options = [
            ("rows_per_fragment", number(self.rows_per_fragment)),
            ("mb_per_fragment", number(self.mb_per_fragment)),
            ("deleted_percent", number(self.deleted_percent)),
            ("rate_mb_per_sec", number(self.rate)),
            ("all", self.all.then_some(OptionValue::Bool(true))),
        ];
        OptimizeTable {
            table: QualifiedName(vec![self.table]),
            options: options.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect(),
            is_dry_run: self.dry_run,
        }
    }
}

/// Compacts the table, and prints the outcome.
pub async fn run(args: CompactArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let statement = args.into_statement().to_string();
    execute(&lake.connect().await?, &statement, &[], Format::Table, &mut output()).await
}
