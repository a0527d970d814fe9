//! The settings of runs, from the environment.

use std::env;
use std::time::Duration;

use crate::hex;

/// The time of a run in seconds, unless `STOKER_FUZZ_SECS` gives another one.
const SECS_DEFAULT: f64 = 2.0;

/// The settings that are the same for all targets of a process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The time after which no further input is tried: `STOKER_FUZZ_SECS`, or 2 s.
    pub time: Duration,
    /// The start of the random numbers: `STOKER_FUZZ_SEED`, or 0.
    pub seed: u64,
    /// The only input to try: the hexadecimal text in `STOKER_FUZZ_INPUT`.
    pub input: Option<Vec<u8>>,
    /// The time above which one input is too slow. After the sixfold time, the process is ended.
    pub slow: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { time: Duration::from_secs_f64(SECS_DEFAULT), seed: 0, input: None, slow: Duration::from_secs(5) }
    }
}

impl Settings {
    /// Reads the settings from the environment.
    ///
    /// # Panics
    /// A variable with a value that is not a number, or not hexadecimal text.
    pub fn from_env() -> Self {
        let mut settings = Self::default();
        let time = |text: &str| Duration::try_from_secs_f64(text.trim().parse().ok()?).ok();
        settings.time = variable("STOKER_FUZZ_SECS", time).unwrap_or(settings.time);
        settings.seed = variable("STOKER_FUZZ_SEED", |text| text.trim().parse().ok()).unwrap_or(settings.seed);
        settings.input = variable("STOKER_FUZZ_INPUT", hex::parse);
        settings
    }
}

fn variable<T>(name: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let text = env::var(name).ok()?;
    match parse(&text) {
        Some(value) => Some(value),
        None => panic!("the value {text:?} of {name} cannot be read"),
    }
}
