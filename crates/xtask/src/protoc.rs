//! The protobuf compiler, which lance-encoding and stoker-flight need to build.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// The value of `PROTOC` for cargo: none when `protoc` is on the path or the variable is set already.
///
/// # Errors
/// When there is no `protoc` on this machine and none is packaged for its platform.
pub fn find() -> Result<Option<PathBuf>> {
    if env::var_os("PROTOC").is_some() || is_on_path() {
        return Ok(None);
    }
    let packaged = protoc_bin_vendored::protoc_bin_path().context(
        "there is no protobuf compiler: install one (Debian: apt-get install protobuf-compiler; \
         macOS: brew install protobuf) or set PROTOC",
    )?;
    Ok(Some(packaged))
}

fn is_on_path() -> bool {
    let probe = Command::new("protoc")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|status| status.success())
}
