//! What a run found.

use std::fmt;
use std::time::Duration;

use crate::hex::Hex;

/// Why an input counts as a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The target panicked: the place and the message of the panic.
    Panic(String),
    /// The target took this time.
    Slow(Duration),
    /// The target held this number of bytes at once, which is more than its limit.
    Memory {
        /// The bytes that the target held.
        held: usize,
        /// The limit.
        max: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Panic(message) => f.write_str(message),
            Reason::Slow(time) => write!(f, "the target took {:.1} s", time.as_secs_f64()),
            Reason::Memory { held, max } => write!(f, "the target held {held} bytes; the limit is {max}"),
        }
    }
}

/// An input on which a target failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name of the target.
    pub name: String,
    /// The start of the random numbers.
    pub seed: u64,
    /// The number of the input, from zero.
    pub iteration: u64,
    /// What happened.
    pub reason: Reason,
    /// The input. Parts that are not needed for a panic were removed.
    pub input: Vec<u8>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { name, seed, iteration, reason, input } = self;
        writeln!(f, "fuzz target {name} failed with seed {seed} in iteration {iteration}: {reason}")?;
        writeln!(f, "input ({} bytes): {}", input.len(), input.escape_ascii())?;
        write!(f, "STOKER_FUZZ_INPUT={} runs the test with this input only", Hex(input))
    }
}
