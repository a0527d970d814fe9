//! `stoker bench ranks`: one server that feeds all ranks of a job from an object store, compared with the same server
//! and one stream.

use std::path::Path;

use clap::Args;

use crate::data::{DataSet, Kind};
use crate::repetitions;
use crate::report::{Measurement, Role, Section};
use crate::runs::{measurement, report};
use crate::service::{Service, own_command};
use crate::settings::Settings;
use crate::store::Store;

/// The default number of ranks. 64 ranks do not divide the 48 lanes of an order, so that ranks share blocks.
pub const WORLD_SIZE: u32 = 64;

/// The rows of a batch for each rank: of images, and of smaller rows.
const ROWS_PER_RANK: (u64, u64) = (16, 128);

/// The share of the rate of one stream that all ranks together should reach.
const BAR: f64 = 0.90;

/// Arguments of `stoker bench ranks`.
#[derive(Debug, Args)]
pub struct RanksArgs {
    #[command(flatten)]
    pub settings: Settings,
    /// Ranks of the job
    #[arg(long, default_value_t = WORLD_SIZE, value_parser = clap::value_parser!(u32).range(1..))]
    pub world_size: u32,
}

/// Measures one stream and the streams of `world_size` ranks, alternately. Both have the same global batches.
pub fn measure(
    settings: &Settings,
    dir: &Path,
    data: &DataSet,
    world_size: u32,
    (name, shuffle): (&str, &str),
) -> anyhow::Result<Section> {
    let rows_per_rank = match data.kind {
        Kind::Images => ROWS_PER_RANK.0,
        Kind::Tokens | Kind::Narrow => ROWS_PER_RANK.1,
    };
    let batch_size = rows_per_rank * u64::from(world_size);
    let settings = &Settings { batch_size, ..settings.clone() };
    let mut section = Section::new(&format!("{world_size} ranks of one server, {name}"), settings, data);
    let store = Store::start(dir, settings.latency_ms)?;
    let mut serve = own_command(&["serve", "--listen", "127.0.0.1:0"])?;
    let server = Service::start(serve.args(store.lake_args()))?;
    let streams = |world_size: u32| -> anyhow::Result<Measurement> {
        let (world_size, epochs) = (world_size.to_string(), settings.epochs.to_string());
        let mut command = own_command(&["bench", "rank-streams", &data.query(), "--shuffle", shuffle])?;
        command.args(["--global-batch-size", &batch_size.to_string(), "--world-size", &world_size]);
        command.args(["--epochs", &epochs, "--server", &server.address]);
        let before = server.cpu_secs();
        let measured = store.measured(|| measurement(&report(&mut command)?))?;
        Ok(Measurement { server_cpu_secs: Some(server.cpu_secs() - before), ..measured })
    };
    for turn in repetitions("ranks", settings, data) {
        section.begin(turn);
        section.measure("one stream", Role::Ceiling, || streams(1))?;
        let name = format!("{world_size} ranks");
        section.measure(&name, Role::Path { bar: Some(BAR) }, || streams(world_size))?;
    }
    section.note(format!(
        "{} ms before each response of the store. The global batches of both lines are the same; all streams of a line are in one \
         process. Requests and bytes read are those that the store counted, server CPU is that of `stoker serve`, whose peak was \
         {} MiB.",
        settings.latency_ms,
        server.peak_bytes() >> 20
    ));
    Ok(section)
}
