//! Where things are: the checkout, the build's output, the caches.

use std::env;
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
    /// Finds the checkout that this task was started from.
    pub fn locate() -> Result<Self> {
        // Cargo sets the variable when it runs a task; two checkouts may share a target folder, and then the path that
        // was compiled in may be the other one's.
        let manifest_dir =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir.ancestors().nth(2).context("crates/xtask lies two folders below the root")?.to_owned();
        let target_dir = match env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => env::current_dir()?.join(dir),
            None => root.join("target"),
        };
        Ok(Self { root, target_dir, protoc: protoc::find()? })
    }

    /// A `cargo` command in this checkout, with the settings that every build of it needs.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target_dir);
        // What cargo told this task about its own package would look to build scripts (ring's, for one) like a change of
        // their environment, and half of the dependencies would be built again.
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

    /// The `stoker` program of the release build.
    pub fn stoker_bin(&self) -> PathBuf {
        self.target_dir.join("release").join(format!("stoker{}", env::consts::EXE_SUFFIX))
    }

    /// The Python package's folder.
    pub fn python_dir(&self) -> PathBuf {
        self.root.join("clients/python")
    }

    /// A folder for things that outlive a task and can be made again: `~/.cache/stoker` or `$XDG_CACHE_HOME/stoker`.
    pub fn cache_dir() -> Result<PathBuf> {
        let base = match env::var_os("XDG_CACHE_HOME").filter(|dir| Path::new(dir).is_absolute()) {
            Some(dir) => PathBuf::from(dir),
            None => {
                PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
            }
        };
        Ok(base.join("stoker"))
    }

    /// What the protobuf compiler is, for people.
    pub fn protoc_name(&self) -> String {
        match &self.protoc {
            Some(path) => path.display().to_string(),
            None => "protoc on PATH".to_owned(),
        }
    }
}
