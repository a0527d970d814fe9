//! Tests of connections and sessions over lakes that do what a test tells them.

mod deadlines;
mod fetches;
mod fixture;
mod run_logs;
