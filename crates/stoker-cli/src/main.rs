//! The `stoker` binary.

mod allocator;

use std::process::ExitCode;

fn main() -> ExitCode {
    stoker_cli::main(std::env::args_os())
}
