//! The contracts of streams, checked with random cases, in process and over Flight.
//!
//! ```text
//! strategy ──► Case (query, order, job) ──deliver──► what each rank got ──► it holds, or the smallest case is printed
//! ```
//!
//! A contract is one function of a [`Lab`] and a case. [`check`] calls it with many cases, in one test against the
//! engine in this process and in another against a server on this machine. The expected rows follow from
//! [`case::Query::ids`], so that a new kind of case is a new variant or field in `case.rs`. Their values follow from
//! the ids, in `lab.rs` and, for the columns of other kinds that each query selects too, in `kinds.rs`. Mixtures of
//! several queries have cases of their own, in `mixed_case.rs`; the tables of `bad_rows.rs` have damaged bytes.
//! `positions.rs` checks what needs no lake. Each run draws new cases and damaged rows, unless `PROPTEST_RNG_SEED` is set.

mod bad_rows;
mod buckets;
mod case;
pub mod damage;
mod delivery;
mod equal_steps;
mod exactly_once;
mod global_batches;
mod kinds;
mod lab;
mod mixed_case;
mod mixed_ranks;
mod mixed_shares;
mod mixed_walks;
mod mixed_weights;
mod orders;
mod packs;
mod positions;
mod provenance;
mod same_batches;
mod states;
mod trip;
mod walks;

use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::tests::contracts::case::Condition;
use crate::tests::contracts::lab::Lab;

/// The timeout of a case. Most cases take less than 0.1 s.
const CASE_MAX: Duration = Duration::from_secs(60);

/// The most smaller cases that are tried after one fails.
const SHRINKS_MAX: u32 = 300;

/// How batches reach the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// From the engine in this process.
    InProcess,
    /// From a server on this machine.
    OverFlight,
}

impl Transport {
    /// Returns the number of cases of each contract. A case over Flight opens a connection for each rank and endpoint.
    fn num_cases(self) -> u32 {
        match self {
            Transport::InProcess => 120,
            Transport::OverFlight => 40,
        }
    }
}

/// Checks a contract with many cases, which share a lake.
pub fn check<C: Debug>(
    transport: Transport,
    cases: impl Strategy<Value = C>,
    contract: impl AsyncFn(&Lab, &C) -> TestCaseResult,
) {
    check_some(transport, Condition::Sound, transport.num_cases(), cases, contract);
}

/// As [`check`], with a third of the cases: each reads one epoch several times, or several epochs.
pub fn check_few<C: Debug>(
    transport: Transport,
    cases: impl Strategy<Value = C>,
    contract: impl AsyncFn(&Lab, &C) -> TestCaseResult,
) {
    check_some(transport, Condition::Sound, transport.num_cases() / 3, cases, contract);
}

/// As [`check_few`], over the damaged tables.
pub fn check_damaged<C: Debug>(
    transport: Transport,
    cases: impl Strategy<Value = C>,
    contract: impl AsyncFn(&Lab, &C) -> TestCaseResult,
) {
    check_some(transport, Condition::Damaged, transport.num_cases() / 3, cases, contract);
}

fn check_some<C: Debug>(
    transport: Transport,
    condition: Condition,
    num_cases: u32,
    cases: impl Strategy<Value = C>,
    contract: impl AsyncFn(&Lab, &C) -> TestCaseResult,
) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let lab = runtime.block_on(Lab::new(transport, condition));
    let config = ProptestConfig {
        cases: num_cases,
        failure_persistence: None,
        max_shrink_iters: SHRINKS_MAX,
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&cases, |case| {
        runtime.block_on(async {
            match timeout(CASE_MAX, contract(&lab, &case)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(TestCaseError::fail(format!("it is not done after {CASE_MAX:?}"))),
            }
        })
    });
    if let Err(error) = outcome {
        panic!("{error}\n{runner}");
    }
}
