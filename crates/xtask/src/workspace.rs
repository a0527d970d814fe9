//! The paths of a checkout: its root, the build's output, the caches.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::protoc;

/// Prefixes of the variables that `cargo run` sets for the program that it runs.
const INHERITED: [&str; 5] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"];

/// The checkout and the folders that tasks use.
pub struct Workspace {
    /// The folder with the workspace's `Cargo.toml`.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target_dir: PathBuf,
    protoc: Option<PathBuf>,
}

impl Workspace {
    /// Finds the checkout from which this task was started.
    pub fn locate() -> Result<Self> {
        // Cargo sets the variable when it runs a task. The path that was compiled in is only a fallback: if two
        // checkouts share a target folder, it may be the path of the other checkout.
        let manifest_dir =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir.ancestors().nth(2).context("crates/xtask lies two folders below the root")?.to_owned();
        let target_dir = match env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => env::current_dir()?.join(dir),
            None => root.join("target"),
        };
        Ok(Self { root, target_dir, protoc: protoc::find()? })
    }

    /// Returns a `cargo` command in this checkout, with the settings that all of its builds need.
    pub fn cargo(&self) -> Command {
        self.cargo_of(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
    }

    /// Returns a command for a program that runs `cargo`, with the same settings.
    pub fn cargo_of(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target_dir);
        // Build scripts (ring's, for one) would take the variables that cargo set about this task's package for a
        // change of their environment, and cargo would rebuild half of the dependencies.
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            if INHERITED.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&*name);
            }
        }
        if let Some(protoc) = &self.protoc {
            command.env("PROTOC", protoc);
        }
        command
    }

    /// Returns the path of the `stoker` program of the release build.
    pub fn stoker_bin(&self) -> PathBuf {
        self.target_dir.join("release").join(format!("stoker{}", env::consts::EXE_SUFFIX))
    }

    /// Returns the Python package's folder.
    pub fn python_dir(&self) -> PathBuf {
        self.root.join("clients/python")
    }

    /// Returns the folder for files that outlive a task and can be recreated: `$XDG_CACHE_HOME/stoker` or
    /// `~/.cache/stoker`.
    pub fn cache_dir() -> Result<PathBuf> {
        let base = match env::var_os("XDG_CACHE_HOME").filter(|dir| Path::new(dir).is_absolute()) {
            Some(dir) => PathBuf::from(dir),
            None => {
                PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
            }
        };
        Ok(base.join("stoker"))
    }

    /// Describes the protobuf compiler for people.
    pub fn protoc_name(&self) -> String {
        match &self.protoc {
            Some(path) => path.display().to_string(),
            None => "protoc on PATH".to_owned(),
        }
    }
}
