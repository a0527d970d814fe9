//! Watches files for changes.

use std::path::PathBuf;
use std::time::Duration;

use stoker_clock::Clock;

/// The interval between two reads of the files. The contents are compared rather than the modification times, which
/// mounted secrets and copies do not keep.
const PERIOD: Duration = Duration::from_secs(1);

/// For each file its bytes, or the reason why it cannot be read.
pub(crate) type Contents = Vec<Result<Vec<u8>, String>>;

/// Calls `changed` when the contents of the files differ from the last used ones and are the same in two consecutive
/// reads: files that belong together are often replaced one after the other. Never ends by itself.
pub(crate) async fn watch(paths: Vec<PathBuf>, clock: &Clock, mut changed: impl FnMut(&Contents)) {
    let mut used = read(&paths).await;
    let mut seen = used.clone();
    let mut ticks = clock.ticks(PERIOD);
    loop {
        ticks.next().await;
        let found = read(&paths).await;
        if found == seen && found != used {
            changed(&found);
            used.clone_from(&found);
        }
        seen = found;
    }
}

async fn read(paths: &[PathBuf]) -> Contents {
    let mut contents = Vec::new();
    for path in paths {
        contents.push(tokio::fs::read(path).await.map_err(|source| source.to_string()));
    }
    contents
}
