//! The project's own tasks: `cargo xtask setup|demo|test|lint|bench|wheel`.
//!
//! Each task makes what it needs on a fresh machine (a protobuf compiler, a Python virtual environment, the release
//! build, servers for the demo), says what it does while it does it, and when it cannot go on says what to do. All of
//! them use the same one build, so that nothing is compiled twice.
#![expect(clippy::print_stdout, reason = "a task talks to the person in front of the terminal")]

mod bench;
mod build;
mod clippy_wrapper;
mod command;
mod demo;
mod job;
mod lint;
mod narrate;
mod protoc;
mod python;
mod test;
mod wheel;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::build::Targets;
use crate::narrate::Narrator;
use crate::workspace::Workspace;

const HELP: &str = "\
Stoker's tasks. Each makes its own set-up and says what it does.

  cargo xtask setup              protobuf compiler, release build, Python virtual environment, native modules
  cargo xtask demo [local|s3]    the whole path on real images: ingest, query, serve, train, kill, resume, evaluate
  cargo xtask test [FILTER…]     all Rust and Python tests; with filters, only the Rust tests whose name contains one
  cargo xtask test --extras      the tests of JAX and TensorFlow, in a Python environment of their own (2 GB)
  cargo xtask lint [--quick]     formatting, clippy, licences, Python, shell scripts, images; with --quick, without clippy
                                 and Python's types, which take minutes
  cargo xtask bench              rates beside their ceilings, and beside other libraries: takes an hour or so
  cargo xtask bench ARGS…        `stoker bench` with these arguments
  cargo xtask bench peers ARGS…  only the other libraries, with later epochs too; --help lists the arguments
  cargo xtask bench python ARGS… only first epochs of Python processes; --help lists the arguments
  cargo xtask bench media ARGS…  only images, sound, video and compressed tensors; --help lists the arguments
  cargo xtask bench tokens ARGS… only rows of different lengths, packs and weights; --help lists the arguments
  cargo xtask bench frameworks   only batches of JAX and TensorFlow; further arguments as --help lists them
  cargo xtask bench sql ARGS…    only SQL and search beside other engines; --help lists the arguments
  cargo xtask wheel [--lto]      the Python packages as files for `pip install`; with --lto smaller, after an hour or more
  cargo xtask help               this text

Settings, from the environment:
  CARGO_TARGET_DIR     where the build goes (default: target/ in the checkout)
  STOKER_VENV          the Python virtual environment (default: ~/.cache/stoker/venv)
  STOKER_PYTHON_BASE   the Python that makes it (default: the first of python3, python3.13 … python3.10 that fits)
  PROTOC               the protobuf compiler (default: a packaged one, otherwise one that Cargo brings along)";

fn main() -> ExitCode {
    if clippy_wrapper::is_requested() {
        return clippy_wrapper::run();
    }
    let mut args = std::env::args().skip(1);
    let task = args.next().unwrap_or_else(|| "help".to_owned());
    let rest: Vec<String> = args.collect();
    match run(&task, &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("\nxtask {task} failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &str, args: &[String]) -> Result<()> {
    if matches!(task, "help" | "--help" | "-h") {
        println!("{HELP}");
        return Ok(());
    }
    let workspace = Workspace::locate()?;
    let mut narrator = Narrator::new(task);
    match task {
        "setup" => build::set_up(&workspace, &mut narrator, Targets::Programs).map(drop),
        "demo" => demo::run(&workspace, &mut narrator, args),
        "test" => test::run(&workspace, &mut narrator, args),
        "lint" => lint::run(&workspace, &mut narrator, args),
        "bench" => bench::run(&workspace, &mut narrator, args),
        "wheel" => wheel::run(&workspace, &mut narrator, args),
        other => bail!("there is no task {other:?}\n\n{HELP}"),
    }
}
