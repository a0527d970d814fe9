//! `cargo xtask bench`: the measured rates of this machine, beside their ceilings and beside other libraries.

use std::process::Command;

use anyhow::Result;

use crate::build::{self, Targets};
use crate::command;
use crate::narrate::Narrator;
use crate::python::{self, Python};
use crate::workspace::Workspace;

/// The parts that are not one of `stoker bench`: other libraries, first epochs of Python processes, SQL and search,
/// decoding of media, tokens, and batches of other frameworks.
const PEERS: &str = "peers";
const PYTHON: &str = "python";
const SQL: &str = "sql";
const MEDIA: &str = "media";
const TOKENS: &str = "tokens";
const FRAMEWORKS: &str = "frameworks";

/// The part of `stoker bench` that measures no rate, but how orders mix, and that runs only if it is named.
const ORDER: &str = "order";

/// The arguments for the other libraries where all parts are measured: first epochs of whole tables, without worker
/// processes.
const PEERS_FIRST_EPOCHS: [&str; 4] =
    ["--workers", "0", "--paths", "local-sequential,local-shuffled,s3-sequential,s3-shuffled"];

/// Arguments that ask for the others.
const HELP: [&str; 2] = ["--help", "-h"];

/// Parts of `stoker bench`, named by its first argument, that need no Python.
const WITHOUT_PYTHON: [&str; 10] =
    ["local", "s3", "select", "ranks", "decode", "order", "scale", "help", "--help", "-h"];

/// Builds and measures: `peers`, `python`, `sql`, `media`, `tokens` or `frameworks` with the arguments after it, or
/// `stoker bench` with the arguments as they are. Without arguments, one after the other, of the other libraries only
/// the first epochs.
pub fn run(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    match args.split_first() {
        Some((part, args)) if part == PEERS => peers(workspace, narrator, args),
        Some((part, args)) if part == PYTHON => first_epochs(workspace, narrator, args),
        Some((part, args)) if part == SQL => queries(workspace, narrator, args),
        Some((part, args)) if part == MEDIA => media(workspace, narrator, args),
        Some((part, args)) if part == TOKENS => tokens(workspace, narrator, args),
        Some((part, args)) if part == FRAMEWORKS => frameworks(workspace, narrator, args),
        Some(_) => ceilings(workspace, narrator, args),
        None => {
            narrator.say("Measures for an hour or so; `cargo xtask bench --help` lists shorter parts");
            first_epochs(workspace, narrator, args)?;
            ceilings(workspace, narrator, args)?;
            ceilings(workspace, narrator, &[ORDER.to_owned()])?;
            media(workspace, narrator, args)?;
            tokens(workspace, narrator, args)?;
            peers(workspace, narrator, &PEERS_FIRST_EPOCHS.map(str::to_owned))?;
            queries(workspace, narrator, args)?;
            frameworks(workspace, narrator, args)
        }
    }
}

/// Stoker beside its ceilings, with the pyarrow of the environment for tests.
fn ceilings(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    let mut bench = Command::new(workspace.stoker_bin());
    bench.arg("bench").args(args);
    if args.first().is_some_and(|part| WITHOUT_PYTHON.contains(&part.as_str())) {
        build::build(workspace, narrator, Targets::Programs)?;
    } else {
        let python = Python::locate(workspace)?;
        let (python, ()) =
            python.set_up_during(narrator, |narrator| build::build(workspace, narrator, Targets::Programs))?;
        python.add_to(&mut bench);
    }
    narrator.step("Measure", |_| {
        command::run(&mut bench, "see its message above; `cargo xtask bench --help` lists the arguments")
    })
}

/// The first epochs of fresh Python processes beside their ceilings, in the environment for tests.
fn first_epochs(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    script(workspace, narrator, Python::locate, ("bench_python.py", "Measure first epochs of Python processes"), args)
}

/// Decoding of media, and compressed tensors from limited storage, beside libraries and ceilings, in the environment
/// for tests.
fn media(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    script(workspace, narrator, Python::locate, ("bench_media.py", "Measure decoding of media"), args)
}

/// Rows of different lengths, packs and weights beside rows of one length, in the environment for tests.
fn tokens(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    script(workspace, narrator, Python::locate, ("bench_tokens.py", "Measure tokens"), args)
}

/// Batches of JAX and TensorFlow beside those of NumPy, in the environment of these frameworks.
fn frameworks(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    let step = ("bench_frameworks.py", "Measure batches of JAX and TensorFlow");
    script(workspace, narrator, Python::locate_extras, step, args)
}

/// SQL and search beside other engines, in the environment of the other libraries.
fn queries(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    script(workspace, narrator, Python::locate_peers, ("bench_sql.py", "Measure SQL and search"), args)
}

/// Stoker beside other libraries, in an environment of their own.
fn peers(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    script(workspace, narrator, Python::locate_peers, ("bench_peers.py", "Measure other libraries"), args)
}

/// Runs a program of the folder of Python benchmarks. The list of its arguments needs only a Python.
fn script(
    workspace: &Workspace,
    narrator: &mut Narrator,
    locate: fn(&Workspace) -> Result<Python>,
    (name, step): (&str, &str),
    args: &[String],
) -> Result<()> {
    let script = workspace.python_dir().join("bench").join(name);
    if args.iter().any(|arg| HELP.contains(&arg.as_str())) {
        return command::run(python::base()?.arg(script).args(args), "see its message above");
    }
    let (python, ()) =
        locate(workspace)?.set_up_during(narrator, |narrator| build::build(workspace, narrator, Targets::Programs))?;
    build::install_native_modules(workspace, narrator)?;
    let mut bench = python.command();
    bench.arg(script).arg("--stoker").arg(workspace.stoker_bin()).args(args);
    narrator.step(step, |_| command::run(&mut bench, "see its message above; `--help` lists the arguments"))
}
