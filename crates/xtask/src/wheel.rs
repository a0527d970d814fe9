//! `cargo xtask wheel`: the Python packages as files that `pip install` takes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::build::absent_is_fine;
use crate::command;
use crate::narrate::Narrator;
use crate::python::Python;
use crate::workspace::Workspace;

/// The largest size of the engine's wheel in bytes: package indexes take files of up to 100 MB by default.
const ENGINE_BYTES_MAX: u64 = 95 << 20;

/// The largest size of the wheel without the engine in bytes.
const CLIENT_BYTES_MAX: u64 = 15 << 20;

/// The argument that builds with link-time optimisation, which compiles every crate once more.
const LTO: &str = "--lto";

/// The wheels of one version.
pub struct Wheels {
    /// The package `stoker`, which has no engine.
    pub client: PathBuf,
    /// The package `stoker-engine`.
    pub engine: PathBuf,
}

/// Builds the wheels and says where they are.
pub fn run(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    let profile = match args {
        [] => "release",
        [arg] if arg == LTO => "wheel",
        _ => bail!("cargo xtask wheel takes {LTO} or no argument, not {}", args.join(" ")),
    };
    let (python, ()) = Python::locate(workspace)?.set_up_during(narrator, |_| Ok(()))?;
    let Wheels { client, engine } = build(workspace, narrator, &python, profile)?;
    narrator.say(format!("install them with `pip install {} {}`", engine.display(), client.display()));
    narrator.say(format!("for clients of servers alone: `pip install {}`", client.display()));
    narrator.say("to replace wheels of the same version: `pip install --force-reinstall --no-deps …`");
    Ok(())
}

/// Builds the wheels with a profile of the workspace's manifest.
///
/// # Errors
/// A build that fails; a wheel that is too large.
pub fn build(workspace: &Workspace, narrator: &mut Narrator, python: &Python, profile: &str) -> Result<Wheels> {
    let folder = workspace.target_dir.join("wheels");
    // The folder then holds these wheels only.
    absent_is_fine(fs::remove_dir_all(&folder)).with_context(|| folder.display().to_string())?;
    let mut wheel = |title: &str, member: &str, bytes_max: u64| {
        narrator.step(title, |narrator| {
            let manifest = workspace.python_dir().join(member).join("Cargo.toml");
            // In a folder of its own, the wheel is the only file.
            let staged = folder.join(member);
            let mut maturin = workspace.cargo_of(python.program("maturin"));
            maturin.args(["build", "--locked", "--strip", "--profile", profile]);
            maturin.arg("--interpreter").arg(python.interpreter());
            maturin.arg("--out").arg(&staged).arg("--manifest-path").arg(manifest);
            command::run(&mut maturin, "see the messages of maturin and the compiler above")?;
            let built = only_file(&staged)?;
            let wheel = folder.join(built.file_name().context("a wheel has a name")?);
            fs::rename(&built, &wheel).and_then(|()| fs::remove_dir(&staged))?;
            let bytes = fs::metadata(&wheel)?.len();
            let mebibytes = bytes as f64 / f64::from(1 << 20);
            narrator.say(format!("{}: {mebibytes:.1} MiB", wheel.display()));
            ensure!(bytes <= bytes_max, "the wheel has {mebibytes:.1} MiB, more than {} MiB", bytes_max >> 20);
            Ok(wheel)
        })
    };
    Ok(Wheels {
        client: wheel("Build the wheel of the client", "native-client", CLIENT_BYTES_MAX)?,
        engine: wheel("Build the wheel of the engine", "native-engine", ENGINE_BYTES_MAX)?,
    })
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut files = fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    match (files.next().transpose()?, files.next()) {
        (Some(file), None) => Ok(file.path()),
        _ => bail!("{} does not hold exactly one wheel", folder.display()),
    }
}
