//! A training loop over a stream: its progress, its receipts, the run log, bad rows, and resumption.
//!
//! A [`Session`] delivers the batches of one rank, epoch after epoch. It separates the batches that it reads from those
//! that the consumer got, because only the latter move the progress.
//!
//! ```text
//! enter ─► PassId ─turn─► Turn ─fetch─► Fetched ─consumer gets it─► advance ─► Progress, Receipts
//!                                │                                     └─ at the end of an epoch: bad rows
//!                                ├─ opens the slice, or takes the prefetched one; writes the run log
//!                                └─ prefetches the next epoch when this one is read
//! ```
//!
//! - A *pass* is one loop over the session: the rest of an epoch, or more if the progress is changed meanwhile.
//! - A *turn* is the part of a pass in which positions follow each other. `set_epoch`, `load_state`, `restart`, `skip`,
//!   `set_weights`, `leave` and `close` end it. Batches of an earlier turn are not counted.
//!
//! All methods take `&self`. One lock guards the plain data and the open streams; it is never held while a method waits.

mod base;
mod change;
mod delivery;
mod fetch;
mod inner;
mod log;
mod options;
mod pass;
mod progress;
mod receipts;
mod saved;
mod state;

pub use base::{Session, Status};
pub use fetch::Fetched;
pub use options::SessionOptions;
pub use pass::{Advance, BatchKey, Left, PassId, Turn};
pub use progress::Progress;
pub use receipts::{Receipts, Substituted, substituted};
pub use saved::SavedSession;
