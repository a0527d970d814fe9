//! Tests of the protocol.

mod clips;
mod endpoints;
mod fuzz;
mod tickets;
