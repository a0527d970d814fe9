//! `cargo xtask wheel`: the Python package as one file that `pip install` takes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::command;
use crate::narrate::Narrator;
use crate::python::Python;
use crate::workspace::Workspace;

/// The largest size of a wheel in bytes: package indexes take files of up to 100 MB by default.
const BYTES_MAX: u64 = 95 << 20;

/// The argument that builds with link-time optimisation, which compiles every crate once more.
const LTO: &str = "--lto";

/// Builds the wheel and says where it is.
pub fn run(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    let profile = match args {
        [] => "release",
        [arg] if arg == LTO => "wheel",
        _ => bail!("cargo xtask wheel takes {LTO} or no argument, not {}", args.join(" ")),
    };
    let (python, ()) = Python::locate(workspace)?.set_up_during(narrator, |_| Ok(()))?;
    let wheel = build(workspace, narrator, &python, profile)?;
    narrator.say(format!("install it with `pip install {}`", wheel.display()));
    Ok(())
}

/// Builds the wheel with a profile of the workspace's manifest, and returns its path.
///
/// # Errors
/// A build that fails; a wheel of more than 95 MiB.
pub fn build(workspace: &Workspace, narrator: &mut Narrator, python: &Python, profile: &str) -> Result<PathBuf> {
    narrator.step("Build the wheel", |narrator| {
        let folder = workspace.target_dir.join("wheels");
        // The folder then holds this wheel only.
        fs::remove_dir_all(&folder).or_else(absent_is_fine)?;
        let mut maturin = workspace.cargo_of(python.program("maturin"));
        maturin.args(["build", "--locked", "--strip", "--profile", profile, "--interpreter"]).arg(python.interpreter());
        maturin.arg("--out").arg(&folder).arg("--manifest-path").arg(workspace.python_dir().join("Cargo.toml"));
        command::run(&mut maturin, "see the messages of maturin and the compiler above")?;
        let wheel = only_file(&folder)?;
        let bytes = fs::metadata(&wheel)?.len();
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        narrator.say(format!("{}: {mebibytes:.1} MiB", wheel.display()));
        ensure!(bytes <= BYTES_MAX, "the wheel has {mebibytes:.1} MiB, more than {} MiB", BYTES_MAX >> 20);
        Ok(wheel)
    })
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut files = fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    match (files.next().transpose()?, files.next()) {
        (Some(file), None) => Ok(file.path()),
        _ => bail!("{} does not hold exactly one wheel", folder.display()),
    }
}

fn absent_is_fine(error: std::io::Error) -> std::io::Result<()> {
    match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
