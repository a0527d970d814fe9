//! Processes that serve while others are measured.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use crate::process::process_use;

/// What such a process says when it is ready, before its address.
const READY: &str = "listening on ";

/// A process that serves; ended when dropped.
pub struct Service {
    process: Child,
    /// What it said that it listens on.
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

    /// The largest memory of the process so far.
    pub fn peak_bytes(&self) -> u64 {
        process_use(self.process.id()).peak_bytes
    }

    /// Seconds of processor time so far.
    pub fn cpu_secs(&self) -> f64 {
        process_use(self.process.id()).cpu_secs
    }
}

/// A command of this program, without the caller's settings.
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
