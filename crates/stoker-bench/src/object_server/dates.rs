//! Formats dates as HTTP and S3 write them.

use std::time::{SystemTime, UNIX_EPOCH};

use stoker_types::to_usize;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A time in UTC.
struct Utc {
    days: u64,
    year: u64,
    /// The month, from 1.
    month: u64,
    /// The day of the month, from 1.
    day: u64,
    /// Seconds since midnight.
    secs: u64,
}

impl Utc {
    /// Converts a time; times before 1970 become the start of 1970.
    fn new(time: SystemTime) -> Self {
        let total = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let days = total / 86_400;
        // This is Howard Hinnant's `civil_from_days` (https://howardhinnant.github.io/date_algorithms.html), for days
        // from 1970 on.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Self { days, year, month, day, secs: total % 86_400 }
    }

    fn clock(&self) -> String {
        format!("{:02}:{:02}:{:02}", self.secs / 3_600, self.secs / 60 % 60, self.secs % 60)
    }
}

/// Formats a date for the header `Last-Modified` (RFC 9110, section 5.6.7).
pub fn http_date(time: SystemTime) -> String {
    let utc = Utc::new(time);
    let (day, month) = (DAYS[(utc.days % 7) as usize], MONTHS[to_usize(utc.month - 1)]);
    format!("{day}, {:02} {month} {} {} GMT", utc.day, utc.year, utc.clock())
}

/// Formats a date for listings (RFC 3339).
pub fn listing_date(time: SystemTime) -> String {
    let utc = Utc::new(time);
    format!("{}-{:02}-{:02}T{}.000Z", utc.year, utc.month, utc.day, utc.clock())
}
