//! Files that change while they are ingested.

use std::path::Path;

use stoker_types::ErrorKind;

use super::World;
use super::files::{found_ids, ingest, ingest_as, put_ids};
use super::parquet::{Meddler, Moment, touch};
use crate::{Error, FilesOptions, OnError};

#[tokio::test]
async fn a_file_that_changes_meanwhile_is_an_error_and_never_skipped() {
    type Change = fn(&Path, &[u8]);
    let replaced: Change = |path, other| {
        let new = path.with_extension("new");
        std::fs::write(&new, other).unwrap();
        touch(&new);
        std::fs::rename(&new, path).unwrap();
    };
    let written: Change = |path, other| {
        std::fs::write(path, other).unwrap();
        touch(path);
    };
    let shortened: Change = |path, _| std::fs::File::options().write(true).open(path).unwrap().set_len(20).unwrap();
    let removed: Change = |path, _| std::fs::remove_file(path).unwrap();
    for change in [replaced, written, shortened, removed] {
        for moment in [Moment::Listed, Moment::FirstProgress] {
            for on_error in [OnError::Fail, OnError::Skip] {
                let world = World::new().await;
                put_ids(&world, "a.rows", 0..3);
                put_ids(&world, "b.rows", 100..112);
                let other = std::fs::read(world.source().join("b.rows")).unwrap();
                put_ids(&world, "b.rows", 10..22);
                let path = world.source().canonicalize().unwrap().join("b.rows");
                // Each file is a unit.
                let options = FilesOptions { on_error, unit_bytes: 1, ..FilesOptions::default() };
                let meddler = Meddler::new(moment, || change(&path, &other));
                let error = ingest_as(&world, &options, &meddler).await.unwrap_err();
                assert!(matches!(&error, Error::Changed { path: changed, .. } if *changed == path), "{error}");
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(!world.exists().await);
            }
        }
    }
}

#[tokio::test]
async fn after_a_change_the_ingest_begins_anew() {
    let world = World::new().await;
    put_ids(&world, "a.rows", 0..3);
    put_ids(&world, "b.rows", 3..6);
    let path = world.source().join("b.rows");
    let options = FilesOptions { unit_bytes: 1, ..FilesOptions::default() };
    let meddler = Meddler::new(Moment::FirstProgress, || touch(&path));
    assert!(matches!(ingest_as(&world, &options, &meddler).await, Err(Error::Changed { .. })));
    let report = ingest(&world, &options).await.unwrap();
    assert_eq!((report.rows, report.resumed_units), (6, 0));
    assert_eq!(found_ids(&world).await, (0..6).collect::<Vec<_>>());
}
