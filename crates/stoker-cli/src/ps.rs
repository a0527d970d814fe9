//! `stoker ps`.

use clap::Args;
use stoker_types::calls::ListStreams;

use crate::connect::LakeArgs;
use crate::output::output;
use crate::print::print_values;

/// List the streams that a server serves now.
#[derive(Debug, Args)]
pub struct PsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints a line for each open stream, oldest first.
pub async fn run(args: PsArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let streams = lake.connect().await?.call(ListStreams {}).await?;
    if streams.is_empty() && !args.json {
        eprintln!("no stream is open");
    }
    print_values(&mut output(), &streams, args.json)
}
