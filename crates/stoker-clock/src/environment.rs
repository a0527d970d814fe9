//! What a component gets from the machine, apart from memory and I/O.

use crate::{Clock, Random};

/// Time and random numbers. Cheap to clone; clones share both. The default is the machine's.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The source of time.
    pub clock: Clock,
    /// The source of random numbers.
    pub random: Random,
}
