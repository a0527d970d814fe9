//! Runs functions that read untrusted bytes on many changed inputs. It is a dependency of tests only.
//!
//! ```text
//! seeds ──► Mutator ──► input ──► target ──► accepted? ──► kept beside the seeds
//!                                   └─► panic, too slow, too much memory ──► the input as hexadecimal text
//! ```
//!
//! A test builds valid inputs (seeds) and passes a function, the target, which returns whether it accepted its input:
//!
//! ```no_run
//! stoker_fuzz::Target::new("numbers").seeds([b"7".to_vec(), b"-1".to_vec()]).run(|input| {
//!     let Ok(number) = String::from_utf8_lossy(input).parse::<i64>() else { return false };
//!     assert_eq!(number.to_string().parse(), Ok(number));
//!     true
//! });
//! ```
//!
//! The inputs depend only on the seeds, on what the target accepts, and on the number in `STOKER_FUZZ_SEED`. A run takes
//! two seconds, or the time in `STOKER_FUZZ_SECS`. `STOKER_FUZZ_INPUT` replaces all inputs by one. The memory of targets
//! is measured in test programs that use [`Meter`] as their allocator:
//!
//! ```ignore
//! #[global_allocator]
//! static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
//! ```

mod caught;
mod failure;
mod hex;
mod meter;
mod mutator;
mod pool;
mod random;
mod settings;
mod target;
#[cfg(test)]
mod tests;
mod watch;

pub use failure::{Failure, Reason};
pub use meter::Meter;
pub use settings::Settings;
pub use target::{Report, Target};
