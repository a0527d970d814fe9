//! Daily limits on what one client may write to a lake beside its tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{Error, Result};

/// The period that an allowance covers. The first write after it has passed begins a new period.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A limit on the objects and bytes that one client may create under `_stoker/` in a day. Each process counts on its
/// own.
#[derive(Debug)]
pub struct WriteAllowance {
    holder: String,
    objects_max: u64,
    bytes_max: u64,
    spent: Mutex<Spent>,
}

#[derive(Debug)]
struct Spent {
    since: Instant,
    objects: u64,
    bytes: u64,
}

impl WriteAllowance {
    /// An allowance of `objects_max` objects and `bytes_max` bytes a day. Errors name `holder`, the client that it
    /// belongs to.
    pub fn new(holder: impl Into<String>, objects_max: u64, bytes_max: u64) -> Self {
        let spent = Mutex::new(Spent { since: Instant::now(), objects: 0, bytes: 0 });
        Self { holder: holder.into(), objects_max, bytes_max, spent }
    }

    /// Counts `objects` new objects of `bytes` bytes in total. The count stays if the returned expense is kept, and
    /// is undone if it is dropped.
    ///
    /// # Errors
    /// [`Error::AllowanceSpent`] when less than that is left of the allowance; then nothing is counted.
    pub fn spend(self: &Arc<Self>, objects: u64, bytes: u64) -> Result<Expense> {
        let mut spent = self.spent.lock();
        if spent.since.elapsed() >= DAY {
            *spent = Spent { since: Instant::now(), objects: 0, bytes: 0 };
        }
        let (all_objects, all_bytes) = (spent.objects.saturating_add(objects), spent.bytes.saturating_add(bytes));
        let limit = match () {
            () if all_objects > self.objects_max => format!("{} objects", self.objects_max),
            () if all_bytes > self.bytes_max => format!("{} bytes", self.bytes_max),
            () => {
                (spent.objects, spent.bytes) = (all_objects, all_bytes);
                return Ok(Expense { of: self.clone(), since: spent.since, objects, bytes });
            }
        };
        let left = DAY.saturating_sub(spent.since.elapsed());
        Err(Error::AllowanceSpent { holder: self.holder.clone(), limit, hours: left.as_secs().div_ceil(3600) })
    }
}

/// What was counted for objects that are being written. Dropping it undoes the count.
#[derive(Debug)]
#[must_use = "dropping it without `keep` undoes the count"]
pub struct Expense {
    of: Arc<WriteAllowance>,
    /// The start of the day in which the objects were counted.
    since: Instant,
    objects: u64,
    bytes: u64,
}

impl Expense {
    /// Makes the count final, because the objects were written or may have been written.
    pub fn keep(mut self) {
        (self.objects, self.bytes) = (0, 0);
    }
}

impl Drop for Expense {
    fn drop(&mut self) {
        let mut spent = self.of.spent.lock();
        if spent.since == self.since {
            spent.objects = spent.objects.saturating_sub(self.objects);
            spent.bytes = spent.bytes.saturating_sub(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stoker_types::ErrorKind;

    use super::WriteAllowance;
    use crate::{LakeStore, PutOutcome, StorageOptions};

    #[tokio::test]
    async fn objects_that_are_there_cost_nothing_and_new_ones_until_it_is_spent() {
        let lake = LakeStore::open("memory://lake", &StorageOptions::default()).await.expect("a lake");
        let objects = lake.within(Arc::new(WriteAllowance::new("vision_job", 2, 10))).objects();
        let put = async |name: &str, bytes: &'static str| objects.put_if_absent(name, bytes.into()).await;
        assert_eq!(put("specs/a", "1234").await.expect("written"), PutOutcome::Created);
        assert_eq!(put("specs/a", "1234").await.expect("there"), PutOutcome::Exists);
        let error = put("specs/b", "1234567").await.expect_err("too many bytes");
        assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
        assert!(error.to_string().starts_with("vision_job has used up its 10 bytes per day"), "{error}");
        assert_eq!(put("specs/b", "123456").await.expect("written"), PutOutcome::Created);
        assert_eq!(put("specs/a", "1234").await.expect("there"), PutOutcome::Exists, "also when it is spent");
        let error = put("specs/c", "").await.expect_err("too many objects").to_string();
        assert!(
            error.starts_with("vision_job has used up its 2 objects per day") && error.contains("in 24 h"),
            "{error}"
        );
        objects.put("specs/a", "1".into()).await.expect("what is there is replaced");
        lake.objects().put("specs/c", "".into()).await.expect("others write as before");
    }

    #[test]
    fn what_is_not_written_is_taken_back_and_all_or_nothing_is_counted() {
        let allowance = Arc::new(WriteAllowance::new("vision_job", 10, 100));
        drop(allowance.spend(10, 100).expect("all of it"));
        allowance.spend(9, 90).expect("as if nothing had been").keep();
        assert!(allowance.spend(2, 2).is_err());
        assert!(allowance.spend(1, 11).is_err());
        allowance.spend(1, 10).expect("the last one").keep();
        assert!(allowance.spend(1, 0).is_err());
    }
}
