//! Tests of streams that share one budget.

use std::pin::pin;
use std::time::Duration;

use futures::poll;
use proptest::collection::vec;
use proptest::prelude::*;
use stoker_clock::{Clock, ManualClock};
use stoker_types::ReadOptions;

use super::run;
use crate::{Held, MemoryBudget, Quota};

/// An event that changes a budget. A stream is named by any number, modulo the number of open streams.
#[derive(Clone, Debug)]
enum Event {
    Join { cap: u64 },
    JoinAhead { cap: u64 },
    Reserve { stream: usize, bytes: u64 },
    Free { stream: usize },
    SetCap { stream: usize, cap: u64 },
    Retire { stream: usize },
    Leave { stream: usize },
}

fn event() -> impl Strategy<Value = Event> {
    let stream = 0..1_000usize;
    prop_oneof![
        2 => prop_oneof![Just(u64::MAX), 0..500u64].prop_map(|cap| Event::Join { cap }),
        1 => (0..500u64).prop_map(|cap| Event::JoinAhead { cap }),
        6 => (stream.clone(), 0..300u64).prop_map(|(stream, bytes)| Event::Reserve { stream, bytes }),
        4 => stream.clone().prop_map(|stream| Event::Free { stream }),
        1 => (stream.clone(), 0..500u64).prop_map(|(stream, cap)| Event::SetCap { stream, cap }),
        1 => stream.clone().prop_map(|stream| Event::Retire { stream }),
        1 => stream.prop_map(|stream| Event::Leave { stream }),
    ]
}

struct Member {
    quota: Quota,
    held: Vec<Held>,
    reads: bool,
    /// The stream's cap after it begins. It is `None` unless the stream is prefetching.
    ahead: Option<u64>,
}

impl Member {
    fn bytes(&self) -> u64 {
        self.held.iter().map(Held::bytes).sum()
    }
}

proptest! {
    /// Streams together hold at most the total and one batch each, a stream that holds nothing may reserve at once, and
    /// the shares of streams that have begun are within the total.
    #[test]
    fn a_budget_is_kept_and_blocks_nobody(total in 0u64..1_000, events in vec(event(), 0..300)) {
        let budget = MemoryBudget::new(total);
        let mut members: Vec<Member> = Vec::new();
        for event in events {
            let num = members.len();
            match event {
                Event::Join { cap } => {
                    members.push(Member { quota: budget.join(cap), held: Vec::new(), reads: true, ahead: None });
                }
                Event::JoinAhead { cap } => {
                    let options = ReadOptions { ahead: true, memory_budget_bytes: cap, ..ReadOptions::default() };
                    let (quota, held) = (budget.join_with(&options), Vec::new());
                    members.push(Member { quota, held, reads: true, ahead: Some(cap) });
                }
                _ if num == 0 => {}
                Event::Reserve { stream, bytes } => {
                    let member = &mut members[stream % num];
                    let (before, all) = (member.bytes(), budget.held_bytes());
                    let fits = before + bytes <= member.quota.bytes() && all + bytes <= total;
                    let room = member.quota.try_reserve(bytes);
                    match member.ahead {
                        None => prop_assert_eq!(room.is_some(), before == 0 || fits),
                        Some(_) => prop_assert!(room.is_some() <= (before == 0 || fits) && room.is_some() >= (before == 0)),
                    }
                    member.held.extend(room);
                }
                Event::Free { stream } => {
                    let held = &mut members[stream % num].held;
                    held.truncate(held.len().saturating_sub(1));
                }
                Event::SetCap { stream, cap } => {
                    let member = &mut members[stream % num];
                    member.quota.begin(cap);
                    member.ahead = None;
                    prop_assert!(member.quota.bytes() <= cap);
                }
                Event::Retire { stream } => {
                    let member = &mut members[stream % num];
                    member.quota.retire();
                    member.reads = false;
                }
                Event::Leave { stream } => drop(members.swap_remove(stream % num)),
            }
            prop_assert_eq!(budget.held_bytes(), members.iter().map(Member::bytes).sum::<u64>());
            let batches: u64 = members.iter().filter_map(|member| member.held.iter().map(Held::bytes).max()).sum();
            prop_assert!(budget.held_bytes() <= total + batches);
            let now = members.iter().filter(|member| member.reads && member.ahead.is_none());
            let shares: u64 = now.map(|member| member.quota.bytes()).sum();
            prop_assert!(shares <= total, "shares of {shares} bytes");
            // Prefetching streams leave half of the total free, except for the small share and the one batch that each
            // of them may hold.
            let ahead = || members.iter().filter(|member| member.ahead.is_some());
            let early: u64 = ahead().map(|member| member.ahead.unwrap_or(0) / 16 + 1).sum();
            let batches: u64 = ahead().filter_map(|member| member.held.iter().map(Held::bytes).max()).sum();
            let held: u64 = ahead().map(Member::bytes).sum();
            prop_assert!(held <= total / 2 + early + batches, "{held} bytes before their time");
        }
    }
}

#[test]
fn shares_are_equal_and_grow_when_streams_end() {
    let budget = MemoryBudget::new(1_200);
    let first = budget.join(u64::MAX);
    assert_eq!(first.bytes(), 1_200);
    let small = budget.join(50);
    assert_eq!((first.bytes(), small.bytes()), (1_150, 50));
    let others: Vec<Quota> = (0..10).map(|_| budget.join(u64::MAX)).collect();
    assert_eq!((first.bytes(), small.bytes()), (1_150 / 11, 50));
    // A stream that has read everything requests nothing more.
    others[1..].iter().for_each(Quota::retire);
    assert_eq!(first.bytes(), 1_150 / 2);
    drop(others);
    assert_eq!((first.bytes(), budget.total_bytes()), (1_150, 1_200));
    let default = MemoryBudget::default();
    assert_eq!(default.join(4 << 30).bytes(), 4 << 30, "where no total was said, a stream gets what it asks for");
}

#[test]
fn a_waiting_stream_wakes_when_room_is_free_and_when_its_share_grows() {
    run(async {
        let budget = MemoryBudget::new(100);
        let (one, two) = (budget.join(u64::MAX), budget.join(u64::MAX));
        let first = one.reserve(40).await;
        let second = {
            let mut waiting = pin!(one.reserve(40));
            assert!(poll!(waiting.as_mut()).is_pending(), "its share is 50");
            drop(two);
            waiting.await
        };
        let third = {
            let mut waiting = pin!(one.reserve(40));
            assert!(poll!(waiting.as_mut()).is_pending(), "its share is 100");
            drop(first);
            waiting.await
        };
        let kept = second.bytes() + third.bytes();
        assert!(one.reserve_beside(40, kept).await.is_none(), "nobody would free what it waits for");
        drop((second, third));
        assert_eq!(one.reserve(1_000).await.bytes(), 1_000, "a batch that is larger comes alone");
        assert_eq!(budget.held_bytes(), 0);
    });
}

#[tokio::test]
async fn memory_of_a_stream_that_ended_is_kept_for_the_next_one_and_then_given_back() {
    let fill = |budget: &MemoryBudget| budget.pool().take(100_000).expect("memory").as_mut().fill(1);
    let is_kept = |budget: &MemoryBudget| budget.pool().take(100_000).expect("memory").as_ref()[0] == 1;
    let time = ManualClock::new();
    let budget = MemoryBudget::with_clock(Some(1 << 20), Clock::from(&time));
    let (stream, second, _ahead) = (budget.join(u64::MAX), budget.join(u64::MAX), budget.join(10_000));
    fill(&budget);
    let pass = async |secs| {
        tokio::task::yield_now().await;
        time.advance(Duration::from_secs(secs));
        tokio::task::yield_now().await;
    };
    drop(stream);
    pass(4).await;
    drop(second);
    pass(4).await;
    assert!(is_kept(&budget), "another stream ended four seconds ago, and the next epoch's stream may take it");
    pass(1).await;
    assert!(!is_kept(&budget));
}

#[test]
fn a_prefetching_stream_holds_no_more_than_its_depth_together_with_those_before_it() {
    let budget = MemoryBudget::new(16_000);
    let before = budget.join(16_000);
    let held = before.try_reserve(300).expect("memory");
    let next = budget.join_with(&ReadOptions { ahead: true, memory_budget_bytes: 16_000, ..ReadOptions::default() });
    next.set_depth(400);
    before.retire();
    let first = next.try_reserve(100).expect("a quarter of its depth");
    assert!(next.try_reserve(1).is_none());
    drop(held);
    let second = next.try_reserve(300).expect("the rest of its depth");
    assert!(next.try_reserve(1).is_none());
    next.begin(16_000);
    assert!(next.try_reserve(1).is_none());
    drop((first, second));
    assert!(next.try_reserve(400).is_some());
}

#[test]
fn a_stream_waits_until_the_others_hold_little() {
    run(async {
        let budget = MemoryBudget::new(1_000);
        let (own, one, two) = (budget.join(1_000), budget.join(1_000), budget.join(1_000));
        let _mine = own.try_reserve(300).expect("memory");
        let (of_one, of_two) = (one.try_reserve(80).expect("memory"), two.try_reserve(40).expect("memory"));
        let mut waiting = pin!(own.until_others_hold_at_most(50));
        assert!(poll!(waiting.as_mut()).is_pending(), "the others hold 60 each");
        drop(of_two);
        waiting.await;
        let mut waiting = pin!(own.until_others_hold_at_most(50));
        drop(two);
        assert!(poll!(waiting.as_mut()).is_pending(), "the only other one holds 80");
        drop((of_one, one));
        waiting.await;
    });
}
