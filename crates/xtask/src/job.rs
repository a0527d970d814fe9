//! A child process that ends when its handle is dropped, also if the task fails.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command;

/// How long a process may take to exit after SIGTERM.
const GRACE: Duration = Duration::from_secs(20);

/// The interval at which the exit of a process is polled.
const POLL: Duration = Duration::from_millis(5);

/// A running program. Its output goes to a log file and, line by line, to a channel.
pub struct Job {
    name: String,
    child: Child,
    log: PathBuf,
    lines: Receiver<String>,
}

impl Job {
    /// Starts `command`, and writes all of its output to `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("could not create {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("could not start `{}`", command::shown(command)))?;
        let (sender, lines) = channel();
        let file = Arc::new(Mutex::new(file));
        if let Some(pipe) = child.stdout.take() {
            record(pipe, Arc::clone(&file), sender.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            record(pipe, file, sender);
        }
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), lines })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process prints a line for which `wanted` returns a value.
    pub fn wait_for<T>(&self, what: &str, limit: Duration, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(value) = wanted(&line) {
                        return Ok(value);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} did not print {what} within {} s{}", self.name, limit.as_secs(), self.tail())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{} ended without printing {what}{}", self.name, self.tail())
                }
            }
        }
    }

    /// Waits until the process exits, and returns the lines that [`Job::wait_for`] has not read.
    pub fn finish(&mut self, limit: Duration) -> Result<Vec<String>> {
        if !self.ended_with_success(limit)? {
            bail!("{} has not ended within {} s{}", self.name, limit.as_secs(), self.tail());
        }
        Ok(self.lines.iter().collect())
    }

    /// Whether the process has exited within `limit`; fails if it exited without success.
    pub fn ended_with_success(&mut self, limit: Duration) -> Result<bool> {
        match self.ended_within(limit)? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => bail!("{} ended with {status}{}", self.name, self.tail()),
        }
    }

    /// Kills the process with SIGKILL, so that it ends as on a lost machine.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("could not kill {}", self.name))?;
        self.child.wait().with_context(|| format!("could not wait for {}", self.name))?;
        Ok(())
    }

    /// Sends SIGTERM, and waits until the process has exited with success.
    pub fn stop(mut self) -> Result<()> {
        self.request_end();
        match self.ended_within(GRACE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{} ended with {status} after SIGTERM{}", self.name, self.tail()),
            None => bail!("{} has not ended within {} s after SIGTERM{}", self.name, GRACE.as_secs(), self.tail()),
        }
    }

    fn request_end(&self) {
        command::answers(Command::new("kill").arg(self.pid().to_string()));
    }

    fn ended_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }

    fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(30)..].join("\n  ");
        format!("; its last lines:\n  {last}")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.request_end();
            if !matches!(self.ended_within(Duration::from_secs(2)), Ok(Some(_))) {
                // If the process cannot be killed, nothing is left to do.
                let _ = self.kill();
            }
        }
    }
}

fn record(pipe: impl Read + Send + 'static, log: Arc<Mutex<File>>, lines: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if let Ok(mut log) = log.lock() {
                // An error such as a full disk must not stop the process whose output is recorded.
                let _ = writeln!(log, "{line}");
            }
            // After the job's handle is dropped, the channel has no receiver; the log is still written.
            let _ = lines.send(line);
        }
    });
}
