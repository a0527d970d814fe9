//! Standard output, whose reader may exit first, as in `stoker sql … | head`.

use std::io::{Error, ErrorKind, Result, StdoutLock, Write};

/// The exit status that shells report for a program that SIGPIPE terminated: 128 + 13.
const READER_GONE: i32 = 141;

/// Standard output, locked for this command.
pub struct Output(StdoutLock<'static>);

/// Locks standard output. If its reader has exited, the next write exits the process without a message, as other Unix
/// tools do.
pub fn output() -> Output {
    Output(std::io::stdout().lock())
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.write(bytes).map_err(end_without_reader)
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(end_without_reader)
    }
}

fn end_without_reader(error: Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => std::process::exit(READER_GONE),
        _ => error,
    }
}
