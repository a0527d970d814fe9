//! A lake in this process.

use std::ops::Deref;

use stoker_sql::Engine;
use stoker_stream::MemoryBudget;

/// The engine of a lake in this process, and the memory of its streams. Cheap to clone; clones share both.
#[derive(Clone, Debug)]
pub struct LocalLake {
    engine: Engine,
    budget: MemoryBudget,
}

impl LocalLake {
    /// An engine whose streams share a budget.
    pub fn new(engine: Engine, budget: MemoryBudget) -> Self {
        Self { engine, budget }
    }

    /// The memory of the batches of all streams that are being filled or wait to be taken.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }
}

impl From<Engine> for LocalLake {
    /// An engine with the default budget.
    fn from(engine: Engine) -> Self {
        Self::new(engine, MemoryBudget::default())
    }
}

impl Deref for LocalLake {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}
