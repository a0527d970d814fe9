//! `cargo xtask bench`: the measured rates of this machine.

use std::process::Command;

use anyhow::Result;

use crate::build;
use crate::command;
use crate::narrate::Narrator;
use crate::workspace::Workspace;

/// Builds, then runs `stoker bench` with the arguments as they are.
pub fn run(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    build::build(workspace, narrator)?;
    narrator.step("Measure", |_| {
        command::run(
            Command::new(workspace.stoker_bin()).arg("bench").args(args),
            "see its message above; `cargo xtask bench --help` lists the arguments",
        )
    })
}
