//! The option `--compression`.

use clap::ValueEnum;
use stoker_types::Compression;

/// The codec that compresses rows on their way from a server.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Codec {
    /// Fast
    Lz4,
    /// Smaller output, for more processor time
    Zstd,
}

impl From<Codec> for Compression {
    fn from(codec: Codec) -> Compression {
        match codec {
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd => Compression::Zstd,
        }
    }
}
