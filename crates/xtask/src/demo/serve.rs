//! `stoker serve` as a child process.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::Result;

use super::Stage;
use crate::command;
use crate::job::Job;
use crate::narrate::Narrator;

/// How long a server may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server.
pub struct Server {
    /// The URL at which clients reach the server: `grpc://HOST:PORT`.
    pub url: String,
    /// The server's process.
    pub job: Job,
}

/// Starts a server on a free port and waits until it listens.
pub fn start(
    stage: &Stage<'_>,
    narrator: &Narrator,
    name: &str,
    lake: &OsStr,
    settings: &[(&str, String)],
) -> Result<Server> {
    let mut command = stage.stoker();
    command.args(["serve", "--listen", "127.0.0.1:0", "--lake"]).arg(lake).envs(settings.iter().cloned());
    narrator.say(format!("$ {}", command::shown(&command)));
    let job = Job::start("stoker serve", &mut command, &stage.work_dir.path(format!("{name}.log")))?;
    let url = job.wait_for("the address it listens on", START_LIMIT, |line| {
        let address = line.split("listening on ").nth(1)?.split_whitespace().next()?;
        address.starts_with("grpc").then(|| address.trim_matches('"').to_owned())
    })?;
    narrator.say(format!("listening on {url}, process {}", job.pid()));
    Ok(Server { url, job })
}
