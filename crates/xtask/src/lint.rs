//! `cargo xtask lint`: all checks that do not run the code.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::build::SELECTION;
use crate::narrate::Narrator;
use crate::python::Python;
use crate::workspace::Workspace;
use crate::{clippy_wrapper, command};

/// The folders with Python sources; those that exist are checked.
const PYTHON_SOURCES: [&str; 4] = ["clients/python", "tests/python", "crates/xtask/scripts", "crates/stoker-bench/src"];

/// The folders whose shell scripts are checked, `.ci/run` included.
const SHELL_FOLDERS: [&str; 2] = [".ci", "docker"];

/// The argument that asks only for checks that take seconds.
const QUICK: &str = "--quick";

/// Runs every check, even after one has failed; fails if any check has failed.
///
/// With `--quick`, leaves out clippy, which compiles, and the types of the Python packages.
pub fn run(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    if let Some(unknown) = args.iter().find(|arg| *arg != QUICK) {
        bail!("lint takes {QUICK} only, not {unknown:?}");
    }
    let is_quick = !args.is_empty();
    let (python, mut failed) = Python::locate(workspace)?.set_up_during(narrator, |narrator| {
        let mut failed = Vec::new();
        check(narrator, &mut failed, "Rust formatting", |_| formatting(workspace));
        if !is_quick {
            check(narrator, &mut failed, "Clippy on the workspace", |narrator| clippy(workspace, narrator));
        }
        Ok(failed)
    })?;
    check(narrator, &mut failed, "Licences of dependencies", |narrator| licences(workspace, &python, narrator));
    check(narrator, &mut failed, "Python: ruff", |_| ruff(workspace, &python));
    if !is_quick {
        check(narrator, &mut failed, "Python: types", |_| types(workspace, &python));
    }
    check(narrator, &mut failed, "Shell scripts", |_| shell(workspace, &python));
    check(narrator, &mut failed, "Image and compose file", |narrator| images(workspace, &python, narrator));
    narrator.step("Summary", |narrator| {
        if failed.is_empty() {
            narrator.say("all checks passed");
            return Ok(());
        }
        bail!("{} failed; the reasons are above", failed.join(", "))
    })
}

fn check(
    narrator: &mut Narrator,
    failed: &mut Vec<&'static str>,
    title: &'static str,
    work: impl FnOnce(&mut Narrator) -> Result<()>,
) {
    if let Err(error) = narrator.step(title, work) {
        println!("          {error:#}");
        failed.push(title);
    }
}

fn formatting(workspace: &Workspace) -> Result<()> {
    command::run(workspace.cargo().args(["fmt", "--all", "--", "--check"]), "run `cargo fmt --all`")
}

fn clippy(workspace: &Workspace, narrator: &Narrator) -> Result<()> {
    narrator.say("with the dependencies of the release build, which are compiled first where they are missing");
    let driver = driver(workspace)?;
    let mut members = workspace.cargo();
    members.arg("build").args(SELECTION).args(["--all-targets", "--keep-going"]);
    let mut tasks = workspace.cargo();
    tasks.args(["build", "--package", "xtask", "--all-targets"]);
    let mut is_clean = true;
    for command in [&mut members, &mut tasks] {
        clippy_wrapper::request(command, &driver)?;
        let (succeeded, lines) = command::run_and_listen(command)?;
        // Warnings are counted here, because denied warnings would make cargo skip the crates that depend on the crate
        // with warnings.
        is_clean &= succeeded && !lines.iter().any(|line| line.starts_with("warning: "));
    }
    if is_clean {
        Ok(())
    } else {
        bail!("fix the warnings above, or explain one with `#[expect(…, reason = \"…\")]`")
    }
}

/// Returns the path of clippy's driver, which is next to rustc.
fn driver(workspace: &Workspace) -> Result<PathBuf> {
    let advice = "clippy is not installed: `rustup component add clippy`";
    let sysroot = command::output(Command::new("rustc").current_dir(&workspace.root).args(["--print", "sysroot"]))?;
    let driver = Path::new(sysroot.trim()).join("bin/clippy-driver");
    if driver.exists() {
        return Ok(driver);
    }
    if command::answers(Command::new("clippy-driver").arg("--version")) {
        return Ok(PathBuf::from("clippy-driver"));
    }
    bail!(advice)
}

fn licences(workspace: &Workspace, python: &Python, narrator: &Narrator) -> Result<()> {
    if command::answers(workspace.cargo().args(["deny", "--version"])) {
        let advice = "change the dependency, or allow its licence in deny.toml and say why in the commit";
        return command::run(workspace.cargo().args(["deny", "check", "licenses", "bans", "sources"]), advice);
    }
    narrator.say("cargo-deny is not installed; checking the licences with our own script");
    let mut metadata = workspace.cargo();
    let metadata = metadata.args(["metadata", "--format-version", "1"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut metadata = metadata.spawn().context("could not start `cargo metadata`")?;
    let pipe = metadata.stdout.take().context("`cargo metadata` has a standard output")?;
    let mut script = python.command();
    script.arg(workspace.root.join("crates/xtask/scripts/check_licences.py")).arg(workspace.root.join("deny.toml"));
    let verdict = script.stdin(pipe).status().context("could not start Python")?;
    if !metadata.wait()?.success() {
        bail!("`cargo metadata` failed; its message is above");
    }
    if verdict.success() { Ok(()) } else { bail!("change the dependency, or allow its licence in deny.toml") }
}

fn ruff(workspace: &Workspace, python: &Python) -> Result<()> {
    let sources: Vec<&str> = PYTHON_SOURCES.into_iter().filter(|dir| workspace.root.join(dir).is_dir()).collect();
    let ruff = |args: &[&str], advice: &str| {
        let mut command = Command::new(python.program("ruff"));
        command.current_dir(&workspace.root).args(args).args(["--config", "clients/python/pyproject.toml"]);
        command::run(command.args(&sources), advice)
    };
    let checked = ruff(&["check", "--quiet"], "fix the findings above; `ruff check --fix` mends many");
    checked.and(ruff(&["format", "--check", "--quiet"], "run `ruff format` on the files above"))
}

fn types(workspace: &Workspace, python: &Python) -> Result<()> {
    let mut mypy = python.command();
    mypy.current_dir(workspace.python_dir()).args(["-m", "mypy", "--no-color-output", "--ignore-missing-imports"]);
    command::run(mypy.args(["stoker", "native-engine/stoker_engine", "examples"]), "fix the types above")
}

fn shell(workspace: &Workspace, python: &Python) -> Result<()> {
    for script in shell_scripts(workspace)? {
        command::run(Command::new("bash").arg("-n").arg(&script), "the script does not parse")?;
        command::run(Command::new(python.program("shellcheck")).arg(&script), "fix the findings above")?;
    }
    Ok(())
}

fn shell_scripts(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let mut scripts = Vec::new();
    for folder in SHELL_FOLDERS {
        let folder = workspace.root.join(folder);
        let entries = folder.read_dir().with_context(|| format!("could not list {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name == "run") || path.extension().is_some_and(|end| end == "sh") {
                scripts.push(path);
            }
        }
    }
    scripts.sort();
    Ok(scripts)
}

fn images(workspace: &Workspace, python: &Python, narrator: &Narrator) -> Result<()> {
    let docker = workspace.root.join("docker");
    let mut hadolint = Command::new(python.program("hadolint"));
    hadolint.arg("--config").arg(docker.join("hadolint.yaml")).arg(docker.join("Dockerfile"));
    command::run(&mut hadolint, "fix the findings above")?;
    let mut script = python.command();
    script.arg(workspace.root.join("crates/xtask/scripts/check_images.py")).arg(&docker);
    command::run(&mut script, "fix the findings above")?;
    if !command::answers(Command::new("docker").args(["compose", "version"])) {
        narrator.say("docker compose is not installed; the compose file was checked by our own script only");
        return Ok(());
    }
    let mut compose = Command::new("docker");
    command::run(
        compose.args(["compose", "--file"]).arg(docker.join("compose.yaml")).args(["config", "--quiet"]),
        "see above",
    )
}
