//! A lake in this process.

use std::ops::Deref;
use std::time::Duration;

use stoker_sql::Engine;
use stoker_stream::MemoryBudget;

use crate::client::ConnectOptions;
use crate::client::patience::Patience;

/// The engine of a lake in this process, and the memory budget of its streams. Cheap to clone; clones share both.
#[derive(Clone, Debug)]
pub struct LocalLake {
    engine: Engine,
    budget: MemoryBudget,
    retry_budget: Duration,
    patience: Patience,
}

impl LocalLake {
    /// Wraps an engine whose streams share a memory budget.
    pub fn new(engine: Engine, budget: MemoryBudget) -> Self {
        Self::with_patience(engine, budget, Patience::new(ConnectOptions::default().retry_budget))
    }

    /// As [`LocalLake::new`], with a retry policy. Calls to a lake on a local disk are never retried.
    pub(crate) fn with_patience(engine: Engine, budget: MemoryBudget, patience: Patience) -> Self {
        let retry_budget = patience.budget();
        let patience = if engine.lake().is_local() { Patience::new(Duration::ZERO) } else { patience };
        Self { engine, budget, retry_budget, patience }
    }

    /// Returns the memory budget of all streams, for batches that are being filled or wait to be taken.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Returns the retry budget of reads, for streams without an option of their own.
    pub(crate) fn retry_budget(&self) -> Duration {
        self.retry_budget
    }

    /// Returns the retry policy of calls, for the time in which the object store cannot be reached.
    pub(crate) fn patience(&self) -> &Patience {
        &self.patience
    }
}

impl From<Engine> for LocalLake {
    /// Wraps an engine with the default memory budget.
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
