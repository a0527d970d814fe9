//! Tests of how the time of steps is divided.

use std::time::Duration;

use stoker_types::{Moment, Stalls};

use crate::StallMeter;

/// Makes stalls from the milliseconds of storage, decode, network and consumer.
fn stalls(millis: [u64; 4]) -> Stalls {
    let [storage, decode, network, consumer] = millis.map(Duration::from_millis);
    Stalls { storage, decode, network, consumer }
}

#[test]
fn a_step_is_divided_between_the_consumer_and_what_it_waited_for() {
    let at = |millis| Moment::START + Duration::from_millis(millis);
    let mut meter = StallMeter::default();
    assert_eq!(meter.sum().share(Duration::from_secs(1)), 0.0);
    // The time before the first request belongs to no step.
    meter.asked(at(5));
    assert_eq!(meter.taken(at(105), &stalls([30, 10, 0, 0])), Duration::from_millis(100));
    assert_eq!(meter.last_step(), stalls([75, 25, 0, 0]));
    // A cancelled wait continues with the next request.
    meter.asked(at(165));
    meter.asked(at(175));
    meter.taken(at(185), &stalls([5, 5, 10, 0]));
    assert_eq!(meter.last_step(), stalls([5, 5, 10, 60]));
    assert_eq!(meter.sum(), stalls([80, 30, 10, 60]));
    // If nothing was measured, the time counts as storage. A step without a wait has no stall.
    meter.asked(at(185));
    meter.taken(at(190), &Stalls::default());
    assert_eq!(meter.last_step(), stalls([5, 0, 0, 0]));
    meter.asked(at(200));
    meter.taken(at(200), &stalls([100, 100, 100, 0]));
    assert_eq!(meter.last_step(), stalls([0, 0, 0, 10]));
    let sum = meter.sum();
    let shares: f64 = sum.named().iter().map(|(_, time)| sum.share(*time)).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
}

#[test]
fn a_step_is_the_sum_over_the_parts_of_its_batch() {
    let at = |millis| Moment::START + Duration::from_millis(millis);
    let mut meter = StallMeter::default();
    meter.asked(at(0));
    meter.taken_part(at(20), &stalls([1, 1, 0, 0]));
    assert_eq!((meter.last_step(), meter.sum()), (stalls([0, 0, 0, 0]), stalls([10, 10, 0, 0])));
    meter.asked(at(25));
    meter.taken_part(at(35), &stalls([1, 0, 0, 0]));
    meter.end_step();
    assert_eq!((meter.last_step(), meter.sum()), (stalls([20, 10, 0, 5]), stalls([20, 10, 0, 5])));
    meter.asked(at(36));
    meter.taken(at(40), &stalls([0, 1, 0, 0]));
    assert_eq!((meter.last_step(), meter.sum()), (stalls([0, 4, 0, 1]), stalls([20, 14, 0, 6])));
}
