//! The protobuf compiler, which lance-encoding and stoker-flight need to build.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// The value of `PROTOC` for cargo: the packaged compiler, unless the variable is set already.
///
/// One on the path is not used where one is packaged: Debian's comes without the well-known types that Lance imports. The
/// value is the same for every task, because build scripts run again when it changes.
///
/// # Errors
/// When none is packaged for this platform and there is none on the path.
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
