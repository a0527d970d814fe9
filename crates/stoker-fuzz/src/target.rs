//! Targets, and the loop that runs them.

use std::fmt;
use std::time::{Duration, Instant};

use crate::mutator::Mutator;
use crate::pool::Pool;
use crate::random::Random;
use crate::watch::Watch;
use crate::{Failure, Reason, Settings, caught, meter};

/// The smallest limit of the length of inputs.
const INPUT_BYTES_MIN: usize = 1 << 10;

/// The memory that a target may hold, unless the test gives another limit.
const MEMORY_BYTES_DEFAULT: usize = 16 << 20;

/// The allocator refuses the memory above this multiple of the limit.
const MEMORY_FACTOR: usize = 64;

/// The watching thread ends the process after this multiple of the time above which an input is too slow.
const HANG_FACTOR: u32 = 6;

/// The longest time for which a failing input is made smaller.
const SHRINK_TIME: Duration = Duration::from_secs(3);

/// A function under test, with the inputs from which others are made.
#[must_use]
pub struct Target {
    name: String,
    seeds: Vec<Vec<u8>>,
    tokens: Vec<Vec<u8>>,
    input_bytes_max: usize,
    memory_bytes_max: usize,
}

/// What a run without a failure did.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The name of the target.
    pub name: String,
    /// The start of the random numbers.
    pub seed: u64,
    /// The number of inputs.
    pub iterations: u64,
    /// The number of inputs that the target accepted.
    pub accepted: u64,
    /// The most bytes that the target held at once; `None` if [`Meter`](crate::Meter) is not the allocator.
    pub memory_bytes: Option<usize>,
    /// The time of the run.
    pub time: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { name, seed, iterations, accepted, memory_bytes, time } = self;
        let secs = time.as_secs_f64();
        write!(f, "fuzz target {name}, seed {seed}: {iterations} inputs in {secs:.1} s, {accepted} accepted, ")?;
        match memory_bytes {
            Some(bytes) => write!(f, "at most {} KiB of memory", bytes.div_ceil(1 << 10)),
            None => f.write_str("memory not measured"),
        }
    }
}

impl Target {
    /// Makes a target without seeds. `name` is for messages.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_string(),
            seeds: Vec::new(),
            tokens: Vec::new(),
            input_bytes_max: INPUT_BYTES_MIN,
            memory_bytes_max: MEMORY_BYTES_DEFAULT,
        }
    }

    /// Adds inputs that the target accepts. Inputs may become four times as long as the longest seed.
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = Vec<u8>>) -> Self {
        self.seeds.extend(seeds);
        let longest = self.seeds.iter().map(Vec::len).max().unwrap_or(0);
        self.input_bytes_max = self.input_bytes_max.max(longest.saturating_mul(4));
        self
    }

    /// Adds byte strings with a meaning for the target, which are put into inputs.
    pub fn tokens<T: AsRef<[u8]>>(mut self, tokens: impl IntoIterator<Item = T>) -> Self {
        self.tokens.extend(tokens.into_iter().map(|token| token.as_ref().to_vec()));
        self
    }

    /// Sets the most bytes that the target may hold at once, beyond its input. The default is 16 MiB.
    pub fn memory_bytes_max(mut self, bytes: usize) -> Self {
        self.memory_bytes_max = bytes;
        self
    }

    /// Runs the target on the seeds, then on changed inputs, with the [settings of the environment](Settings::from_env).
    /// The target returns whether it accepted its input. Prints the number of inputs.
    ///
    /// # Panics
    /// An input on which the target panics, holds too much memory, or takes more than five seconds. The message has the
    /// input. Also a seed that the target does not accept.
    pub fn run(self, target: impl FnMut(&[u8]) -> bool) -> Report {
        match self.try_run(&Settings::from_env(), target) {
            Ok(report) => {
                eprintln!("{report}");
                report
            }
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Does the same with given settings, and returns a failure.
    ///
    /// # Errors
    /// The first input on which the target fails.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub fn try_run(self, settings: &Settings, mut target: impl FnMut(&[u8]) -> bool) -> Result<Report, Failure> {
        let begin = Instant::now();
        let Self { name, seeds, tokens, input_bytes_max, memory_bytes_max } = self;
        let (seed, slow) = (settings.seed, settings.slow);
        let watching = Watch::start(&name, seed, slow * HANG_FACTOR).unwrap_or_else(|error| panic!("{error}"));
        let is_measured = meter::is_used();
        let mut peak = 0;
        let mut try_once = |input: &[u8]| {
            watching.watch.begin(input);
            meter::start(memory_bytes_max.saturating_mul(MEMORY_FACTOR), watching.watch);
            let result = caught::call(|| target(input));
            let held = meter::stop();
            let time = watching.watch.end();
            peak = peak.max(held);
            match result {
                Err(message) => Err(Reason::Panic(message)),
                Ok(_) if time > slow => Err(Reason::Slow(time)),
                Ok(_) if held > memory_bytes_max => Err(Reason::Memory { held, max: memory_bytes_max }),
                Ok(is_accepted) => Ok(is_accepted),
            }
        };
        // A loaded machine makes single inputs slow. An input is too slow if it is slow twice.
        let mut try_input = |input: &[u8]| match try_once(input) {
            Err(Reason::Slow(_)) => try_once(input),
            result => result,
        };
        let failure = |iteration, reason, input: &[u8]| Failure {
            name: name.clone(),
            seed,
            iteration,
            reason,
            input: input.to_vec(),
        };
        let mutator = Mutator { tokens: &tokens, bytes_max: input_bytes_max };
        let mut random = Random::new(seed);
        let mut pool = Pool::new(seeds);
        let (mut iterations, mut accepted) = (0, 0);
        let mut first = match &settings.input {
            Some(input) => vec![input.clone()],
            None => pool.seeds().to_vec(),
        };
        first.reverse();
        let mut input = Vec::new();
        loop {
            let is_given = match first.pop() {
                Some(given) => {
                    input = given;
                    true
                }
                None if settings.input.is_some() || begin.elapsed() >= settings.time => break,
                None => {
                    input.clear();
                    input.extend_from_slice(pool.pick(&mut random));
                    let other = pool.pick(&mut random);
                    mutator.mutate(&mut random, &mut input, other);
                    false
                }
            };
            match try_input(&input) {
                Ok(true) => {
                    accepted += 1;
                    if !is_given {
                        pool.keep(&mut random, &input);
                    }
                }
                Ok(false) if is_given && settings.input.is_none() => {
                    let reason = Reason::Panic("the target does not accept this seed".to_string());
                    return Err(failure(iterations, reason, &input));
                }
                Ok(false) => {}
                Err(reason) => {
                    let (input, reason) = match &reason {
                        Reason::Panic(_) => shrink(input, reason, &mut try_input),
                        Reason::Slow(_) | Reason::Memory { .. } => (input, reason),
                    };
                    return Err(failure(iterations, reason, &input));
                }
            }
            iterations += 1;
        }
        let memory_bytes = is_measured.then_some(peak);
        Ok(Report { name, seed, iterations, accepted, memory_bytes, time: begin.elapsed() })
    }
}

/// Removes parts of an input as long as the target still panics on the rest. Returns the rest and the reason for it.
fn shrink(
    mut input: Vec<u8>,
    mut reason: Reason,
    mut try_input: impl FnMut(&[u8]) -> Result<bool, Reason>,
) -> (Vec<u8>, Reason) {
    let begin = Instant::now();
    let mut length = input.len().next_power_of_two();
    while length > 0 {
        let mut start = 0;
        while start < input.len() {
            if begin.elapsed() > SHRINK_TIME {
                return (input, reason);
            }
            let mut shorter = input.clone();
            shorter.drain(start..input.len().min(start + length));
            match try_input(&shorter) {
                Err(panic @ Reason::Panic(_)) => (input, reason) = (shorter, panic),
                _ => start += length,
            }
        }
        length /= 2;
    }
    (input, reason)
}
