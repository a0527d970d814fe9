//! A wrapper around rustc for `cargo build` (`RUSTC_WORKSPACE_WRAPPER`) that runs clippy on the workspace's own crates
//! and compiles nothing.
//!
//! `cargo clippy` would check every dependency again, although the release build has compiled all of them. With a
//! workspace wrapper, `cargo build` uses the compiled dependencies, and passes only the workspace's own crates to the
//! wrapper. Clippy's driver would then compile and link these a second time. This wrapper makes it stop after the
//! checks, because it requests metadata instead of objects. Later crates find the metadata where they would look for
//! the objects.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// `cargo xtask lint` sets this variable to the path of clippy's driver.
const DRIVER: &str = "STOKER_CLIPPY_DRIVER";

/// Whether cargo has started this program instead of rustc.
pub fn is_requested() -> bool {
    let rustc = env::args_os().nth(1).map(PathBuf::from);
    env::var_os(DRIVER).is_some() && rustc.is_some_and(|path| path.file_stem().is_some_and(|stem| stem == "rustc"))
}

/// Makes a `cargo build` command check with clippy.
pub fn request(command: &mut Command, driver: &Path) -> std::io::Result<()> {
    command.env(DRIVER, driver).env("RUSTC_WORKSPACE_WRAPPER", env::current_exe()?);
    Ok(())
}

/// Runs clippy's driver with the arguments that cargo meant for rustc.
pub fn run() -> ExitCode {
    let driver = env::var_os(DRIVER).unwrap_or_else(|| "clippy-driver".into());
    let args: Vec<String> = env::args().skip(1).collect();
    match Command::new(&driver).args(checks_only(args)).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            println!("could not start {}: {error}", driver.to_string_lossy());
            ExitCode::FAILURE
        }
    }
}

/// Replaces objects by metadata in the arguments. The arguments for build scripts, and of cargo's queries to rustc, do
/// not change.
fn checks_only(args: Vec<String>) -> Vec<String> {
    let crate_name = args.iter().position(|arg| arg == "--crate-name").and_then(|at| args.get(at + 1));
    let is_compilation = args.iter().any(|arg| arg.starts_with("--emit="));
    if !is_compilation || crate_name.is_some_and(|name| name.starts_with("build_script_")) {
        return args;
    }
    args.into_iter().map(|arg| if arg.starts_with("--emit=") { emit(&arg) } else { metadata_of(arg) }).collect()
}

fn emit(arg: &str) -> String {
    let dep_info = if arg.contains("dep-info") { "dep-info," } else { "" };
    format!("--emit={dep_info}metadata")
}

/// Changes `name=…/libname-hash.rlib` to `….rmeta` if only the latter exists.
fn metadata_of(arg: String) -> String {
    let Some((name, path)) = arg.split_once('=') else {
        return arg;
    };
    let metadata = Path::new(path).with_extension("rmeta");
    let is_unbuilt = path.ends_with(".rlib") && !Path::new(path).exists() && metadata.exists();
    if is_unbuilt { format!("{name}={}", metadata.display()) } else { arg }
}
