use std::time::Duration;

use object_store::path::Path;
use stoker_types::ErrorKind;

use super::lock::Lease;
use super::{Dated, KeptBy, replaced_before, version_of};
use crate::{LakeStore, StorageOptions};

const HOUR: i64 = 3_600_000;

fn dated(version: u64, hours: i64) -> Dated {
    Dated { version, since_millis: hours * HOUR, kept_by: KeptBy::Nothing }
}

#[test]
fn a_version_ages_from_the_one_that_replaced_it() {
    let numbers = |versions: Vec<Dated>, now: i64, kept_hours: u64| -> Vec<u64> {
        let old = replaced_before(versions, now * HOUR, Duration::from_secs(kept_hours * 3600));
        old.iter().map(|dated| dated.version).collect()
    };
    let versions = || vec![dated(1, 0), dated(2, 10), dated(3, 40), dated(4, 41)];
    assert_eq!(numbers(versions(), 34, 24), Vec::<u64>::new());
    assert_eq!(numbers(versions(), 35, 24), [1]);
    assert_eq!(numbers(versions(), 64, 24), [1]);
    assert_eq!(numbers(versions(), 65, 24), [1, 2]);
    assert_eq!(numbers(versions(), 1_000_000, 24), [1, 2, 3], "the newest stays");
    assert_eq!(numbers(vec![dated(1, 0)], 1_000_000, 24), Vec::<u64>::new());
    assert_eq!(numbers(versions(), 1_000_000, u64::MAX / 3600), Vec::<u64>::new());
}

#[test]
fn versions_are_told_from_the_names_of_manifests() {
    for (name, version) in [
        ("18446744073709551614.manifest", Some(1)),
        ("18446744073709551516.manifest", Some(99)),
        ("7.manifest", Some(7)),
        ("d18446744073709551614.manifest", None),
        ("_latest.manifest", None),
        ("18446744073709551614.manifest-tmp", None),
    ] {
        assert_eq!(version_of(&Path::from(format!("t.lance/_versions/{name}"))), version, "{name}");
    }
}

#[tokio::test]
async fn nothing_is_removed_that_is_younger_than_a_day_or_a_hundred_commits() {
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    let lake = LakeStore::open("memory://lake", &StorageOptions::default()).await.expect("a lake");
    assert_eq!(lake.retention(Duration::ZERO), days(1));
    assert_eq!(lake.retention(days(30)), days(30));
    let patient = [("timeout".to_string(), "3600s".to_string())];
    let lake = LakeStore::open("memory://lake", &StorageOptions::new(patient)).await.expect("a lake");
    assert_eq!(lake.retention(days(1)), Duration::from_secs(100 * 3_620));
}

#[tokio::test]
async fn one_process_cleans_up_at_a_time() {
    let lake = LakeStore::open("memory://lake", &StorageOptions::default()).await.expect("a lake");
    let first = lake.lock_cleanup().await.expect("a lock");
    let error = lake.lock_cleanup().await.expect_err("a second one");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let said = error.to_string();
    assert!(said.contains("another cleanup (process ") && said.contains("try again in 15 minutes at most"), "{said}");
    first.release().await.expect("released");
    let mut second = lake.lock_cleanup().await.expect("a lock");
    let done: Result<u32, crate::Error> = second.while_held(async { Ok(7) }).await;
    assert_eq!(done.expect("the work's own result"), 7);
    second.release().await.expect("released");
    assert_eq!(lake.objects().list("cleanup").await.expect("a listing").len(), 1, "older locks are deleted");
}

#[tokio::test]
async fn the_lock_of_a_process_that_died_runs_out() {
    let lake = LakeStore::open("memory://lake", &StorageOptions::default()).await.expect("a lake");
    let old = Lease { holder: "process 1".into(), until_secs: 1_000_000, is_done: false };
    let json = serde_json::to_vec(&old).expect("JSON");
    lake.objects().put(&format!("cleanup/{:020}", 41), json.into()).await.expect("written");
    let lock = lake.lock_cleanup().await.expect("a lock");
    assert!(lake.lock_cleanup().await.is_err());
    lock.release().await.expect("released");
    assert_eq!(lake.objects().list("cleanup").await.expect("a listing"), [format!("cleanup/{:020}", 42)]);
    lake.objects().put(&format!("cleanup/{:020}", 43), "{".into()).await.expect("written");
    let error = lake.lock_cleanup().await.expect_err("no lock").to_string();
    assert!(error.contains("cannot parse _stoker/cleanup/00000000000000000043"), "{error}");
}
