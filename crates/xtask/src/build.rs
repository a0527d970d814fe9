//! The one build that all tasks share, and the set-up around it.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;

use anyhow::{Context, Result};

use crate::command;
use crate::narrate::Narrator;
use crate::python::Python;
use crate::workspace::Workspace;

/// The packages and targets of the one build; tests run with the same ones, so that nothing is compiled twice.
pub const SELECTION: [&str; 4] = ["--release", "--workspace", "--exclude", "xtask"];

/// What a task needs of the workspace.
///
/// Both are built with the same features, so that tests reuse every object file of the programs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Targets {
    /// The `stoker` binary and the native module of the Python package.
    Programs,
    /// The programs and every test binary.
    ProgramsAndTests,
}

/// Builds `targets` and makes the Python side ready.
pub fn set_up(workspace: &Workspace, narrator: &mut Narrator, targets: Targets) -> Result<Python> {
    let (python, ()) =
        Python::locate(workspace)?.set_up_during(narrator, |narrator| build(workspace, narrator, targets))?;
    install_native_module(workspace, narrator)?;
    Ok(python)
}

/// Builds `targets` in the release profile.
pub fn build(workspace: &Workspace, narrator: &mut Narrator, targets: Targets) -> Result<()> {
    narrator.step("Build the workspace (release)", |narrator| {
        narrator.say(format!(
            "into {}, protobuf compiler: {}",
            workspace.target_dir.display(),
            workspace.protoc_name()
        ));
        narrator.say("the first time this compiles DataFusion and Lance: about 40 minutes on two cores");
        let mut cargo = workspace.cargo();
        cargo.arg("build").args(SELECTION);
        if targets == Targets::ProgramsAndTests {
            cargo.arg("--all-targets");
        }
        command::run(
            &mut cargo,
            "see the compiler's messages above; a missing C compiler or linker is installed with \
             `apt-get install build-essential` (macOS: `xcode-select --install`)",
        )
    })
}

/// Copies the native module next to the Python package, where `import stoker` finds it.
pub fn install_native_module(workspace: &Workspace, narrator: &mut Narrator) -> Result<()> {
    narrator.step("Put the native module into the Python package", |narrator| {
        let built = workspace.target_dir.join("release").join(format!("{DLL_PREFIX}stoker_native{DLL_SUFFIX}"));
        let package = workspace.python_dir().join("stoker");
        let module = package.join("_native.abi3.so");
        let staged = package.join(format!("_native.{}.tmp", std::process::id()));
        fs::copy(&built, &staged)
            .with_context(|| format!("could not copy {} into {}", built.display(), package.display()))?;
        // A rename, so that a process that has the old module mapped keeps it.
        fs::rename(&staged, &module).with_context(|| format!("could not replace {}", module.display()))?;
        narrator.say(format!("{} → {}", built.display(), module.display()));
        Ok(())
    })
}
