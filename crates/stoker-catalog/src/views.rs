//! Views: queries under names, kept beside the tables at `_stoker/views/<name>.json`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stoker_lake::{Error, LakeStore, PutOutcome, Result};
use stoker_types::TableName;

/// The folder of the views.
const FOLDER: &str = "views";

/// The ending of a view's object.
const ENDING: &str = ".json";

/// The version of the content.
const VIEW_VERSION: u32 = 1;

/// The content of a view's object.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    version: u32,
    sql: String,
}

/// Lists the names of all views, sorted. One listing.
///
/// # Errors
/// Storage errors.
pub async fn view_names(lake: &LakeStore) -> Result<Vec<TableName>> {
    let paths = lake.objects().list(FOLDER).await?;
    let name = |path: &String| {
        let name = path.strip_prefix(FOLDER)?.trim_start_matches('/').strip_suffix(ENDING)?;
        TableName::try_new(name).ok()
    };
    let mut names: Vec<TableName> = paths.iter().filter_map(name).collect();
    names.sort();
    Ok(names)
}

/// Returns the query of a view; `None` if there is no such view. One request.
///
/// # Errors
/// `DataCorrupt` for an object that is no view; storage errors.
pub async fn view_query(lake: &LakeStore, name: &TableName) -> Result<Option<String>> {
    let Some(json) = lake.objects().get(&path(name)).await? else { return Ok(None) };
    let damaged = |reason: String| Error::DataCorrupt { attempted: format!("reading view {name}"), reason };
    let stored: Stored = serde_json::from_slice(&json).map_err(|source| damaged(source.to_string()))?;
    match stored.version {
        VIEW_VERSION => Ok(Some(stored.sql)),
        version => Err(damaged(format!("its version is {version}; this build of Stoker reads {VIEW_VERSION}"))),
    }
}

/// Stores a view unless there is one of this name. One of several concurrent calls stores it.
///
/// # Errors
/// A store that does not create objects atomically; storage errors; kind `PermissionDenied` for a lake that cannot be
/// written.
pub async fn create_view(lake: &LakeStore, name: &TableName, sql: &str) -> Result<PutOutcome> {
    lake.objects().claim(&path(name), content(sql)).await
}

/// Stores a view, in place of one of this name.
///
/// # Errors
/// Storage errors; kind `PermissionDenied` for a lake that cannot be written.
pub async fn replace_view(lake: &LakeStore, name: &TableName, sql: &str) -> Result<()> {
    lake.objects().put(&path(name), content(sql)).await
}

/// Removes a view. A view that does not exist is no error.
///
/// # Errors
/// Storage errors.
pub async fn delete_view(lake: &LakeStore, name: &TableName) -> Result<()> {
    lake.objects().delete(&path(name)).await
}

fn path(name: &TableName) -> String {
    format!("{FOLDER}/{name}{ENDING}")
}

fn content(sql: &str) -> Bytes {
    let stored = Stored { version: VIEW_VERSION, sql: sql.to_string() };
    serde_json::to_vec(&stored).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use stoker_lake::StorageOptions;

    use super::*;

    #[tokio::test]
    async fn views_are_created_once_replaced_and_removed() {
        let lake = LakeStore::open("memory://views", &StorageOptions::default()).await.expect("a lake");
        let name = |name: &str| TableName::try_new(name).expect("a name");
        assert_eq!(view_query(&lake, &name("b")).await.expect("no view"), None);
        assert_eq!(create_view(&lake, &name("b"), "SELECT 1").await.expect("stored"), PutOutcome::Created);
        assert_eq!(create_view(&lake, &name("b"), "SELECT 2").await.expect("kept"), PutOutcome::Exists);
        assert_eq!(view_query(&lake, &name("b")).await.expect("a view").as_deref(), Some("SELECT 1"));
        replace_view(&lake, &name("b"), "SELECT 'ü'").await.expect("replaced");
        replace_view(&lake, &name("a.1-x"), "SELECT 3").await.expect("stored");
        assert_eq!(view_query(&lake, &name("b")).await.expect("a view").as_deref(), Some("SELECT 'ü'"));
        assert_eq!(view_names(&lake).await.expect("names"), [name("a.1-x"), name("b")]);
        for _ in 0..2 {
            delete_view(&lake, &name("b")).await.expect("removed");
        }
        assert_eq!(view_names(&lake).await.expect("names"), [name("a.1-x")]);
        lake.objects()
            .put("views/c.json", Bytes::from_static(b"{\"version\": 2, \"sql\": \"\"}"))
            .await
            .expect("stored");
        let error = view_query(&lake, &name("c")).await.expect_err("a later version").to_string();
        assert!(error.contains("view c") && error.contains("version is 2"), "{error}");
    }
}
