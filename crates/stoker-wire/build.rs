//! Compiles `proto/stoker/v1/stream.proto` to Rust.

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=proto/stoker/v1/stream.proto");
    prost_build::Config::new().compile_protos(&["proto/stoker/v1/stream.proto"], &["proto"])
}
