//! Keys that make a write happen once, however often a client retries it.

use stoker_clock::Environment;
use stoker_types::DigestBuilder;
use stoker_types::calls::WriteKey;

/// The key of a new write to a table whose newest version is `since_version`; 0 where there is no table.
pub fn new_write_key(since_version: u64, environment: &Environment) -> WriteKey {
    let time = environment.clock.unix_time().as_nanos();
    // After a fork, both processes have the same random numbers: the process id tells them apart.
    let process = std::process::id();
    let random = [environment.random.number(), environment.random.number()];
    let digest = DigestBuilder::new("stoker.write_key.v1").part(&time.to_le_bytes()).part(&process.to_le_bytes());
    let digest = random.iter().fold(digest, |digest, number| digest.part(&number.to_le_bytes()));
    WriteKey { key: digest.finish().to_string(), since_version }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stoker_clock::{Clock, ManualClock, Random};

    use super::*;

    #[test]
    fn keys_differ_by_their_time_and_by_their_random_numbers() {
        let time = ManualClock::new();
        let key = |numbers: [u64; 2]| {
            let environment = Environment { clock: Clock::from(&time), random: Random::given(numbers) };
            new_write_key(7, &environment)
        };
        let first = key([1, 2]);
        assert_eq!((first.since_version, key([1, 2])), (7, first.clone()));
        for numbers in [[2, 1], [1, 3], [3, 2]] {
            assert_ne!(key(numbers).key, first.key, "{numbers:?}");
        }
        time.set_unix_time(Duration::from_nanos(1));
        assert_ne!(key([1, 2]).key, first.key);
        let of_machine = || new_write_key(7, &Environment::default()).key;
        assert_ne!(of_machine(), of_machine());
    }
}
