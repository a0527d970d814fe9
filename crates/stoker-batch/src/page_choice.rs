//! Which pages new memory is in: those that the system hands out faster.
//!
//! A system clears a huge page some ten times faster than as many small ones, once the page has memory of the machine
//! behind it. A virtual machine may have returned its free huge pages to its host; each then comes back five times more
//! slowly than small pages, which are seldom returned. Programs cannot ask which is the case, so the time is measured.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// Huge pages that take less time than this are never worse than small ones, in nanoseconds per MiB.
const FAST_NANOS: f64 = 300_000.0;

/// How much faster other pages must be to be taken instead.
const GAIN_MIN: f64 = 1.25;

/// After this number of pieces of memory in the same pages, one is in the other pages, in case the system has changed.
const TRY_OTHERS_EVERY: u32 = 32;

/// The weight of the last measurement in the mean.
const WEIGHT: f64 = 0.5;

/// The pages of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Of 2 MiB.
    Huge,
    /// Of 4 KiB.
    Small,
}

/// Chooses pages by the times that earlier ones took.
#[derive(Debug)]
pub(crate) struct PageChoice {
    times: Mutex<Times>,
    num_chosen: AtomicU32,
}

/// The mean time until pages were there, in nanoseconds per MiB.
#[derive(Clone, Copy, Debug)]
struct Times {
    huge: Option<f64>,
    small: Option<f64>,
}

impl PageChoice {
    pub const fn new() -> Self {
        Self { times: Mutex::new(Times { huge: None, small: None }), num_chosen: AtomicU32::new(0) }
    }

    /// Returns the pages for the next piece of memory.
    pub fn next(&self) -> Pages {
        let times = *self.times.lock();
        let (Some(huge), number) = (times.huge, self.num_chosen.fetch_add(1, Ordering::Relaxed)) else {
            return Pages::Huge;
        };
        if huge < FAST_NANOS {
            return Pages::Huge;
        }
        let Some(small) = times.small else { return Pages::Small };
        let (best, other) =
            if small * GAIN_MIN < huge { (Pages::Small, Pages::Huge) } else { (Pages::Huge, Pages::Small) };
        if number % TRY_OTHERS_EVERY == TRY_OTHERS_EVERY - 1 { other } else { best }
    }

    /// Records how long the system took for some pages.
    pub fn measured(&self, pages: Pages, nanos_per_mib: f64) {
        let mut times = self.times.lock();
        let mean = match pages {
            Pages::Huge => &mut times.huge,
            Pages::Small => &mut times.small,
        };
        *mean = Some(mean.map_or(nanos_per_mib, |mean| mean + (nanos_per_mib - mean) * WEIGHT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: f64 = 100_000.0;
    const SLOW: f64 = 2_000_000.0;
    const SMALL: f64 = 400_000.0;

    /// Chooses pages `count` times on a system with these times. Returns how many were small.
    fn small_of(choice: &PageChoice, count: usize, huge: f64, small: f64) -> usize {
        let chosen = (0..count).map(|_| {
            let pages = choice.next();
            choice.measured(pages, if pages == Pages::Huge { huge } else { small });
            pages
        });
        chosen.filter(|pages| *pages == Pages::Small).count()
    }

    #[test]
    fn fast_huge_pages_are_always_taken() {
        assert_eq!(small_of(&PageChoice::new(), 200, FAST, SMALL), 0);
    }

    #[test]
    fn small_pages_are_taken_where_huge_ones_are_slow() {
        let small = small_of(&PageChoice::new(), 200, SLOW, SMALL);
        assert!((190..200).contains(&small), "{small} of 200");
    }

    #[test]
    fn slow_huge_pages_are_taken_where_small_ones_are_no_faster() {
        let small = small_of(&PageChoice::new(), 200, SLOW, SLOW);
        assert!((1..10).contains(&small), "{small} of 200");
    }

    #[test]
    fn a_choice_follows_the_system() {
        let choice = PageChoice::new();
        small_of(&choice, 100, SLOW, SMALL);
        small_of(&choice, 300, FAST, SMALL);
        assert_eq!(small_of(&choice, 100, FAST, SMALL), 0);
        let small = small_of(&choice, 100, SLOW, SMALL);
        assert!(small > 80, "{small} of 100");
    }
}
