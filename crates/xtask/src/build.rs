//! The one build that all tasks share, and the set-up around it.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::Path;
use std::{fs, io};

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
    /// The `stoker` binary and the native modules of the Python packages.
    Programs,
    /// The programs and every test binary.
    ProgramsAndTests,
}

/// Builds `targets` and makes the Python side ready.
pub fn set_up(workspace: &Workspace, narrator: &mut Narrator, targets: Targets) -> Result<Python> {
    let (python, ()) =
        Python::locate(workspace)?.set_up_during(narrator, |narrator| build(workspace, narrator, targets))?;
    install_native_modules(workspace, narrator)?;
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
        narrator.say("the first time this compiles DataFusion and Lance: 25 to 45 minutes on two cores");
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

/// Copies the native modules to where `import stoker` finds them: next to the Python package, and into a copy of the
/// package `stoker_engine` beside it.
pub fn install_native_modules(workspace: &Workspace, narrator: &mut Narrator) -> Result<()> {
    narrator.step("Put the native modules into the Python packages", |narrator| {
        let (client, engine) = (workspace.python_dir().join("stoker"), workspace.python_dir().join("stoker_engine"));
        // Python would import this module, which older checkouts put there, instead of `_native.py`.
        let shadowing = client.join("_native.abi3.so");
        absent_is_fine(fs::remove_file(&shadowing)).with_context(|| shadowing.display().to_string())?;
        fs::create_dir_all(&engine).with_context(|| engine.display().to_string())?;
        let package = workspace.python_dir().join("native-engine/stoker_engine/__init__.py");
        let release = workspace.target_dir.join("release");
        let library = |name: &str| release.join(format!("{DLL_PREFIX}{name}{DLL_SUFFIX}"));
        replace(narrator, &package, &engine.join("__init__.py"))?;
        replace(narrator, &library("stoker_engine_native"), &engine.join("_native.abi3.so"))?;
        replace(narrator, &library("stoker_client_native"), &client.join("_client.abi3.so"))
    })
}

/// Replaces a file by a copy of another one.
fn replace(narrator: &Narrator, from: &Path, to: &Path) -> Result<()> {
    let staged = to.with_extension(format!("{}.tmp", std::process::id()));
    fs::copy(from, &staged).with_context(|| format!("could not copy {} to {}", from.display(), staged.display()))?;
    // A rename, so that a process that has the old module mapped keeps it.
    fs::rename(&staged, to).with_context(|| format!("could not replace {}", to.display()))?;
    narrator.say(format!("{} → {}", from.display(), to.display()));
    Ok(())
}

/// Takes the removal of what does not exist for a success.
pub fn absent_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
