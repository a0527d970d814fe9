//! Measures how fast a session delivers, and what a process uses.
//!
//! ```text
//! Session ──► Drain ──► Drained: bytes, rows and seconds of all epochs, and of all epochs but the first
//! /proc/PID ──► ProcessUse: processor time, peak memory
//! ```
//!
//! `stoker stream` reports these figures, and `stoker bench` compares them with ceilings.

// The future of an epoch has a deep type: see drain.rs.
#![recursion_limit = "256"]

mod drain;
mod process;

pub use drain::{Drain, Drained, Steady};
pub use process::{ProcessUse, bytes_read, process_use, reset_peak, resident_bytes};
