//! Tests that need no library. `tests/libav` of stoker-video decodes with one.

use std::path::PathBuf;

use stoker_types::{ErrorKind, HasKind};

use crate::search::{candidates, major};
use crate::{Arrangement, Codec, Libav, PixelFormat};

#[test]
fn file_names_tell_the_major_version() {
    let check = |name, expected| assert_eq!(major(name), expected, "{name}");
    check("libavcodec.so.59", Some(59));
    check("libavcodec.so.59.37.100", Some(59));
    check("libavcodec-5e6b81c2.so.62.28.102", Some(62));
    check("libavcodec.62.28.102.dylib", Some(62));
    check("avcodec-62.dll", Some(62));
    check("libavcodec.so", Some(0));
    check("libavcodecs.so.59", None);
    check("libavcodec.a", None);
    check("libavutil.so.57", None);
}

#[test]
fn what_cannot_be_loaded_is_listed_with_reasons() {
    let missing = PathBuf::from("/nowhere/libavcodec.so.62");
    let found = candidates(&[missing.clone(), PathBuf::from(env!("CARGO_MANIFEST_DIR"))]);
    assert_eq!(found.first(), Some(&Ok(missing.into_os_string())));
    assert!(matches!(found.get(1), Some(Err((_, reason))) if reason == "has no libavcodec"), "{found:?}");
    assert_eq!(found.len(), 6);
}

#[test]
fn a_file_that_is_no_library_is_refused() {
    let manifest = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    // The machine may have a libavcodec among the system's names, which is used then.
    if let Err(error) = Libav::load(&[manifest]) {
        let text = error.to_string();
        assert!(text.contains("Cargo.toml (") && text.contains("pip install av"), "{text}");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn formats_have_names_and_sizes() {
    let format = PixelFormat::of_name("yuv420p10le").expect("a format");
    assert_eq!((format.name(), format.num_planes(), format.bits), ("yuv420p10le", 3, 10));
    assert_eq!((format.plane_size(0, 5, 7), format.plane_size(2, 5, 7)), ((14, 5), (8, 3)));
    let format = PixelFormat::of_name("nv12").expect("a format");
    assert_eq!((format.arrangement, format.plane_size(1, 5, 7)), (Arrangement::Nv12, (8, 3)));
    assert_eq!(PixelFormat::of_name("pal8"), None);
    assert_eq!(Codec::ALL.map(Codec::name)[4], "av1");
}
