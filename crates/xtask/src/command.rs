//! Runs other programs: prints each command before it runs, and checks its exit status.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

/// Prints a command and runs it with this terminal. If it fails, the error ends with `advice`.
pub fn run(command: &mut Command, advice: &str) -> Result<()> {
    println!("          $ {}", shown(command));
    let status = command.stdin(Stdio::null()).status().with_context(|| missing(command))?;
    if status.success() {
        return Ok(());
    }
    bail!("`{}` ended with {status}: {advice}", shown(command))
}

/// Runs a command without printing it, and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| missing(command))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` ended with {}:\n{}", shown(command), output.status, errors.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Prints a command, runs it and prints its output; returns whether it succeeded, and the lines of its output.
pub fn run_and_listen(command: &mut Command) -> Result<(bool, Vec<String>)> {
    println!("          $ {}", shown(command));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| missing(command))?;
    let errors = child.stderr.take().map(|pipe| thread::spawn(move || pass_on(pipe)));
    let mut lines = child.stdout.take().map(pass_on).unwrap_or_default();
    if let Some(thread) = errors {
        lines.extend(thread.join().unwrap_or_default());
    }
    Ok((child.wait()?.success(), lines))
}

fn pass_on(pipe: impl Read) -> Vec<String> {
    let mut lines = Vec::new();
    let mut reader = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        println!("{line}");
        lines.push(line);
        bytes.clear();
    }
    lines
}

/// Whether a program is installed, which is tested with `--version` (for cargo's subcommands: `NAME --version`).
pub fn answers(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns the command as a person would type it.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c));
    if is_plain { word.into_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn missing(command: &Command) -> String {
    format!("could not start `{}`", shown(command))
}
