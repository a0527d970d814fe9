//! Requests to an object store.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};

use crate::requests::Requests;
use crate::{Error, ListedObject, Result};

/// A bucket of an object store.
#[derive(Debug)]
pub(crate) struct StoreRequests(pub Arc<dyn ObjectStore>);

#[async_trait::async_trait]
impl Requests for StoreRequests {
    async fn get(&self, key: &str, range: Range<u64>) -> Result<(Bytes, ListedObject)> {
        let expected = range.end - range.start;
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let response = self.0.get_opts(&path(key)?, options).await.map_err(Error::of_store)?;
        let object = ListedObject::of(&response.meta);
        let bytes = response.bytes().await.map_err(Error::of_store)?;
        match bytes.len() as u64 == expected {
            true => Ok((bytes, object)),
            false => Err(Error::Unavailable { reason: format!("{} bytes came instead of {expected}", bytes.len()) }),
        }
    }

    async fn head(&self, key: &str) -> Result<Option<ListedObject>> {
        match self.0.head(&path(key)?).await {
            Ok(meta) => Ok(Some(ListedObject::of(&meta))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::of_store(error)),
        }
    }

    async fn list(&self, folder: &str, found: &mut Vec<(String, ListedObject)>) -> Result<()> {
        let folder = path(folder)?;
        let folder = (!folder.as_ref().is_empty()).then_some(&folder);
        let mut listing = match found.last() {
            Some((last, _)) => self.0.list_with_offset(folder, &path(last)?),
            None => self.0.list(folder),
        };
        while let Some(meta) = listing.try_next().await.map_err(Error::of_store)? {
            found.push((meta.location.as_ref().to_string(), ListedObject::of(&meta)));
        }
        Ok(())
    }
}

fn path(key: &str) -> Result<Path> {
    Path::parse(key).map_err(|error| Error::Invalid { reason: error.to_string() })
}
