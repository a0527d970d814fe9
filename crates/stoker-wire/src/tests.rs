//! Tests of the protocol.

mod endpoints;
mod fuzz;
mod tickets;
