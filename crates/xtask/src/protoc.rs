//! Finds the protobuf compiler, which the builds of lance-encoding and stoker-wire need.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// Returns the value of `PROTOC` for cargo: the packaged compiler, or `None` if the variable is set already.
///
/// A compiler on the path is used only if none is packaged for this platform: Debian's package of the compiler lacks
/// the well-known types that Lance imports. The value is the same for every task, because cargo runs build scripts
/// again when it changes.
///
/// # Errors
/// No compiler is packaged for this platform, and there is none on the path.
pub fn find() -> Result<Option<PathBuf>> {
    if env::var_os("PROTOC").is_some() {
        return Ok(None);
    }
    match protoc_bin_vendored::protoc_bin_path() {
        Ok(packaged) => Ok(Some(packaged)),
        Err(_) if is_on_path() => Ok(None),
        Err(error) => Err(error).context(
            "there is no protobuf compiler: install one with its well-known types (Debian: apt-get install \
             protobuf-compiler libprotobuf-dev; macOS: brew install protobuf) or set PROTOC",
        ),
    }
}

fn is_on_path() -> bool {
    let probe = Command::new("protoc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}
