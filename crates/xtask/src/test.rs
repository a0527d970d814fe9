//! `cargo xtask test`: every test of the repository.

use std::process::Command;
use std::thread;

use anyhow::{Result, bail};

use crate::build::{self, SELECTION, Targets};
use crate::command;
use crate::narrate::Narrator;
use crate::python::Python;
use crate::wheel::{self, Wheels};
use crate::workspace::Workspace;

/// Folders with Python tests, those that exist are run.
const PYTHON_TESTS: [&str; 2] = ["clients/python/tests", "tests/python"];

/// The argument that asks for the tests of large frameworks, and the folder of these tests.
const EXTRAS: &str = "--extras";
const EXTRAS_TESTS: &str = "clients/python/tests_extras";

/// The most processes that run Python tests at the same time. Each holds PyTorch, a lake, and at times servers and
/// training jobs of several processes: about 2 GiB.
const PYTHON_PROCESSES_MAX: usize = 4;

/// Which Python tests run at the same time as others, and which one after another with nothing beside them: those with
/// the marker `alone`, see pyproject.toml.
const PYTHON_PARTS: [(&str, &str, bool); 2] =
    [("Python tests", "not alone", true), ("Python tests, alone", "alone", false)];

/// One runner's result.
struct Outcome {
    runner: &'static str,
    passed: bool,
    closing_line: String,
}

/// Builds, then runs the Rust tests, the examples in the documentation, and the Python tests.
///
/// With `filters`, runs only the Rust tests whose name contains one of them; with `--extras`, only the tests of JAX and
/// TensorFlow, in an environment of their own.
pub fn run(workspace: &Workspace, narrator: &mut Narrator, filters: &[String]) -> Result<()> {
    if filters.iter().any(|filter| filter == EXTRAS) {
        return extras(workspace, narrator, filters);
    }
    let python = build::set_up(workspace, narrator, Targets::ProgramsAndTests)?;
    let mut outcomes = vec![narrator.step("Rust tests", |narrator| rust(workspace, &python, filters, narrator))?];
    if filters.is_empty() {
        outcomes.push(narrator.step("Examples in the Rust documentation", |_| doc(workspace, &python))?);
        let folders: Vec<&str> = PYTHON_TESTS.into_iter().filter(|dir| workspace.root.join(dir).is_dir()).collect();
        if !folders.is_empty() {
            let wheels = wheel::build(workspace, narrator, &python, "release")?;
            for (title, marker, parallel) in PYTHON_PARTS {
                outcomes.push(narrator.step(title, |_| {
                    let mut command = pytest(workspace, &python, &folders, &wheels);
                    command.args(["-m", marker]);
                    if parallel {
                        // A file's tests share fixtures, and some follow one another: one process runs them all. Files
                        // begin in the order of conftest.py, not with those that have most tests.
                        command.args(["--dist", "loadfile", "--no-loadscope-reorder"]);
                        command.args(["-n", &python_processes().to_string()]);
                    }
                    listen(title, settings(&mut command, workspace, &python), closes_python)
                })?);
            }
        }
    }
    summary(narrator, &outcomes)
}

/// Runs the tests of frameworks that are too large for every run.
fn extras(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    if args.len() > 1 {
        bail!("{EXTRAS} takes no filters");
    }
    let (python, ()) = Python::locate_extras(workspace)?
        .set_up_during(narrator, |narrator| build::build(workspace, narrator, Targets::Programs))?;
    build::install_native_modules(workspace, narrator)?;
    let outcome = narrator.step("Python tests of JAX and TensorFlow", |_| {
        let mut command = python.command();
        command.current_dir(&workspace.root).args(["-m", "pytest", "-q", "--timeout", "300", EXTRAS_TESTS]);
        listen("Python tests, extras", settings(&mut command, workspace, &python), closes_python)
    })?;
    summary(narrator, &[outcome])
}

fn summary(narrator: &mut Narrator, outcomes: &[Outcome]) -> Result<()> {
    narrator.step("Summary", |narrator| {
        for outcome in outcomes {
            let verdict = if outcome.passed { "passed" } else { "FAILED" };
            narrator.say(format!("{verdict}  {:<22} {}", outcome.runner, outcome.closing_line));
        }
        let failed: Vec<&str> =
            outcomes.iter().filter(|outcome| !outcome.passed).map(|outcome| outcome.runner).collect();
        if failed.is_empty() { Ok(()) } else { bail!("failed: {}; the reasons are above", failed.join(", ")) }
    })
}

fn rust(workspace: &Workspace, python: &Python, filters: &[String], narrator: &Narrator) -> Result<Outcome> {
    let mut command = workspace.cargo();
    if command::answers(workspace.cargo().args(["nextest", "--version"])) {
        command.args(["nextest", "run", "--no-fail-fast"]).args(SELECTION).args(filters);
    } else {
        narrator.say("cargo-nextest is not installed; `cargo install --locked cargo-nextest` makes this faster");
        command.args(["test", "--no-fail-fast", "--lib", "--bins", "--tests"]).args(SELECTION).arg("--").args(filters);
    }
    listen("Rust tests", settings(&mut command, workspace, python), closes_rust)
}

fn doc(workspace: &Workspace, python: &Python) -> Result<Outcome> {
    let mut command = workspace.cargo();
    command.args(["test", "--doc", "--no-fail-fast", "--quiet"]).args(SELECTION);
    listen("documentation examples", settings(&mut command, workspace, python), closes_rust)
}

fn pytest(workspace: &Workspace, python: &Python, folders: &[&str], wheels: &Wheels) -> Command {
    let mut command = python.command();
    command.current_dir(&workspace.root).args(["-m", "pytest", "-q", "--timeout", "300"]).args(folders);
    command.env("STOKER_WHEEL", &wheels.client).env("STOKER_ENGINE_WHEEL", &wheels.engine);
    command
}

/// One more than there are processors: tests wait for servers and for the ends of processes a third of their time.
fn python_processes() -> usize {
    thread::available_parallelism().map_or(1, |processors| processors.get() + 1).min(PYTHON_PROCESSES_MAX)
}

/// What tests may ask the environment for.
fn settings<'a>(command: &'a mut Command, workspace: &Workspace, python: &Python) -> &'a mut Command {
    python.add_to(command);
    command.env("STOKER_BIN", workspace.stoker_bin())
}

fn closes_rust(line: &str) -> bool {
    line.starts_with("test result:") || line.trim_start().starts_with("Summary [")
}

fn closes_python(line: &str) -> bool {
    (line.contains(" passed") || line.contains(" failed") || line.contains(" error")) && line.contains(" in ")
}

/// Runs a test runner and adds up what it says at its end.
fn listen(runner: &'static str, command: &mut Command, is_closing: impl Fn(&str) -> bool) -> Result<Outcome> {
    let (passed, lines) = command::run_and_listen(command)?;
    let closing: Vec<&String> = lines.iter().filter(|line| is_closing(line)).collect();
    let closing_line = match closing.as_slice() {
        [] => "no test ran".to_owned(),
        [line] => line.trim().trim_matches('=').trim().to_owned(),
        several => {
            let (passed, failed) = (count(several, "passed"), count(several, "failed"));
            format!("{passed} passed, {failed} failed, in {} programs", several.len())
        }
    };
    Ok(Outcome { runner, passed: passed && !closing.is_empty(), closing_line })
}

/// The sum of the numbers that stand before `word`.
fn count(lines: &[&String], word: &str) -> u64 {
    let before = |line: &&String| {
        let words: Vec<&str> = line.split([' ', ';', ',']).filter(|text| !text.is_empty()).collect();
        let at = words.iter().position(|text| *text == word)?;
        words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
    };
    lines.iter().filter_map(before).sum()
}
