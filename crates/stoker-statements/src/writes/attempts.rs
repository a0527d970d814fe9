//! Evaluates a statement again after commits of others that came in between.

use std::time::Duration;

use stoker_clock::Environment;
use stoker_lake::{CommitKey, Table};
use stoker_types::TableName;

use super::Execution;
use crate::{Error, Result};

/// The most evaluations of a statement.
const EVALUATIONS_MAX: u32 = 50;

/// The bound of the wait before the second evaluation. It doubles with each further one, up to [`WAIT_MAX`].
const WAIT_FIRST: Duration = Duration::from_millis(20);

/// The longest wait.
const WAIT_MAX: Duration = Duration::from_millis(1_280);

/// The evaluations of a statement.
pub(crate) struct Attempts {
    environment: Environment,
    num_conflicts: u32,
    key: String,
    /// The version of the table that the first evaluation began with; 0 before it.
    since_version: u64,
}

impl Attempts {
    pub fn new(environment: &Environment) -> Self {
        let (high, low) = (environment.random.number(), environment.random.number());
        Self {
            environment: environment.clone(),
            num_conflicts: 0,
            key: format!("statement-{high:016x}{low:016x}"),
            since_version: 0,
        }
    }

    /// The idempotency key of the statement's commit, which is the same in all evaluations.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Opens the newest version of the table for the next evaluation.
    ///
    /// # Errors
    /// As for [`Execution::table`].
    pub async fn table(&mut self, execution: Execution<'_>, name: &TableName) -> Result<Table> {
        let table = execution.table(name).await?;
        if self.since_version == 0 {
            self.since_version = table.version();
        }
        Ok(table)
    }

    /// The idempotency key of a commit of rows, which is looked for in the versions after the first evaluation.
    pub fn commit_key(&self) -> CommitKey<'_> {
        CommitKey { key: &self.key, since_version: self.since_version, chosen_at: None }
    }

    /// Waits before the statement is evaluated again: a random time, whose bound doubles with each conflict.
    ///
    /// # Errors
    /// An error that is no conflict; [`Error::Contention`] after the last evaluation.
    pub async fn after(&mut self, error: Error) -> Result<()> {
        let (table, version, what) = match error {
            Error::Lake(stoker_lake::Error::Conflict { table, version, what }) => (table, version, what),
            Error::Lake(stoker_lake::Error::Overtaken { table, version }) => (table, version, "rows were added".into()),
            error => return Err(error),
        };
        self.num_conflicts += 1;
        if self.num_conflicts >= EVALUATIONS_MAX {
            return Err(Error::Contention { table, version, what, num_evaluations: self.num_conflicts });
        }
        let bound = WAIT_FIRST.saturating_mul(1 << self.num_conflicts.min(10)).min(WAIT_MAX);
        self.environment.clock.sleep(bound.mul_f64(self.environment.random.fraction())).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stoker_clock::{Clock, ManualClock, Random};
    use stoker_types::ErrorKind;

    use super::*;

    #[test]
    fn conflicts_are_waited_for_and_end() {
        let clock = ManualClock::new();
        let environment = Environment { clock: Clock::from(&clock), random: Random::given([u64::MAX]) };
        let mut attempts = Attempts::new(&environment);
        let conflict = || {
            let (table, what) = ("t".to_string(), "rows were updated".to_string());
            Error::Lake(stoker_lake::Error::Conflict { table, version: 7, what })
        };
        let started = clock.now();
        for _ in 1..EVALUATIONS_MAX {
            clock.run(attempts.after(conflict())).expect("another evaluation");
        }
        let waited = clock.now() - started;
        assert!(waited > WAIT_MAX * 40 && waited < WAIT_MAX * 50, "{waited:?}");
        let last = clock.run(attempts.after(conflict())).expect_err("the last evaluation");
        assert_eq!(last.kind(), ErrorKind::Unavailable);
        let text = last.to_string();
        assert!(
            text.contains("table t") && text.contains("all of its 50 evaluations") && text.contains("version 7"),
            "{text}"
        );
        let other = Error::refused("a", "b");
        assert!(matches!(clock.run(attempts.after(other)), Err(Error::Refused { .. })));
    }
}
