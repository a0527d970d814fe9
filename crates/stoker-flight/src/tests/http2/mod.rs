//! The client's HTTP/2, against servers that keep the protocol and servers that do not.

mod answers;
mod ends;
mod headers;
mod hostile;
mod real_server;
pub mod script;
mod silence;
