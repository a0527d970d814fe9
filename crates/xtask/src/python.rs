//! Python virtual environments: one for tests, lints and the demo, one with the libraries that Stoker is compared with,
//! and one with the frameworks that are too large for every run of the tests.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, bail};

use crate::command;
use crate::narrate::Narrator;
use crate::workspace::Workspace;

/// The interpreters that are tried as the base of the environments, the first choice first.
const CANDIDATES: [&str; 6] = ["python3", "python3.13", "python3.12", "python3.11", "python3.10", "python"];

/// The minor versions of Python 3 for which every pinned package has a wheel.
const SUPPORTED: std::ops::RangeInclusive<u32> = 10..=13;

/// The oldest Python that the frameworks of `cargo xtask test --extras` have wheels for.
const EXTRAS_MIN: (u32, u32) = (3, 11);

/// A virtual environment with the packages of a requirements file.
pub struct Python {
    venv: PathBuf,
    requirements: PathBuf,
    package_dir: PathBuf,
}

impl Python {
    /// Returns the environment of `clients/python/requirements-dev.txt`, which may not exist yet.
    pub fn locate(workspace: &Workspace) -> Result<Self> {
        let venv = match env::var_os("STOKER_VENV") {
            Some(dir) => env::current_dir()?.join(dir),
            None => Workspace::cache_dir()?.join("venv"),
        };
        let package_dir = workspace.python_dir();
        Ok(Self { venv, requirements: package_dir.join("requirements-dev.txt"), package_dir })
    }

    /// Returns the environment with the libraries that Stoker is compared with, which may not exist yet.
    pub fn locate_peers(workspace: &Workspace) -> Result<Self> {
        let package_dir = workspace.python_dir();
        let requirements = package_dir.join("bench").join("requirements-peers.txt");
        Ok(Self { venv: Workspace::cache_dir()?.join("peers"), requirements, package_dir })
    }

    /// Returns the environment with the frameworks of `cargo xtask test --extras`, which may not exist yet.
    pub fn locate_extras(workspace: &Workspace) -> Result<Self> {
        let base = find_base()?;
        if version(&base)? < EXTRAS_MIN {
            bail!(
                "JAX needs Python 3.{}, and {} is older: name a newer one in STOKER_PYTHON_BASE",
                EXTRAS_MIN.1,
                base.display()
            );
        }
        let package_dir = workspace.python_dir();
        let requirements = package_dir.join("tests_extras").join("requirements-extras.txt");
        Ok(Self { venv: Workspace::cache_dir()?.join("extras"), requirements, package_dir })
    }

    /// Creates or updates the environment while `work` runs.
    pub fn set_up_during<T>(
        self,
        narrator: &mut Narrator,
        work: impl FnOnce(&mut Narrator) -> Result<T>,
    ) -> Result<(Self, T)> {
        let (ready, done) = thread::scope(|scope| {
            let setter = scope.spawn(|| self.make_current());
            let done = work(narrator);
            (narrator.step("Python virtual environment", |_| joined(setter)), done)
        });
        let (verdict, done) = (ready?, done?);
        narrator.say(verdict);
        Ok((self, done))
    }

    /// Returns the path of the environment's interpreter.
    pub fn interpreter(&self) -> PathBuf {
        self.program("python")
    }

    /// Returns the path of a program that a package installed into the environment, such as `ruff`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.venv.join("bin").join(name)
    }

    /// Returns a command that runs the interpreter with the `stoker` package of this checkout.
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.interpreter());
        self.add_to(&mut command);
        command
    }

    /// Sets the variables with which a command finds the environment's interpreter and the `stoker` package of this
    /// checkout.
    pub fn add_to(&self, command: &mut Command) {
        command
            .env("PYTHONPATH", &self.package_dir)
            .env("PYTHONUNBUFFERED", "1")
            .env("STOKER_PYTHON", self.interpreter())
            .env_remove("PYTHONHOME");
    }

    /// Installs what the requirements file lists, unless it is installed; returns a message about the outcome.
    fn make_current(&self) -> Result<String> {
        let list = &self.requirements;
        let wanted = fs::read_to_string(list).with_context(|| format!("could not read {}", list.display()))?;
        // Two tasks may start together; the lock makes the second one wait until the first has installed everything.
        let _lock = self.lock()?;
        let stamp = self.venv.join("stoker-requirements.txt");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) && version(&self.interpreter()).is_ok() {
            return Ok(format!("{} is up to date", self.venv.display()));
        }
        if version(&self.interpreter()).is_err() {
            self.create()?;
        }
        self.install(list)?;
        fs::write(&stamp, wanted).with_context(|| format!("could not write {}", stamp.display()))?;
        Ok(format!("{} has what {} lists", self.venv.display(), list.display()))
    }

    fn lock(&self) -> Result<File> {
        let path = self.venv.with_extension("lock");
        let opened = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| File::create(&path));
        let file = opened.with_context(|| format!("could not create {}", path.display()))?;
        file.lock().with_context(|| format!("could not lock {}", path.display()))?;
        Ok(file)
    }

    fn create(&self) -> Result<()> {
        let base = find_base()?;
        command::run(
            Command::new(base).args(["-m", "venv", "--clear"]).arg(&self.venv),
            "Python's venv module is missing or incomplete; on Debian and Ubuntu `apt-get install python3-venv` brings it",
        )
    }

    fn install(&self, list: &Path) -> Result<()> {
        let has_torch = fs::read_to_string(list).is_ok_and(|list| list.lines().any(|line| line.starts_with("torch=")));
        if has_torch && cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            println!(
                "          PyTorch's wheel for Linux brings the CUDA libraries: about 3 GB, once; it runs on the CPU"
            );
        }
        let pip = ["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "--quiet"];
        command::run(
            self.command().args(pip).args(["--no-compile", "--prefer-binary", "-r"]).arg(list),
            "pip must reach a package index (see `pip config list`) and needs about 8 GB of disk",
        )
    }
}

/// Returns a command that runs the interpreter from which environments are created. It has none of their packages.
pub fn base() -> Result<Command> {
    Ok(Command::new(find_base()?))
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| bail!("the thread that made the virtual environment panicked"))
}

/// Returns the interpreter from which to create the environment.
fn find_base() -> Result<PathBuf> {
    let chosen = env::var_os("STOKER_PYTHON_BASE");
    let candidates: Vec<&OsStr> = match &chosen {
        Some(path) => vec![path.as_os_str()],
        None => CANDIDATES.iter().map(OsStr::new).collect(),
    };
    let mut refused = Vec::new();
    for candidate in candidates {
        match version(Path::new(candidate)) {
            Ok((3, minor)) if SUPPORTED.contains(&minor) => return Ok(PathBuf::from(candidate)),
            Ok((major, minor)) => refused.push(format!("{} is {major}.{minor}", candidate.to_string_lossy())),
            Err(_) => {}
        }
    }
    bail!(
        "Python 3.{} to 3.{} is needed and was not found ({}): install it (Debian: apt-get install python3 python3-venv) \
         or name it in STOKER_PYTHON_BASE",
        SUPPORTED.start(),
        SUPPORTED.end(),
        if refused.is_empty() { "no Python on PATH".to_owned() } else { refused.join(", ") }
    )
}

fn version(interpreter: &Path) -> Result<(u32, u32)> {
    let text = command::output(Command::new(interpreter).args(["-c", "import sys; print(*sys.version_info[:2])"]))?;
    let (major, minor) = text.trim().split_once(' ').context("an interpreter prints its version")?;
    Ok((major.parse()?, minor.parse()?))
}
