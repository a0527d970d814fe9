//! The codecs, and how they are written.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{Error, Result, frame};

/// The levels of Zstandard, with the one that is taken if none is given. Each level above compresses more, more slowly.
const ZSTD_LEVELS: RangeInclusive<i32> = -7..=22;
const ZSTD_DEFAULT: i32 = 3;

/// The levels of pco, with the one that is taken if none is given.
const PCO_LEVELS: RangeInclusive<i32> = 0..=12;
const PCO_DEFAULT: i32 = 8;

/// How rows are compressed. As text, it is a name and, behind a colon, a level: `pco`, `zstd:7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Zstandard.
    Zstd {
        /// From -7 to 22; 3 if the text has none.
        level: i32,
    },
    /// LZ4, which is the fastest.
    Lz4,
    /// Zstandard of all first bytes of the elements, then of all second bytes, and so on.
    ByteStreamSplitZstd {
        /// As for [`Codec::Zstd`].
        level: i32,
    },
    /// pco (<https://github.com/pcodec/pcodec>), which compresses numbers the most.
    Pco {
        /// From 0 to 12; 8 if the text has none.
        level: i32,
    },
}

impl Codec {
    /// The names, which are a part of the format.
    pub const NAMES: [&str; 4] = ["zstd", "lz4", "byte_stream_split", "pco"];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Zstd { .. } => "zstd",
            Codec::Lz4 => "lz4",
            Codec::ByteStreamSplitZstd { .. } => "byte_stream_split",
            Codec::Pco { .. } => "pco",
        }
    }

    /// Returns the level, if the codec has any.
    pub fn level(self) -> Option<i32> {
        match self {
            Codec::Zstd { level } | Codec::ByteStreamSplitZstd { level } | Codec::Pco { level } => Some(level),
            Codec::Lz4 => None,
        }
    }

    /// The number of the codec in frames, with a dictionary or without.
    pub(crate) fn code(self, is_shared: bool) -> u8 {
        match (self, is_shared) {
            (Codec::Zstd { .. }, false) => frame::ZSTD,
            (Codec::Zstd { .. }, true) => frame::ZSTD_SHARED,
            (Codec::Lz4, _) => frame::LZ4,
            (Codec::ByteStreamSplitZstd { .. }, false) => frame::BYTE_STREAM_SPLIT,
            (Codec::ByteStreamSplitZstd { .. }, true) => frame::BYTE_STREAM_SPLIT_SHARED,
            (Codec::Pco { .. }, _) => frame::PCO,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level() {
            Some(level) => write!(f, "{}:{level}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fail = |reason: String| Err(Error::NoCodec { codec: text.chars().take(60).collect(), reason });
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => match level.trim().parse::<i32>() {
                Ok(level) => (name.trim(), Some(level)),
                Err(_) => return fail("the level behind the colon must be a whole number".into()),
            },
            None => (text.trim(), None),
        };
        let (codec, levels): (fn(i32) -> Codec, _) = match name {
            "zstd" => (|level| Codec::Zstd { level }, Some((ZSTD_LEVELS, ZSTD_DEFAULT))),
            "lz4" => (|_| Codec::Lz4, None),
            "byte_stream_split" => (|level| Codec::ByteStreamSplitZstd { level }, Some((ZSTD_LEVELS, ZSTD_DEFAULT))),
            "pco" => (|level| Codec::Pco { level }, Some((PCO_LEVELS, PCO_DEFAULT))),
            _ => return fail(format!("there is no such codec; codecs are {}", Codec::NAMES.join(", "))),
        };
        match (levels, level) {
            (None, None) => Ok(codec(0)),
            (None, Some(_)) => fail(format!("{name} has no levels")),
            (Some((_, default)), None) => Ok(codec(default)),
            (Some((levels, _)), Some(level)) if levels.contains(&level) => Ok(codec(level)),
            (Some((levels, _)), Some(_)) => {
                fail(format!("the levels of {name} are from {} to {}", levels.start(), levels.end()))
            }
        }
    }
}
