//! Finds the objects of row sets that are not needed any more.

use std::collections::HashSet;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use stoker_lake::{ObjectEntry, Objects};
use stoker_types::{Digest, ErrorKind};

use super::header::Header;
use super::store::{Store, header_path, page_path};
use crate::Result;

/// The most headers that are read at the same time.
const HEADERS_IN_FLIGHT: usize = 16;

/// Returns the row set objects that are older than `age` and belong to none of the `needed` row sets, headers before
/// pages. This reads the header of every row set that is kept. If one of these headers cannot be read, no page is
/// returned, as the header may name any page.
///
/// # Errors
/// Storage errors.
pub async fn unused_objects(objects: &Objects, needed: &HashSet<Digest>, age: Duration) -> Result<Vec<ObjectEntry>> {
    let entries = objects.entries("rowsets").await?;
    let headers: HashSet<String> = needed.iter().map(|digest| header_path(*digest)).collect();
    let is_page = |entry: &ObjectEntry| entry.path.starts_with("rowsets/pages/");
    let (pages, mut unused): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_page);
    let mut kept: Vec<ObjectEntry> = Vec::new();
    unused.retain(|entry| {
        let is_unused = !headers.contains(&entry.path) && entry.is_older_than(age);
        if !is_unused {
            kept.push(entry.clone());
        }
        is_unused
    });
    let store = Store::new(objects.clone());
    let store = &store;
    let named = stream::iter(kept).map(|entry| async move {
        match store.content(&entry.path).await {
            Ok(Some(content)) => Ok(Some(Header::from_bytes(&content).ok())),
            Ok(None) => Ok(None),
            Err(error) if error.kind() == ErrorKind::DataCorrupt => Ok(Some(None)),
            Err(error) => Err(error),
        }
    });
    let named: Vec<Option<Option<Header>>> = named.buffer_unordered(HEADERS_IN_FLIGHT).try_collect().await?;
    let Some(named) = named.into_iter().flatten().collect::<Option<Vec<Header>>>() else { return Ok(unused) };
    let named: HashSet<String> =
        named.into_iter().flat_map(|header| header.pages).map(|page| page_path(page.digest)).collect();
    unused.extend(pages.into_iter().filter(|page| !named.contains(&page.path) && page.is_older_than(age)));
    Ok(unused)
}
