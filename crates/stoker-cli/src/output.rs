//! Standard output, whose reader may go away: `stoker sql … | head`.

use std::io::{Error, ErrorKind, Result, StdoutLock, Write};

/// The exit status that shells show for programs which the signal SIGPIPE ended: 128 + 13.
const READER_GONE: i32 = 141;

/// Standard output, held for this command.
pub struct Output(StdoutLock<'static>);

/// Standard output. When its reader is gone, the next write ends the process without a word, as it does other Unix tools.
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
