//! Tests of the rules by which clients get permits and holders are displaced.

use std::pin::pin;

use futures::FutureExt;
use stoker_clock::ManualClock;

use super::*;

/// Returns the moment after this many milliseconds.
fn at(millis: u64) -> Moment {
    Moment::START + Duration::from_millis(millis)
}

fn places(total: usize, per_client: usize) -> Permits<&'static str> {
    Permits::new(Shares { total, per_client }, Clock::from(&ManualClock::new()))
}

fn is_displaced(place: &Permit<&'static str>) -> bool {
    place.displaced.is_cancelled()
}

#[test]
fn one_client_holds_no_more_than_its_share() {
    let (places, now) = (places(4, 3), Moment::START);
    let take = |client| places.take(client, Standing::Busy, now);
    let mut held: Vec<_> = (0..3).map(|_| take("a").expect("a place")).collect();
    assert_eq!(take("a").err(), Some(Full { ripe_at: None }));
    held.push(take("b").expect("the place that the first client could not have"));
    assert_eq!(take("c").err(), Some(Full { ripe_at: None }));
    held.remove(0);
    take("a").expect("a place that was given back");
}

#[test]
fn the_last_places_are_for_clients_with_few() {
    let (places, now) = (places(128, 128), Moment::START);
    let take = |client| places.take(client, Standing::Busy, now);
    let mut held: Vec<_> = (0..112).map(|_| take("a").expect("a place")).collect();
    assert!(take("a").is_err(), "an eighth is reserved");
    held.extend((0..2).map(|_| take("b").expect("a place")));
    assert!(take("b").is_err(), "two of 128 are few, three are not");
    held.push(take("c").expect("a place"));
}

#[test]
fn who_proved_nothing_makes_room_first_and_who_waits_longest_of_those() {
    let places = places(4, 4);
    let take = |standing, millis| places.take("a", standing, at(millis));
    let busy = take(Standing::Busy, 0).expect("a place");
    let idle = take(Standing::Idle(at(5)), 0).expect("a place");
    let late = take(Standing::Unproven(at(20)), 0).expect("a place");
    let early = take(Standing::Unproven(at(10)), 0).expect("a place");
    let ripe_at = Some(at(5));
    assert_eq!(take(Standing::Busy, 4).err(), Some(Full { ripe_at }), "nobody makes room yet");
    let newcomers: Vec<_> = [(1_000, &early), (1_000, &late), (1_000, &idle)]
        .into_iter()
        .map(|(millis, victim)| {
            assert!(!is_displaced(victim));
            let newcomer = take(Standing::Busy, millis).expect("a place of another");
            assert!(is_displaced(victim));
            newcomer
        })
        .collect();
    assert_eq!(take(Standing::Busy, 9_000).err(), Some(Full { ripe_at: None }), "all are at work");
    assert!(!is_displaced(&busy) && !newcomers.iter().any(is_displaced));
    // Dropping permits that were displaced releases nothing a second time.
    drop((early, late, idle));
    assert!(take(Standing::Busy, 9_000).is_err());
    drop(busy);
    take(Standing::Busy, 9_000).expect("a place that was given back");
}

#[test]
fn the_client_with_the_most_places_makes_room() {
    let (places, begun) = (places(4, 3), Moment::START);
    let take = |client, millis| places.take(client, Standing::Idle(at(millis)), begun);
    let single = take("b", 0).expect("a place");
    let of_many: Vec<_> = (0..3).map(|millis| take("a", millis).expect("a place")).collect();
    let now = at(10_000);
    let newcomer = places.take("c", Standing::Busy, now).expect("a place of another");
    assert!(is_displaced(&of_many[0]) && !is_displaced(&single) && !is_displaced(&newcomer));
    // A client at its maximum displaces one of its own holders, not one of another client.
    let again = places.take("a", Standing::Busy, now).err();
    assert!(again.is_none() && is_displaced(&of_many[1]) && !is_displaced(&single));
}

#[test]
fn whoever_goes_on_keeps_its_place() {
    let (places, begun) = (places(1, 1), Moment::START);
    let holder = places.take("a", Standing::Idle(begun), begun).expect("a place");
    holder.set_standing(Standing::Busy);
    assert_eq!(places.take("b", Standing::Busy, at(60_000)).err(), Some(Full { ripe_at: None }));
    assert!(!places.displace_unproven() && !is_displaced(&holder));
    holder.set_standing(Standing::Unproven(begun));
    assert!(places.displace_unproven() && is_displaced(&holder) && !places.displace_unproven());
}

#[test]
fn a_newcomer_waits_for_a_place_that_is_given_back_or_becomes_free() {
    let (time, patience) = (ManualClock::new(), Duration::from_secs(60));
    let places = Permits::new(Shares { total: 1, per_client: 1 }, Clock::from(&time));
    let holder = places.take("a", Standing::Busy, time.now()).expect("a place");
    let refused = time.run(places.take_within("b", patience));
    assert_eq!(refused.err(), Some(Full { ripe_at: None }), "nobody will make room");
    // The holder can be displaced when the patience of the newcomer ends, and not before.
    let ripe_at = time.now() + patience;
    holder.set_standing(Standing::Idle(ripe_at + Duration::from_nanos(1)));
    assert!(places.take_within("b", patience).now_or_never().expect("at once").is_err(), "nobody makes room in time");
    holder.set_standing(Standing::Idle(ripe_at));
    let newcomer = time.run(places.take_within("b", patience)).expect("the place of another");
    assert!(is_displaced(&holder));
    assert_eq!(time.now(), ripe_at);
    // Another newcomer gets the place as soon as it is given back.
    newcomer.set_standing(Standing::Idle(ripe_at + Duration::from_secs(30)));
    let mut waiting = pin!(places.take_within("c", patience));
    assert!(waiting.as_mut().now_or_never().is_none());
    time.advance(Duration::from_secs(29));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(newcomer);
    waiting.now_or_never().expect("it was given back").expect("a place");
}

#[test]
fn a_newcomer_that_waits_sees_that_the_holder_goes_on() {
    let (time, patience) = (ManualClock::new(), Duration::from_secs(60));
    let places = Permits::new(Shares { total: 1, per_client: 1 }, Clock::from(&time));
    let holder = places.take("a", Standing::Idle(time.now() + Duration::from_secs(1)), time.now()).expect("a place");
    let mut waiting = pin!(places.take_within("b", patience));
    assert!(waiting.as_mut().now_or_never().is_none());
    holder.set_standing(Standing::Busy);
    time.advance(Duration::from_secs(1));
    let refused = waiting.now_or_never().expect("at once");
    assert_eq!(refused.err(), Some(Full { ripe_at: None }));
    assert!(!is_displaced(&holder));
}
