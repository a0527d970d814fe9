//! Shows the input of a target that does not return.

use std::io::{self, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{process, thread};

use crate::hex::Hex;

/// How often the watching thread looks.
const INTERVAL: Duration = Duration::from_millis(500);

/// The input that a target reads now.
pub(crate) struct Watch {
    name: String,
    seed: u64,
    current: Mutex<Current>,
}

struct Current {
    input: Vec<u8>,
    /// When the target got the input; `None` while no target runs.
    since: Option<Instant>,
}

/// A run that a thread watches until this is dropped.
pub(crate) struct Watching {
    pub watch: &'static Watch,
    _end: Sender<()>,
}

impl Watch {
    /// Starts a thread that ends the process when the target has had one input for the time `hang`.
    pub fn start(name: &str, seed: u64, hang: Duration) -> io::Result<Watching> {
        let current = Mutex::new(Current { input: Vec::new(), since: None });
        // The allocator may need the value at any time, so it is never freed. There is one for each target.
        let watch: &'static Watch = Box::leak(Box::new(Watch { name: name.to_string(), seed, current }));
        let (end, ended) = channel();
        thread::Builder::new().name(format!("watch {name}")).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(INTERVAL) {
                if watch.elapsed().is_some_and(|elapsed| elapsed > hang) {
                    watch.show(format_args!("the target has not returned for {hang:?}"));
                    process::abort();
                }
            }
        })?;
        Ok(Watching { watch, _end: end })
    }

    pub fn begin(&self, input: &[u8]) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.input.clear();
        current.input.extend_from_slice(input);
        current.since = Some(Instant::now());
    }

    /// Returns the time since [`Watch::begin`].
    pub fn end(&self) -> Duration {
        let since = self.current.lock().unwrap_or_else(PoisonError::into_inner).since.take();
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn elapsed(&self) -> Option<Duration> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Some(current.since?.elapsed())
    }

    /// Writes the input to standard error, past the buffers of tests, because the process is about to end. It does not
    /// allocate memory.
    pub fn show(&self, problem: std::fmt::Arguments<'_>) {
        let Ok(current) = self.current.try_lock() else { return };
        let (name, seed, input) = (&self.name, self.seed, &current.input);
        let bytes = input.len();
        drop(writeln!(
            io::stderr(),
            "fuzz target {name} failed with seed {seed}: {problem}; input ({bytes} bytes): {}",
            Hex(input)
        ));
    }
}
