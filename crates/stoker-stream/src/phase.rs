//! The phases of a stream, which say what its planner reads next.
//!
//! ```text
//!                          begun                    first batch read
//! HeldBack ───────────────────────────► First ─────────────────────────► Steady
//!                                         ▲                               ▲  ▲
//!                          begun          │                               │  │
//! FirstAhead ─────────────────────────────┘                               │  │
//!   │        first batch read, the stream does not pause                  │  │
//!   ├─────────────────────────────────────────────────────────────────────┘  │
//!   │        first batch read                          begun                 │
//!   └───────────────────────────────► Ahead ─────────────────────────────────┘
//! ```
//!
//! A stream that has begun is opened in `First`, a prefetching one in `FirstAhead` or `HeldBack`. *Begun* is the moment
//! at which the consumer of a prefetching stream wants its batches. The first batch counts as *read* once reads of all
//! of its positions have started. No phase is entered twice.
//!
//! | phase | next unit | pause before the next unit |
//! | --- | --- | --- |
//! | `HeldBack` | none | until the stream begins |
//! | `FirstAhead` | as [`FirstUnit`] says | none |
//! | `First` | as [`FirstUnit`] says | after the last unit of the batch, until its first one is read |
//! | `Ahead` | a whole unit | as [`Pause`] says |
//! | `Steady` | a whole unit | none |

/// What a stream reads, and when. Memory and the number of concurrent units limit all phases alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A prefetching stream reads nothing before it begins. Its first unit is a window, and there was not enough memory
    /// for it when the stream was opened.
    HeldBack {
        /// The position at which the first batch ends.
        first_end: u64,
    },
    /// A prefetching stream reads its first batch.
    FirstAhead {
        /// The first batch.
        first: FirstBatch,
        /// When the stream pauses after its first batch. `None` if it does not pause.
        pause: Option<Pause>,
    },
    /// The consumer waits for the first batch.
    First(FirstBatch),
    /// A prefetching stream has read its first batch, and pauses before each unit after it.
    Ahead(Pause),
    /// The stream reads one unit after the other. It has begun, or it is a prefetching one that does not pause.
    Steady,
}

/// The first global batch of a stream, which is not read completely yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstBatch {
    /// The position at which the batch ends.
    pub end: u64,
    /// The unit in which the batch is read.
    pub unit: FirstUnit,
}

/// The unit in which the first batch is read. The budget may cut it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstUnit {
    /// The unit ends with the batch. The batch has so few rows that they are best read row by row.
    Rows,
    /// The unit ends with the batch.
    Batch,
    /// The unit is a window of the order, which may have more rows than the batch.
    Window,
}

/// When a prefetching stream that has read its first batch reads another unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// As soon as there is memory for all of the unit, or the stream begins. Reading a window in small pieces would
    /// cost many more requests.
    UntilRoom,
    /// When the stream begins.
    UntilBegun,
}

impl Phase {
    /// Opens a stream that has begun.
    pub fn opened(first: FirstBatch) -> Self {
        Phase::First(first)
    }

    /// Opens a prefetching stream. `has_room` says whether there is memory for a unit that is a window.
    pub fn opened_ahead(first: FirstBatch, pause: Option<Pause>, has_room: impl FnOnce() -> bool) -> Self {
        match first.unit {
            // Without the window, each row of a large batch would take a request.
            FirstUnit::Window if !has_room() => Phase::HeldBack { first_end: first.end },
            _ => Phase::FirstAhead { first, pause },
        }
    }

    /// The stream has begun. Nothing changes if it had begun before.
    pub fn begun(self) -> Self {
        match self {
            Phase::HeldBack { first_end } => Phase::First(FirstBatch { end: first_end, unit: FirstUnit::Window }),
            Phase::FirstAhead { first, .. } => Phase::First(first),
            Phase::Ahead(_) => Phase::Steady,
            Phase::First(_) | Phase::Steady => self,
        }
    }

    /// Reads of all positions before `position` have started.
    pub fn read_up_to(self, position: u64) -> Self {
        match self {
            Phase::First(first) if first.end <= position => Phase::Steady,
            Phase::FirstAhead { first, pause } if first.end <= position => pause.map_or(Phase::Steady, Phase::Ahead),
            _ => self,
        }
    }

    /// Returns the position at which the next unit ends at the latest, if the phase limits the unit.
    pub fn unit_end_max(self) -> Option<u64> {
        match self.first()? {
            FirstBatch { unit: FirstUnit::Window, .. } => None,
            FirstBatch { end, .. } => Some(end),
        }
    }

    /// Returns the first batch, while it is being read.
    pub fn first(self) -> Option<FirstBatch> {
        match self {
            Phase::First(first) | Phase::FirstAhead { first, .. } => Some(first),
            Phase::HeldBack { .. } | Phase::Ahead(_) | Phase::Steady => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FirstBatch, FirstUnit, Pause, Phase};

    const UNITS: [FirstUnit; 3] = [FirstUnit::Rows, FirstUnit::Batch, FirstUnit::Window];
    const PAUSES: [Option<Pause>; 3] = [None, Some(Pause::UntilRoom), Some(Pause::UntilBegun)];

    fn first(unit: FirstUnit) -> FirstBatch {
        FirstBatch { end: 10, unit }
    }

    #[test]
    fn only_windows_are_held_back_and_only_without_room() {
        for (unit, pause) in UNITS.into_iter().flat_map(|unit| PAUSES.map(|pause| (unit, pause))) {
            let ahead = Phase::FirstAhead { first: first(unit), pause };
            assert_eq!(Phase::opened_ahead(first(unit), pause, || true), ahead);
            let without_room = Phase::opened_ahead(first(unit), pause, || false);
            match unit {
                FirstUnit::Window => {
                    assert_eq!(without_room, Phase::HeldBack { first_end: 10 });
                    assert_eq!((without_room.read_up_to(10), without_room.first()), (without_room, None));
                    assert_eq!(without_room.begun(), Phase::opened(first(unit)));
                }
                _ => assert_eq!(without_room, ahead),
            }
        }
    }

    #[test]
    fn first_batches_end_their_unit_unless_it_is_a_window() {
        for (unit, expected) in UNITS.into_iter().zip([Some(10), Some(10), None]) {
            for phase in [Phase::First(first(unit)), Phase::FirstAhead { first: first(unit), pause: None }] {
                assert_eq!((phase.unit_end_max(), phase.first()), (expected, Some(first(unit))));
            }
        }
        assert_eq!([Phase::Steady, Phase::Ahead(Pause::UntilRoom)].map(Phase::unit_end_max), [None, None]);
    }

    #[test]
    fn streams_pause_after_the_first_batch_only_before_they_begin() {
        for (unit, pause) in UNITS.into_iter().flat_map(|unit| PAUSES.map(|pause| (unit, pause))) {
            let ahead = Phase::FirstAhead { first: first(unit), pause };
            assert_eq!(ahead.read_up_to(9), ahead, "a row of the batch is left");
            let after = ahead.read_up_to(10);
            assert_eq!(after, pause.map_or(Phase::Steady, Phase::Ahead));
            let begun = ahead.begun();
            assert_eq!(begun, Phase::First(first(unit)));
            assert_eq!((begun.begun(), begun.read_up_to(9)), (begun, begun));
            for ended in [after.begun(), begun.read_up_to(10), begun.read_up_to(11)] {
                assert_eq!((ended, ended.begun(), ended.read_up_to(20)), (Phase::Steady, Phase::Steady, Phase::Steady));
            }
        }
    }
}
