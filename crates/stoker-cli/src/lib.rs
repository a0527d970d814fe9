//! The `stoker` command.
//!
//! One file for each subcommand. Results go to standard output; progress, warnings and errors to standard error.

mod batch_log;
mod brief;
mod change;
mod cleanup;
mod codec;
mod columns;
mod compact;
mod connect;
mod describe;
mod doctor;
mod fail;
mod ingest;
mod new_file;
mod output;
mod print;
mod ps;
mod quarantine;
mod query_args;
mod replay;
mod secret_args;
mod serve;
mod serve_limits;
mod shell;
mod sql;
mod statement;
mod stream;
mod tables;
mod verify;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::connect::LakeArgs;
use crate::fail::fail;
pub use crate::ingest::{IngestCall, IngestFailure};

/// Query and stream training data from Lance tables on object storage.
#[derive(Parser)]
#[command(name = "stoker", version, about)]
struct Cli {
    #[command(flatten)]
    lake: LakeArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write files into a table
    ///
    /// The kind of the sources is found from the names of their files and from what is in them: class folders of images,
    /// Parquet files, or files of another format. It is printed before anything is written; --dry-run writes nothing.
    /// Several sources are one dataset. Hidden files are ignored.
    Ingest(Box<ingest::IngestArgs>),
    /// Run a SELECT or a statement that changes the lake, or open a shell
    Sql(sql::SqlArgs),
    /// Drain a stream and report its rates
    Stream(stream::StreamArgs),
    /// Show the rows of a past step of a run
    Replay(replay::ReplayArgs),
    /// Check from receipts that every row was delivered exactly once
    Verify(verify::VerifyArgs),
    /// Serve a lake over Arrow Flight
    Serve(Box<serve::ServeArgs>),
    /// List tables
    Tables,
    /// List the streams that a server serves now
    Ps(ps::PsArgs),
    /// Show how large a table is, and how its columns are stored
    Describe(describe::DescribeArgs),
    /// Report which columns of a table are read as plain bytes, and how to convert the others
    ///
    /// Each column has a verdict. The values of dense columns are read from the files directly into batches. Heavy
    /// columns with the verdict "decoder" are read through Lance's decoder; so are light columns, for which this is
    /// cheap. Findings say what costs speed or safety, and what to do about it; they are no errors.
    Doctor(doctor::DoctorArgs),
    /// List the versions of a table
    Versions(tables::TableArgs),
    /// Tag a version of a table
    Tag(tables::TagArgs),
    /// Build an index over a column
    Index(tables::IndexArgs),
    /// Give rows of a table new values
    ///
    /// All rows change in one new version, or none if it fails. Older versions, and streams of them, keep the old values.
    Update(change::UpdateArgs),
    /// Delete rows of a table
    ///
    /// Older versions, and streams of them, keep the rows until `stoker cleanup` removes these versions.
    Delete(change::DeleteArgs),
    /// Delete all rows of a table; older versions keep them
    Truncate(change::TruncateArgs),
    /// Add a column to a table
    ///
    /// The values are those of an expression of SQL, or NULL. `Table.add_column` in Python also takes a function, such as a
    /// model.
    AddColumn(columns::AddColumnArgs),
    /// Give a column of a table another type
    ///
    /// The column is read and written again, and no other one. Older versions keep the old type. Indexes of the column are
    /// dropped.
    CastColumn(columns::CastColumnArgs),
    /// Give a column of a table another name
    RenameColumn(columns::RenameColumnArgs),
    /// Remove columns from a table; older versions keep them
    DropColumn(columns::DropColumnArgs),
    /// List, make or remove branches of a table
    ///
    /// A branch is a line of versions of its own, which begins with the rows of one version and shares its files. Commands
    /// and queries name it TABLE@BRANCH.
    Branch(change::BranchArgs),
    /// Make an older version of a table the newest one again
    ///
    /// This makes a new version with the rows, the columns and the indexes of the older one. The versions between them
    /// stay. No data is copied.
    Restore(change::RestoreArgs),
    /// Remove a table with all of its versions
    Drop(change::DropArgs),
    /// Exclude bad rows from later versions of a table
    Quarantine(quarantine::QuarantineArgs),
    /// Write small fragments, and those with deleted rows, again as full ones
    ///
    /// Neighbouring fragments that are less than half full are joined; fragments with many deleted rows, and those whose
    /// columns lie in many files, are written again. Checksums and compression stay, and indexes follow. Older versions
    /// keep the old fragments, so that streams go on; `stoker cleanup` removes them later. If there is nothing to do,
    /// there is no new version.
    Compact(compact::CompactArgs),
    /// Remove old versions of tables, and files that no version names any more
    ///
    /// Tagged versions and the newest version are kept. So are versions that were replaced less than a day ago,
    /// whatever --keep says. Only one cleanup of a lake runs at a time.
    Cleanup(cleanup::CleanupArgs),
    /// Measure rates and compare them with their ceilings
    #[cfg(feature = "bench")]
    Bench(stoker_bench::BenchArgs<stream::Shuffle>),
}

/// Runs the command with these arguments, of which the first is the name of the program, and returns its exit status.
///
/// The binary `stoker` calls this, and so does the native module of the Python package `stoker-engine`, so that the
/// packages have the command without a second copy of the engine. An error in the arguments, `--help` and `--version`
/// end the process.
pub fn main<T>(args: impl IntoIterator<Item = T>) -> ExitCode
where
    T: Into<OsString> + Clone,
{
    let filter = EnvFilter::try_from_env("STOKER_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,stoker_server=info,stoker_client=info,stoker_session=info"));
    let colours = std::io::stderr().is_terminal();
    // A separate thread writes the log, and drops lines while nobody reads them: a full pipe must not block a server.
    let (log, _written_to_its_end) = tracing_appender::non_blocking(std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(log).with_ansi(colours).init();
    let cli = Cli::parse_from(args);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(8 << 20).build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let done = runtime.block_on(run(cli));
    // The process does not wait for reads that are still running.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let lake = cli.lake;
    match cli.command {
        Command::Ingest(args) => ingest::run(*args, &lake).await,
        Command::Sql(args) => sql::run(args, &lake).await,
        Command::Stream(args) => stream::run(args, &lake).await,
        Command::Replay(args) => replay::run(args, &lake).await,
        Command::Verify(args) => verify::run(args, &lake).await,
        Command::Serve(args) => serve::run(*args, lake.local("serve")?, lake.storage()?).await,
        Command::Tables => tables::list(&lake).await,
        Command::Ps(args) => ps::run(args, &lake).await,
        Command::Describe(args) => describe::run(args, &lake).await,
        Command::Doctor(args) => doctor::run(args, &lake).await,
        Command::Versions(args) => tables::versions(args, &lake).await,
        Command::Tag(args) => tables::tag(args, &lake).await,
        Command::Index(args) => tables::index(args, &lake).await,
        Command::Update(args) => change::update(args, &lake).await,
        Command::Delete(args) => change::delete(args, &lake).await,
        Command::Truncate(args) => change::truncate(args, &lake).await,
        Command::AddColumn(args) => columns::add(args, &lake).await,
        Command::CastColumn(args) => columns::cast(args, &lake).await,
        Command::RenameColumn(args) => columns::rename(args, &lake).await,
        Command::DropColumn(args) => columns::drop_columns(args, &lake).await,
        Command::Branch(args) => change::branch(args, &lake).await,
        Command::Restore(args) => change::restore(args, &lake).await,
        Command::Drop(args) => change::drop_table(args, &lake).await,
        Command::Quarantine(args) => quarantine::run(args, &lake).await,
        Command::Compact(args) => compact::run(args, &lake).await,
        Command::Cleanup(args) => cleanup::run(args, &lake).await,
        #[cfg(feature = "bench")]
        Command::Bench(args) => stoker_bench::run(args, &mut output::output(), || lake.connect()).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::Cli;
    use crate::connect::LAKE;

    /// The options that say which lake or server a command connects to.
    const OF_THE_LAKE: [&str; 8] = [
        "lake",
        "server",
        "server-token-file",
        "server-token",
        "tls-ca",
        "client-tls-cert",
        "client-tls-key",
        "storage-option",
    ];

    /// Checks a command and its subcommands. Returns their number.
    fn check(command: &Command) -> usize {
        for option in command.get_arguments().filter_map(|option| Some((option.get_long()?, option))) {
            let ((name, option), path) = (option, command.get_name());
            let is_of_the_lake = OF_THE_LAKE.contains(&name);
            assert_eq!(option.get_help_heading() == Some(LAKE), is_of_the_lake, "{path} --{name}");
        }
        for name in ["json", "help", "batch-size", "listen", "advertise", "kind", "mode"] {
            let option = command.get_arguments().find(|option| option.get_long() == Some(name));
            let heading = option.and_then(|option| option.get_help_heading());
            assert_eq!(heading, None, "{} --{name}", command.get_name());
        }
        1 + command.get_subcommands().map(check).sum::<usize>()
    }

    #[test]
    fn the_options_of_the_lake_have_a_heading_of_their_own_in_each_command() {
        let mut command = Cli::command();
        command.build();
        assert!(check(&command) >= 16);
        let stream = command.find_subcommand("stream").expect("a command");
        let cache = stream.get_arguments().find(|option| option.get_long() == Some("cache-dir")).expect("an option");
        assert_eq!(cache.get_help_heading(), Some("Reading the lake"));
    }
}
