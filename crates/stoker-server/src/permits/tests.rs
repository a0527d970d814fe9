//! Tests of the rules by which clients get permits and holders are displaced.

use super::*;

/// Returns the time `millis` milliseconds after `begun`.
fn at(begun: Instant, millis: u64) -> Instant {
    begun + Duration::from_millis(millis)
}

fn places(total: usize, per_client: usize) -> Permits<&'static str> {
    Permits::new(Shares { total, per_client })
}

fn is_displaced(place: &Permit<&'static str>) -> bool {
    place.displaced.is_cancelled()
}

#[test]
fn one_client_holds_no_more_than_its_share() {
    let (places, now) = (places(4, 3), Instant::now());
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
    let (places, now) = (places(128, 128), Instant::now());
    let take = |client| places.take(client, Standing::Busy, now);
    let mut held: Vec<_> = (0..112).map(|_| take("a").expect("a place")).collect();
    assert!(take("a").is_err(), "an eighth is reserved");
    held.extend((0..2).map(|_| take("b").expect("a place")));
    assert!(take("b").is_err(), "two of 128 are few, three are not");
    held.push(take("c").expect("a place"));
}

#[test]
fn who_proved_nothing_makes_room_first_and_who_waits_longest_of_those() {
    let (places, begun) = (places(4, 4), Instant::now());
    let take = |standing, millis| places.take("a", standing, at(begun, millis));
    let busy = take(Standing::Busy, 0).expect("a place");
    let idle = take(Standing::Idle(at(begun, 5)), 0).expect("a place");
    let late = take(Standing::Unproven(at(begun, 20)), 0).expect("a place");
    let early = take(Standing::Unproven(at(begun, 10)), 0).expect("a place");
    let ripe_at = Some(at(begun, 5));
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
    let (places, begun) = (places(4, 3), Instant::now());
    let take = |client, millis| places.take(client, Standing::Idle(at(begun, millis)), begun);
    let single = take("b", 0).expect("a place");
    let of_many: Vec<_> = (0..3).map(|millis| take("a", millis).expect("a place")).collect();
    let now = at(begun, 10_000);
    let newcomer = places.take("c", Standing::Busy, now).expect("a place of another");
    assert!(is_displaced(&of_many[0]) && !is_displaced(&single) && !is_displaced(&newcomer));
    // A client at its maximum displaces one of its own holders, not one of another client.
    let again = places.take("a", Standing::Busy, now).err();
    assert!(again.is_none() && is_displaced(&of_many[1]) && !is_displaced(&single));
}

#[test]
fn whoever_goes_on_keeps_its_place() {
    let (places, begun) = (places(1, 1), Instant::now());
    let holder = places.take("a", Standing::Idle(begun), begun).expect("a place");
    holder.set_standing(Standing::Busy);
    assert_eq!(places.take("b", Standing::Busy, at(begun, 60_000)).err(), Some(Full { ripe_at: None }));
    assert!(!places.displace_unproven() && !is_displaced(&holder));
    holder.set_standing(Standing::Unproven(begun));
    assert!(places.displace_unproven() && is_displaced(&holder) && !places.displace_unproven());
}

#[tokio::test]
async fn a_newcomer_waits_for_a_place_that_is_given_back_or_becomes_free() {
    let (places, patience) = (places(1, 1), Duration::from_secs(60));
    let holder = places.take("a", Standing::Busy, Instant::now()).expect("a place");
    let refused = places.take_within("b", patience).await;
    assert_eq!(refused.err(), Some(Full { ripe_at: None }), "nobody will make room");
    holder.set_standing(Standing::Idle(Instant::now()));
    let newcomer = places.take_within("b", patience).await.expect("a place of another");
    assert!(is_displaced(&holder));
    newcomer.set_standing(Standing::Idle(Instant::now() + Duration::from_secs(3_600)));
    assert!(places.take_within("c", patience).await.is_err(), "nobody makes room in time");
    newcomer.set_standing(Standing::Idle(Instant::now() + Duration::from_secs(30)));
    let given_back = async {
        tokio::task::yield_now().await;
        drop(newcomer);
    };
    let (waited, ()) = tokio::join!(places.take_within("c", patience), given_back);
    waited.expect("a place that was given back");
}
