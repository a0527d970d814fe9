//! Standard input, as a file that is read once.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use stoker_formats::FileBytes;

/// The name of the file, whose ending is that of streams of Arrow IPC.
pub(crate) const NAME: &str = "stdin.arrows";

/// How often the file can be opened: for the columns, and for the rows. Bytes that the first reader read are kept for the
/// second.
const OPENS_MAX: u32 = 2;

/// The bytes that are read at once at least.
const READ_BYTES: usize = 64 << 10;

/// Standard input.
pub(crate) struct StandardInput {
    state: Mutex<InputState>,
    /// A text that no other ingest has.
    pub version: Arc<str>,
}

struct InputState {
    source: Box<dyn Read + Send>,
    /// The bytes from `start` on that were read from the source.
    bytes: Vec<u8>,
    start: u64,
    /// The end of the bytes that readers got.
    next: u64,
    has_ended: bool,
    num_opens: u32,
}

impl StandardInput {
    /// The standard input of this process.
    pub fn of_process() -> Self {
        Self::new(Box::new(io::stdin()))
    }

    pub fn new(source: Box<dyn Read + Send>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
        let version = format!("stdin:{since}:{}:{:x}", process::id(), RandomState::new().hash_one(since));
        let state = InputState { source, bytes: Vec::new(), start: 0, next: 0, has_ended: false, num_opens: 0 };
        Self { state: Mutex::new(state), version: version.into() }
    }

    /// Opens the input at its beginning.
    ///
    /// # Errors
    /// An input that was opened twice.
    pub fn open(self: &Arc<Self>) -> io::Result<InputFile> {
        let mut state = self.lock();
        if state.num_opens >= OPENS_MAX {
            return Err(io::Error::other("standard input is read once"));
        }
        state.num_opens += 1;
        state.next = 0;
        Ok(InputFile(self.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, InputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StandardInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandardInput").field("version", &self.version).finish_non_exhaustive()
    }
}

impl InputState {
    /// Reads until there are bytes up to `end`, or the input ends.
    fn fill(&mut self, end: u64) -> io::Result<()> {
        let mut chunk = [0; READ_BYTES];
        while !self.has_ended && self.end() < end {
            match self.source.read(&mut chunk) {
                Ok(0) => self.has_ended = true,
                Ok(length) => self.bytes.extend_from_slice(chunk.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Forgets the bytes before an offset, unless another reader needs them.
    fn forget(&mut self, offset: u64) {
        if self.num_opens >= OPENS_MAX {
            let length = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX).min(self.bytes.len());
            self.bytes.drain(..length);
            self.start += length as u64;
        }
    }
}

/// The open standard input. It is read in order.
#[derive(Debug)]
pub(crate) struct InputFile(Arc<StandardInput>);

impl FileBytes for InputFile {
    /// The size, once the input has ended; before, a number that no file has. Waits until it is known whether a byte follows
    /// those that were read.
    fn size(&self) -> u64 {
        let mut state = self.0.lock();
        let next = state.next.saturating_add(1);
        match state.fill(next) {
            Ok(()) if state.has_ended => state.end(),
            // The read that follows has the error.
            _ => u64::MAX,
        }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        if offset < state.start || offset > state.end() {
            let reason = "standard input is read in order: pipe a stream of Arrow IPC, which has no footer, not a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        state.forget(offset);
        let end = offset.saturating_add(into.len() as u64);
        // Of long values, only the beginning is buffered.
        let buffered = end.min(offset.saturating_add(READ_BYTES as u64));
        state.fill(buffered)?;
        let skipped = usize::try_from(offset - state.start).unwrap_or(usize::MAX);
        let known = state.bytes.get(skipped..).unwrap_or_default();
        let length = known.len().min(into.len());
        let (head, tail) = into.split_at_mut(length);
        head.copy_from_slice(known.get(..length).unwrap_or_default());
        state.next = end;
        if tail.is_empty() {
            return Ok(());
        }
        let keeps = state.num_opens < OPENS_MAX;
        state.source.read_exact(tail).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(error.kind(), "standard input ended in the middle of a message")
            }
            _ => error,
        })?;
        if keeps {
            state.bytes.extend_from_slice(tail);
        } else {
            state.bytes.clear();
            state.start = end;
        }
        Ok(())
    }
}
