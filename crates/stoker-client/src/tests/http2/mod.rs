//! The client's HTTP/2, against servers that keep to the protocol and servers that violate it.

mod answers;
mod ends;
mod hostile;
mod real_server;
pub mod script;
mod silence;
