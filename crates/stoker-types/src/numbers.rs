//! Conversions between types of numbers that always have a result.

use std::time::Duration;

/// Converts a count or an offset to the type of the lengths of slices; numbers that do not fit become `usize::MAX`. No
/// number of up to 64 bits changes on machines with addresses of 64 bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "larger numbers than `usize::MAX` are not cast")]
pub const fn to_usize(number: u64) -> usize {
    if number > usize::MAX as u64 { usize::MAX } else { number as usize }
}

/// Rounds to the nearest integer. Negative numbers and NaN become 0, and too large ones `u32::MAX`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
pub fn round_to_u32(number: f64) -> u32 {
    number.round() as u32
}

/// Converts a duration to whole milliseconds, at most `u64::MAX`.
pub fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a duration to whole microseconds, at most `u64::MAX`.
pub fn to_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Converts a duration to nanoseconds, at most `u64::MAX`.
pub fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_become_the_largest_that_does() {
        assert_eq!([0, 7].map(to_usize), [0, 7]);
        assert_eq!(to_usize(u64::MAX), usize::MAX);
        assert_eq!([0.0, 2.4, 2.5, -7.0, 1e300, f64::NAN].map(round_to_u32), [0, 2, 3, 0, u32::MAX, 0]);
        let time = Duration::from_nanos(1_999_999_999);
        assert_eq!((to_millis(time), to_micros(time), to_nanos(time)), (1_999, 1_999_999, 1_999_999_999));
        assert_eq!([to_millis, to_micros, to_nanos].map(|to| to(Duration::MAX)), [u64::MAX; 3]);
    }
}
