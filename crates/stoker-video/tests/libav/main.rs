//! Decodes the files in `fixtures` and compares with what PyAV said about them.
//!
//! These tests need libavcodec, and are built with the feature `libav-tests` only. The variable `STOKER_LIBAV` names its
//! file or folder, for example the folder `av.libs` beside the Python package `av`:
//!
//! ```text
//! STOKER_LIBAV=…/site-packages/av.libs cargo test -p stoker-video --features libav-tests --test libav
//! ```

#![expect(clippy::cast_possible_truncation, reason = "tests know their numbers")]
#![expect(clippy::expect_used, reason = "tests fail by panicking")]

mod clips;
mod exact;
mod expected;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use stoker_libav::Libav;
use stoker_video::{Decoders, VideoIndex};

use expected::Expected;

static LIBAV: LazyLock<Arc<Libav>> = LazyLock::new(|| {
    let place = std::env::var_os("STOKER_LIBAV");
    let place =
        place.expect("these tests need libavcodec: set STOKER_LIBAV to its file or folder, see tests/libav/main.rs");
    let libav = Libav::load(&[PathBuf::from(&place)]).expect("a libavcodec");
    assert!(libav.place().starts_with(&*place.to_string_lossy()), "{} is not used, but {libav:?}", place.display());
    libav
});

fn decoders() -> Decoders {
    Decoders::new(Arc::clone(&LIBAV))
}

fn file(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file, its index, and what is expected of it.
struct Fixture {
    bytes: Vec<u8>,
    index: VideoIndex,
    expected: Expected,
}

fn fixtures() -> Vec<Fixture> {
    let fixture = |expected: Expected| {
        let bytes = file(&expected.name);
        let index = VideoIndex::read(&bytes).unwrap_or_else(|error| panic!("{}: {error}", expected.name));
        Fixture { bytes, index, expected }
    };
    expected::all().into_iter().map(fixture).collect()
}
