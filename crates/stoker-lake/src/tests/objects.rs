//! Tests of small immutable objects.

use bytes::Bytes;

use super::data::{TestResult, memory_lake, test_lake};
use crate::{LakeStore, PutOutcome};

async fn check(lake: &LakeStore) -> TestResult {
    let objects = lake.objects();
    assert_eq!(objects.get("specs/a").await?, None);
    assert!(objects.list("specs").await?.is_empty());
    assert_eq!(objects.put_if_absent("specs/a", Bytes::from_static(b"first")).await?, PutOutcome::Created);
    assert_eq!(objects.put_if_absent("specs/a", Bytes::from_static(b"second")).await?, PutOutcome::Exists);
    assert_eq!(objects.get("specs/a").await?, Some(Bytes::from_static(b"first")));
    objects.put("specs/b", Bytes::from_static(b"0123456789")).await?;
    objects.put("rowsets/c", Bytes::from_static(b"c")).await?;
    assert_eq!(objects.get_range("specs/b", 2..5).await?, Bytes::from_static(b"234"));
    assert_eq!(objects.get_range("specs/b", 5..5).await?, Bytes::new());
    assert_eq!(objects.list("specs").await?, ["specs/a", "specs/b"]);
    assert_eq!(objects.list("").await?, ["rowsets/c", "specs/a", "specs/b"]);
    objects.delete("specs/a").await?;
    objects.delete("specs/a").await?;
    assert_eq!(objects.get("specs/a").await?, None);
    // A path cannot leave the folder of the objects.
    objects.put("../../escape", Bytes::from_static(b"x")).await?;
    assert_eq!(objects.list("").await?.len(), 3);
    assert!(lake.tables().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn objects_on_a_memory_lake() -> TestResult {
    check(&memory_lake().await).await
}

#[tokio::test]
async fn objects_on_a_local_lake() -> TestResult {
    let test = test_lake().await;
    check(&test.lake).await?;
    assert!(test.folder.path().join("_stoker/specs/b").is_file());
    Ok(())
}

#[tokio::test]
async fn one_of_many_creators_wins() -> TestResult {
    let test = test_lake().await;
    let mut creators = tokio::task::JoinSet::new();
    for creator in 0..16u8 {
        let objects = test.lake.objects();
        creators.spawn(async move { objects.put_if_absent("runs/x", Bytes::from(vec![creator; 100])).await });
    }
    let mut created = 0;
    while let Some(outcome) = creators.join_next().await {
        created += usize::from(outcome?? == PutOutcome::Created);
    }
    assert_eq!(created, 1);
    Ok(())
}
