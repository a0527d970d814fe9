//! Time and random numbers, as values that are handed in.
//!
//! ```text
//! Environment ─┬─ Clock   the machine's, or a ManualClock that a test moves
//!              └─ Random  the machine's, or given numbers
//! ```
//!
//! What depends on time or chance gets a [`Clock`] or an [`Environment`] from whoever makes it, and asks nothing else.
//! So a test decides when a deadline has passed, and which part of a wait is random. The default is the machine's.
//! `clippy.toml` names the functions that would go around this.

#![warn(clippy::disallowed_methods)]

mod clock;
mod environment;
mod machine;
mod manual_clock;
mod pace;
mod random;
mod ticks;

pub use clock::Clock;
pub use environment::Environment;
pub use manual_clock::ManualClock;
pub use pace::Pace;
pub use random::Random;
pub use ticks::Ticks;

#[cfg(test)]
mod tests;
