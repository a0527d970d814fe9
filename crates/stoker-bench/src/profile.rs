//! Profiles the whole machine with Linux' `perf` while a path that missed its bar runs once more.
//!
//! Clients, servers and the store share the processors, so all of them are sampled, and so are idle processors.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

/// Samples per second and processor. It is no divisor of a round number, so that samples do not fall into step with timers.
const FREQUENCY: &str = "997";

/// The smallest share of the samples that is told, in percent.
const SHARE_MIN: f64 = 2.0;

/// Parts of the names of functions in which an idle processor waits, and what they are called in a profile.
const IDLE: [&str; 3] = ["_idle", "halt", "mwait"];
const IDLE_NAME: &str = "idle";

/// A function with its share of the samples, in percent.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    pub percent: f64,
    pub function: String,
}

/// Returns whether `perf` is installed and may sample the whole machine, in the kernel, too.
pub fn is_available() -> bool {
    let mut probe = Command::new("perf");
    probe.args(["stat", "-a", "-e", "cpu-clock", "--", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Runs a measurement while the machine is sampled. Returns what it returned, with the functions that took the most time.
pub fn recorded<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Vec<Share>)> {
    let file = std::env::temp_dir().join(format!("stoker-bench-{}.perf", std::process::id()));
    let recorder = Recorder::start(&file)?;
    let done = work();
    let shares = recorder.stop();
    std::fs::remove_file(&file).ok();
    Ok((done?, shares?))
}

struct Recorder {
    /// Records until its own child, which waits for the end of its input, ends.
    perf: Child,
    file: PathBuf,
}

impl Recorder {
    fn start(file: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", FREQUENCY, "-o"]).arg(file).args(["--", "cat"]);
        let perf = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok(Self { perf: perf.context("cannot start perf")?, file: file.to_path_buf() })
    }

    fn stop(mut self) -> anyhow::Result<Vec<Share>> {
        drop(self.perf.stdin.take());
        let status = self.perf.wait()?;
        ensure!(status.success(), "perf cannot sample this machine: it ended with {status}");
        let mut report = Command::new("perf");
        report.args(["report", "--stdio", "--no-children", "-F", "overhead,sym", "-g", "none", "-i"]).arg(&self.file);
        let report = report.stderr(Stdio::null()).output().context("cannot start perf")?;
        ensure!(report.status.success(), "perf cannot read its samples: it ended with {}", report.status);
        Ok(shares(&String::from_utf8_lossy(&report.stdout)))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.perf.stdin.take());
        self.perf.wait().ok();
    }
}

/// Reads the functions of a report, most samples first. Idle processors are one function.
fn shares(report: &str) -> Vec<Share> {
    let (mut found, mut idle) = (Vec::new(), 0.0);
    for line in report.lines() {
        let Some((percent, rest)) = line.trim().split_once('%') else { continue };
        let Ok(percent) = percent.trim().parse::<f64>() else { continue };
        let rest = rest.trim_start();
        let (Some(mode), Some(name)) = (rest.get(..3), rest.get(3..)) else { continue };
        let (name, is_kernel) = (name.trim(), mode == "[k]");
        match is_kernel && IDLE.iter().any(|idle| name.contains(idle)) {
            true => idle += percent,
            false => {
                let kernel = if is_kernel { " (kernel)" } else { "" };
                found.push(Share { percent, function: format!("{}{kernel}", short(name)) });
            }
        }
    }
    found.push(Share { percent: idle, function: IDLE_NAME.to_string() });
    found.retain(|share| share.percent >= SHARE_MIN);
    found.sort_by(|one, other| other.percent.total_cmp(&one.percent));
    found
}

/// Returns the last two parts of the path of a function, without generic arguments and hashes.
fn short(name: &str) -> String {
    let name = name.rsplit_once("::h").filter(|(_, hash)| hash.len() == 16).map_or(name, |(path, _)| path);
    let (mut bare, mut depth) = (String::new(), 0u32);
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => bare.push(letter),
            _ => {}
        }
    }
    let parts: Vec<&str> = bare.split("::").filter(|part| !part.is_empty() && *part != "{{closure}}").collect();
    match parts.len() {
        0 => name.to_string(),
        num_parts => parts[num_parts.saturating_sub(2)..].join("::"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Share, recorded, shares, short};

    const REPORT: &str = "
# Samples: 12K of event 'cpu-clock:ppp'
#
# Overhead  Symbol
# ........  ......
#
    31.50%  [k] clear_page_erms
    20.25%  [k] pv_native_safe_halt
    10.00%  [.] stoker_stream::gather::Gather<T>::copy::h0123456789abcdef
     9.00%  [k] default_idle
     1.99%  [.] memcpy
";

    #[test]
    fn functions_are_told_with_their_shares() {
        let share = |percent, function: &str| Share { percent, function: function.to_string() };
        let expected = [share(31.5, "clear_page_erms (kernel)"), share(29.25, "idle"), share(10.0, "Gather::copy")];
        assert_eq!(shares(REPORT), expected);
        assert_eq!(shares(""), []);
    }

    #[test]
    fn names_are_short() {
        assert_eq!(short("<core::pin::Pin<P> as core::future::Future>::poll"), "poll");
        assert_eq!(short("a::b::{{closure}}::c"), "b::c");
        assert_eq!(short("<a>"), "<a>");
    }

    #[test]
    fn a_measurement_that_fails_fails() {
        let failed = recorded(|| anyhow::bail!("no such stream"));
        let (): () = match failed {
            Err(error) => assert!(["no such stream", "cannot start perf"].contains(&error.to_string().as_str())),
            Ok(((), _)) => unreachable!("the measurement fails"),
        };
    }
}
