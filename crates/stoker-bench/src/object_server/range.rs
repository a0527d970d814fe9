//! Parses the header `Range`.

use std::ops::Range;

/// The bytes that a header requests.
#[derive(Debug, PartialEq, Eq)]
pub enum RangeHeader {
    /// The whole object.
    All,
    /// A part of the object that is not empty.
    Part(Range<u64>),
    /// A part that the object does not have.
    Unsatisfiable,
}

/// Returns the part that `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-COUNT` means for an object of `size` bytes. Any
/// other header is ignored, as RFC 9110 allows.
pub fn wanted(header: Option<&str>, size: u64) -> RangeHeader {
    let Some((first, last)) = header.and_then(|value| value.strip_prefix("bytes=")?.split_once('-')) else {
        return RangeHeader::All;
    };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => first..last.saturating_add(1).min(size),
        (Ok(first), Err(_)) if last.is_empty() => first..size,
        (Err(_), Ok(count)) if first.is_empty() => size.saturating_sub(count)..size,
        _ => return RangeHeader::All,
    };
    if range.is_empty() { RangeHeader::Unsatisfiable } else { RangeHeader::Part(range) }
}

#[cfg(test)]
mod tests {
    use super::{RangeHeader, wanted};

    #[test]
    fn ranges_are_cut_at_the_end_of_the_object() {
        for (header, expected) in [
            ("bytes=0-9", RangeHeader::Part(0..10)),
            ("bytes=5-1000", RangeHeader::Part(5..100)),
            ("bytes=99-", RangeHeader::Part(99..100)),
            ("bytes=-7", RangeHeader::Part(93..100)),
            ("bytes=-700", RangeHeader::Part(0..100)),
            ("bytes=100-", RangeHeader::Unsatisfiable),
            ("bytes=-0", RangeHeader::Unsatisfiable),
            ("bytes=7-3", RangeHeader::Unsatisfiable),
            ("bytes=0-1,5-6", RangeHeader::All),
            ("rows=0-9", RangeHeader::All),
        ] {
            assert_eq!(wanted(Some(header), 100), expected, "{header}");
        }
        assert_eq!(wanted(None, 100), RangeHeader::All);
    }
}
