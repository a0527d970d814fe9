//! The options of clips.

use stoker_types::{ErrorKind, HasKind};

use crate::{AudioClip, Start};

#[test]
fn clips_are_the_same_after_json() {
    let mut clip = AudioClip::new(16_000, 10.0);
    clip.start = Start::Column("begin".to_string());
    clip.channels = 2;
    let text = serde_json::to_string(&clip).expect("JSON");
    assert_eq!(serde_json::from_str::<AudioClip>(&text).expect("a clip"), clip);
    let short = r#"{"sample_rate": 16000, "seconds": 10.0}"#;
    assert_eq!(serde_json::from_str::<AudioClip>(short).expect("a clip"), AudioClip::new(16_000, 10.0));
    let random = r#"{"sample_rate": 16000, "seconds": 0.5, "start": "random"}"#;
    assert_eq!(serde_json::from_str::<AudioClip>(random).expect("a clip").start, Start::Random);
    let seconds = r#"{"sample_rate": 16000, "seconds": 0.5, "start": {"seconds": 1.5}}"#;
    assert_eq!(serde_json::from_str::<AudioClip>(seconds).expect("a clip").start, Start::Seconds(1.5));
    assert!(serde_json::from_str::<AudioClip>(r#"{"sample_rate": 1, "seconds": 1.0, "offset": 1}"#).is_err());
}

#[test]
fn shapes_follow_from_the_options() {
    let mut clip = AudioClip::new(16_000, 1.00003);
    assert_eq!((clip.shape(), clip.row_bytes()), ([1, 16_000], 64_000));
    clip.channels = 3;
    assert_eq!((clip.shape(), clip.row_bytes()), ([3, 16_000], 192_000));
    assert!(clip.validate().is_ok());
}

#[test]
fn invalid_options_are_refused() {
    let check = |change: fn(&mut AudioClip), expected: &str| {
        let mut clip = AudioClip::new(16_000, 1.0);
        change(&mut clip);
        let error = clip.validate().expect_err(expected);
        assert_eq!(error.to_string(), format!("audio clip: {expected}"));
        assert_eq!(HasKind::kind(&error), ErrorKind::InvalidRequest);
    };
    check(|clip| clip.sample_rate = 0, "sample_rate is 0, not 1 to 768000 Hz");
    check(|clip| clip.sample_rate = 768_001, "sample_rate is 768001, not 1 to 768000 Hz");
    check(|clip| clip.seconds = f64::NAN, "seconds is NaN, not a positive number");
    check(|clip| clip.seconds = 0.0, "seconds is 0, not a positive number");
    check(|clip| clip.seconds = 1e-5, "seconds is 0.00001, less than half a sample at 16000 Hz");
    check(|clip| clip.channels = 0, "channels is 0, not 1 to 256");
    check(|clip| clip.channels = 257, "channels is 257, not 1 to 256");
    check(|clip| clip.start = Start::Seconds(-1.0), "start is -1 s, not zero or a positive number");
    check(|clip| clip.start = Start::Column(String::new()), "start names no column");
    check(
        |clip| clip.seconds = 1e6,
        "seconds is 1000000: the tensor has 64000000000 bytes, more than bytes_max, 268435456",
    );
    check(
        |clip| clip.seconds = f64::MAX,
        &format!("seconds is {}: the tensor has {} bytes, more than bytes_max, 268435456", f64::MAX, usize::MAX),
    );
}
