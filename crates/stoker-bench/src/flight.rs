//! `stoker bench flight`: Stoker's server and clients over the loopback interface, compared with Arrow's C++
//! implementation.
//!
//! ```text
//! ceiling  C++ server, ready batches ──► C++ client        (both through pyarrow, messages of several sizes)
//! paths    `stoker serve`, page cache ──► `stoker stream`
//!                                     └─► C++ client        (a stock client of Flight, through pyarrow)
//! beside   the same, over a Unix socket
//! ```

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::data::{DataSet, Kind};
use crate::report::{Measurement, Role, Section};
use crate::runs::{BenchRun, WAYS, measurement, report};
use crate::service::{Service, own_command};
use crate::settings::{Settings, lake_in};
use crate::{path_text, repetitions};

/// The Python program that runs pyarrow.
const SCRIPT: &str = include_str!("flight_pair.py");

/// The sizes of the ceiling's messages: names and bytes. The last size is that of a batch of 256 images.
const MESSAGES: [(&str, u64); 3] = [("1 MB", 1 << 20), ("4 MB", 4 << 20), ("38 MB", 38_535_168)];

/// The socket of the second server, in the data folder.
const SOCKET: &str = "stoker.sock";

/// The shares of the ceiling that Stoker's client and the stock client should reach.
const OWN_BAR: f64 = 1.0;
const STOCK_BAR: f64 = 0.85;

/// Measures the C++ pair and the paths through Stoker, alternately.
pub fn measure(settings: &Settings, dir: &Path, data: &DataSet) -> anyhow::Result<Section> {
    let mut section = Section::new("Flight over loopback", settings, data);
    let pyarrow = match Pyarrow::find(settings) {
        Ok(pyarrow) => Some(pyarrow),
        Err(error) => {
            section.note(format!("No ceiling and no stock client, because pyarrow is not installed: {error:#}"));
            None
        }
    };
    let lake = lake_in(dir);
    let serve = ["serve", "--lake", path_text(&lake)?, "--listen", "127.0.0.1:0"];
    let server = Service::start(&mut own_command(&serve)?)?;
    let socket = format!("unix://{}", path_text(&dir.join(SOCKET))?);
    let near = Service::start(&mut own_command(&["serve", "--lake", path_text(&lake)?, "--listen", &socket])?)?;
    let query = data.query();
    let run = |server: &Service, shuffle| BenchRun {
        query: &query,
        batch_size: settings.batch_size,
        epochs: settings.epochs,
        shuffle,
        target: vec!["--server".to_string(), server.address.clone()],
    };
    for turn in repetitions("Flight", settings, data) {
        section.begin(turn);
        if let Some(pyarrow) = &pyarrow {
            for (name, message_bytes) in MESSAGES {
                let name = format!("C++ server, C++ client, messages of {name}");
                section.measure(&name, Role::Ceiling, || pyarrow.ready(data, message_bytes))?;
            }
        }
        for (name, shuffle) in WAYS {
            let name = format!("Stoker's server and client, {name}");
            let role = Role::Path { bar: Some(OWN_BAR) };
            section.measure(&name, role, || served(&server, || run(&server, shuffle).measure()))?;
        }
        for (name, shuffle) in WAYS {
            let name = format!("Stoker's server and client, Unix socket, {name}");
            section.measure(&name, Role::Reference, || served(&near, || run(&near, shuffle).measure()))?;
        }
        for (name, shuffle) in WAYS {
            let Some(pyarrow) = &pyarrow else { continue };
            let name = format!("Stoker's server, C++ client, {name}");
            let role = Role::Path { bar: Some(STOCK_BAR) };
            section
                .measure(&name, role, || served(&server, || pyarrow.stock(&run(&server, shuffle), &server.address)))?;
        }
    }
    if pyarrow.is_some() {
        section.note(
            "C++: pyarrow. Its server holds ready batches in memory; the size with the best rate is the ceiling.",
        );
    }
    Ok(section)
}

/// Adds the processor time of a server to a measurement.
fn served(server: &Service, work: impl FnOnce() -> anyhow::Result<Measurement>) -> anyhow::Result<Measurement> {
    let before = server.cpu_secs();
    let measured = work()?;
    Ok(Measurement { server_cpu_secs: Some(server.cpu_secs() - before), ..measured })
}

/// A Python interpreter that has pyarrow.
struct Pyarrow<'a> {
    settings: &'a Settings,
}

impl<'a> Pyarrow<'a> {
    /// Checks that the Python interpreter of the settings can import pyarrow.
    fn find(settings: &'a Settings) -> anyhow::Result<Self> {
        let pyarrow = Self { settings };
        let python = settings.python();
        let python = python.to_string_lossy();
        let checked = pyarrow.command("check").output();
        let checked = checked.with_context(|| format!("{python} does not start (--python names another)"))?;
        let said = String::from_utf8_lossy(&checked.stderr);
        let said = said.trim().lines().next_back().unwrap_or_default();
        ensure!(checked.status.success(), "{python} says {said:?} (--python names another)");
        Ok(pyarrow)
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(self.settings.python());
        command.args(["-c", SCRIPT, what]);
        command
    }

    /// Measures a C++ client that receives ready batches from a C++ server, with as many rows as the data has.
    fn ready(&self, data: &DataSet, message_bytes: u64) -> anyhow::Result<Measurement> {
        let (element, element_bytes) = match data.kind {
            Kind::Images => ("uint8", 1),
            Kind::Tokens | Kind::Narrow => ("int32", 4),
        };
        let width = (data.kind.row_bytes() / element_bytes).to_string();
        let (rows, message_bytes) = (data.num_rows.to_string(), message_bytes.to_string());
        let mut server = self.command("serve");
        server.args(["--element", element, "--width", &width, "--rows", &rows, "--message-bytes", &message_bytes]);
        let server = Service::start(&mut server)?;
        let epochs = self.settings.epochs.to_string();
        let mut client = self.command("drain");
        client.args(["--address", &server.address, "--epochs", &epochs]);
        served(&server, || measurement(&report(&mut client)?))
    }

    /// Measures a C++ client that receives the stream of a run from Stoker's server.
    fn stock(&self, run: &BenchRun<'_>, address: &str) -> anyhow::Result<Measurement> {
        let shuffle = match run.shuffle {
            "none" => "sequential",
            other => other,
        };
        let (batch_size, epochs) = (run.batch_size.to_string(), run.epochs.to_string());
        let mut client = self.command("stock");
        client.args(["--address", address, "--query", run.query, "--shuffle", shuffle]);
        client.args(["--batch-size", &batch_size, "--epochs", &epochs]);
        measurement(&report(&mut client)?)
    }
}
