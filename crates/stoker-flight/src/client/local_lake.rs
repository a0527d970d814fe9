//! A lake in this process.

use std::ops::Deref;
use std::time::Duration;

use stoker_sql::Engine;
use stoker_stream::MemoryBudget;

use crate::client::ConnectOptions;
use crate::client::patience::Patience;

/// The engine of a lake in this process, and the memory of its streams. Cheap to clone; clones share both.
#[derive(Clone, Debug)]
pub struct LocalLake {
    engine: Engine,
    budget: MemoryBudget,
    retry_budget: Duration,
    patience: Patience,
}

impl LocalLake {
    /// An engine whose streams share a budget.
    pub fn new(engine: Engine, budget: MemoryBudget) -> Self {
        Self::with_patience(engine, budget, Patience::new(ConnectOptions::default().retry_budget))
    }

    /// As [`LocalLake::new`]. Where the lake lies on a disk of this machine, a fault is told at once.
    pub(crate) fn with_patience(engine: Engine, budget: MemoryBudget, patience: Patience) -> Self {
        let retry_budget = patience.budget();
        let patience = if engine.lake().is_local() { Patience::new(Duration::ZERO) } else { patience };
        Self { engine, budget, retry_budget, patience }
    }

    /// The memory of the batches of all streams that are being filled or wait to be taken.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// How long the reads of a stream are tried again that has no option of its own.
    pub(crate) fn retry_budget(&self) -> Duration {
        self.retry_budget
    }

    /// How long calls are made again while the store cannot be reached.
    pub(crate) fn patience(&self) -> &Patience {
        &self.patience
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
