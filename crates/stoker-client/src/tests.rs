//! Tests of calls, of the messages and of the connection that brings them.

mod assembler_waits;
mod compression;
mod deadlines;
mod fuzz;
mod http2;
mod messages;
mod target;
