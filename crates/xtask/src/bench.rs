//! `cargo xtask bench`: the measured rates of this machine.

use std::process::Command;

use anyhow::Result;

use crate::build;
use crate::command;
use crate::narrate::Narrator;
use crate::python::Python;
use crate::workspace::Workspace;

/// Parts of `stoker bench`, named by its first argument, that need no Python.
const WITHOUT_PYTHON: [&str; 8] = ["local", "s3", "select", "order", "scale", "help", "--help", "-h"];

/// Builds, then runs `stoker bench` with the arguments as they are and with the Python environment's pyarrow.
pub fn run(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    let mut bench = Command::new(workspace.stoker_bin());
    bench.arg("bench").args(args);
    if args.first().is_some_and(|part| WITHOUT_PYTHON.contains(&part.as_str())) {
        build::build(workspace, narrator)?;
    } else {
        let (python, ()) = Python::set_up_during(workspace, narrator, |narrator| build::build(workspace, narrator))?;
        python.add_to(&mut bench);
    }
    narrator.step("Measure", |_| {
        command::run(&mut bench, "see its message above; `cargo xtask bench --help` lists the arguments")
    })
}
