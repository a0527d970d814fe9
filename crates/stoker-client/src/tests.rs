//! Tests of the messages and of the connection that brings them.

mod compression;
mod http2;
mod messages;
