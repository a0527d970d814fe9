//! The `stoker` command.
fn main() {}
