//! Starts server processes for the time of a measurement.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use stoker_measure::process_use;

/// The text that such a process prints before its address when it is ready.
const READY: &str = "listening on ";

/// A server process, which is killed when this value is dropped.
pub struct Service {
    process: Child,
    /// The address that the process printed.
    pub address: String,
}

impl Service {
    /// Starts a process and waits until it listens.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = process.with_context(|| format!("cannot start {name}"))?;
        let output = process.stdout.take().context("the process has no output")?;
        let mut service = Self { process, address: String::new() };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().strip_prefix(READY);
        service.address = address.with_context(|| format!("{name} said {line:?}"))?.to_string();
        Ok(service)
    }

    /// Returns the peak memory of the process so far.
    pub fn peak_bytes(&self) -> u64 {
        process_use(self.process.id()).peak_bytes
    }

    /// Returns the processor seconds of the process so far.
    pub fn cpu_secs(&self) -> f64 {
        process_use(self.process.id()).cpu_secs
    }
}

/// Returns a command that runs this program, without the `STOKER_*` variables of the environment except `STOKER_LOG`.
pub fn own_command(args: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args);
    for (name, _) in std::env::vars_os() {
        let is_setting = name.to_str().is_some_and(|name| name.starts_with("STOKER_") && name != "STOKER_LOG");
        if is_setting {
            command.env_remove(name);
        }
    }
    Ok(command)
}

impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
