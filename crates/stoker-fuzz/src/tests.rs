//! Targets with faults that the driver finds.

use std::time::Duration;

use crate::{Failure, Meter, Reason, Report, Settings, Target};

#[global_allocator]
static ALLOCATOR: Meter = Meter;

fn settings(secs: f64, seed: u64) -> Settings {
    Settings { time: Duration::from_secs_f64(secs), seed, ..Settings::default() }
}

fn find(seed: u64, target: impl FnMut(&[u8]) -> bool) -> Failure {
    let seeds = [b"{\"size\": 12}".to_vec(), b"{}".to_vec()];
    Target::new("fault").seeds(seeds).try_run(&settings(20.0, seed), target).expect_err("the target has a fault")
}

/// A reader of decimal numbers that fails for numbers above 2^32.
fn overflows(input: &[u8]) -> bool {
    let digits: String = input.iter().map(|byte| char::from(*byte)).filter(char::is_ascii_digit).collect();
    assert!(digits.parse::<u64>().unwrap_or(0) <= 1 << 32, "overflow");
    true
}

#[test]
fn a_panic_is_found_and_its_input_is_short_and_the_same_again() {
    let found = find(7, overflows);
    assert_eq!(found, find(7, overflows));
    assert!(matches!(&found.reason, Reason::Panic(message) if message.contains("overflow")), "{found}");
    assert!(found.input.len() >= 10 && found.input.iter().all(u8::is_ascii_digit), "{found}");
    let text = found.to_string();
    let hex = text.split_once("STOKER_FUZZ_INPUT=").and_then(|(_, rest)| rest.split(' ').next()).expect("hex");
    assert_eq!(crate::hex::parse(hex), Some(found.input));
    assert!(text.contains("target fault failed with seed 7 in iteration"), "{text}");
}

#[test]
fn one_input_can_be_run_again() {
    let alone = Settings { input: Some(b"99999999999".to_vec()), ..settings(20.0, 0) };
    let found = Target::new("again").try_run(&alone, overflows).expect_err("a fault");
    assert_eq!(found.iteration, 0);
    let report = Target::new("harmless").try_run(&Settings { input: Some(b"9".to_vec()), ..alone }, overflows);
    assert_eq!(report.expect("no fault").iterations, 1);
}

#[test]
fn slow_inputs_and_large_allocations_are_found() {
    let strict = Settings { slow: Duration::from_millis(50), ..settings(20.0, 0) };
    let slow = |input: &[u8]| {
        std::thread::sleep(Duration::from_millis(if input.len() > 2 { 100 } else { 0 }));
        true
    };
    let found = Target::new("slow").seeds([b"a".to_vec()]).try_run(&strict, slow).expect_err("a slow input");
    assert!(matches!(found.reason, Reason::Slow(time) if time > strict.slow), "{found}");

    let large = |input: &[u8]| {
        let length = input.first().map_or(0, |length| usize::from(*length) << 10);
        std::hint::black_box(vec![0u8; length]);
        true
    };
    let target = Target::new("large").seeds([vec![3]]).memory_bytes_max(200 << 10);
    let found = target.try_run(&settings(20.0, 0), large).expect_err("a large allocation");
    assert!(matches!(found.reason, Reason::Memory { held, .. } if held >= 200 << 10), "{found}");
}

#[test]
fn panics_that_the_target_catches_are_no_faults() {
    let catches = |input: &[u8]| std::panic::catch_unwind(|| assert!(input.is_empty())).is_ok() || input == b"x";
    let report = Target::new("catches").seeds([b"x".to_vec()]).try_run(&settings(0.2, 1), catches).expect("no fault");
    assert!(report.iterations > 100 && report.accepted > 0 && report.accepted < report.iterations, "{report}");
    assert!(report.memory_bytes.is_some_and(|bytes| bytes > 0), "{report}");
    assert!(report.to_string().contains(&format!("{} inputs in 0.2 s", report.iterations)), "{report}");
}

#[test]
fn seeds_must_be_accepted_and_inputs_stay_short() {
    let found = Target::new("seed").seeds([b"x".to_vec()]).try_run(&settings(0.1, 1), |_| false);
    assert!(found.expect_err("a bad seed").reason.to_string().contains("does not accept this seed"));
    let seeds = [vec![b'a'; 700], Vec::new()];
    let report: Result<Report, Failure> =
        Target::new("length").seeds(seeds).tokens(["token"]).try_run(&settings(0.3, 1), |input| {
            assert!(input.len() <= 2_800);
            true
        });
    assert!(report.expect("short inputs").iterations > 100);
}
