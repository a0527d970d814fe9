//! Tests of the protocol.

mod endpoints;
mod tickets;
