//! No code: the dependencies of this crate name features, see its `Cargo.toml`.
