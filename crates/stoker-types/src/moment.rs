//! Points in time.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time on a clock, as the time since the start of that clock. Moments of different clocks have nothing to
/// do with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The start of the clock.
    pub const START: Self = Self(Duration::ZERO);
}

/// The moment a duration later. The last moment that can be represented stands for all later ones.
impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, wait: Duration) {
        *self = *self + wait;
    }
}

/// The time from one moment to a later one; zero if it is not later.
impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_neither_overflow_nor_go_back() {
        let second = Duration::from_secs(1);
        let mut later = Moment::START + second;
        assert_eq!((later - Moment::START, Moment::START - later), (second, Duration::ZERO));
        later += Duration::MAX;
        assert_eq!(later - Moment::START, Duration::MAX);
    }
}
