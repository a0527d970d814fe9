//! The folder for the demo's files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A new folder for the demo's files. It is kept if the demo fails, so that the logs in it can be read.
pub struct WorkDir(PathBuf);

impl WorkDir {
    /// Creates the folder.
    pub fn create() -> Result<Self> {
        let dir = env::temp_dir().join(format!("stoker-demo-{}", std::process::id()));
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("could not remove {}", dir.display()))?;
        }
        fs::create_dir_all(&dir).with_context(|| format!("could not create {}", dir.display()))?;
        println!("\nThe demo's files, and its logs should it fail: {}", dir.display());
        Ok(Self(dir))
    }

    /// Returns a path inside the folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Removes the folder and everything in it.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.0).with_context(|| format!("could not remove {}", self.0.display()))
    }
}
