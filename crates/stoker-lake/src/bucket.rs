//! Opens buckets whose objects are no tables of a lake, such as the sources of an ingest.

use std::sync::Arc;

use lance_io::object_store::{
    ObjectStore as LanceStore, ObjectStoreParams, ObjectStoreRegistry, StorageOptionsAccessor,
};
use object_store::aws::{AwsCredential, AwsCredentialProvider};
use object_store::{ObjectStore, StaticCredentialProvider};
use stoker_store::{Breaker, first_line};
use stoker_types::ErrorKind;

use crate::error::interpret;
use crate::lance_stores::breaker_wrapper;
use crate::{Error, Result, StorageOptions};

/// The names of the options of S3 with a key, its secret and its session token.
const KEY_IDS: [&str; 2] = ["aws_access_key_id", "access_key_id"];
const SECRETS: [&str; 2] = ["aws_secret_access_key", "secret_access_key"];
const TOKENS: [&str; 4] = ["aws_session_token", "aws_token", "session_token", "token"];

/// Opens a bucket for reading: `s3://BUCKET`, `gs://BUCKET`, `az://CONTAINER` or
/// `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net`. Requests are retried, pass a circuit breaker, and are made once more with
/// new credentials when the store refuses those that were replaced meanwhile, as those of lakes are. No request is made yet,
/// except that S3 tells the region of a bucket if neither region nor endpoint is given.
///
/// A key of S3 in the options is used without a session token from the environment, which belongs to another key.
///
/// # Errors
/// [`Error::InvalidUri`] for URIs or options that the store refuses; errors of the store that tells the region.
pub async fn open_bucket(uri: &str, options: &StorageOptions) -> Result<Arc<dyn ObjectStore>> {
    let accessor = StorageOptionsAccessor::with_static_options(options.resolved());
    let mut params = ObjectStoreParams {
        storage_options_accessor: Some(Arc::new(accessor)),
        aws_credentials: own_key(options),
        ..ObjectStoreParams::default()
    };
    let registry: Arc<ObjectStoreRegistry> = Arc::default();
    let breaker = Arc::new(Breaker::new(interpret));
    params.object_store_wrapper = Some(breaker_wrapper(uri, &breaker, &registry, &params));
    let opened = LanceStore::from_uri_and_params(registry, uri, &params).await;
    let (store, _) = opened.map_err(|source| match Error::storage(format!("opening {uri}"), source) {
        Error::Storage { kind: ErrorKind::InvalidRequest | ErrorKind::Internal, source, .. } => {
            Error::InvalidUri { uri: uri.to_string(), reason: first_line(&source) }
        }
        error => error,
    })?;
    Ok(store.inner.clone())
}

/// Returns the key that the options have, without a token of the environment.
fn own_key(options: &StorageOptions) -> Option<AwsCredentialProvider> {
    let given = |names: &[&str]| names.iter().find_map(|name| options.get(name)).map(str::to_string);
    let (key_id, secret_key) = (given(&KEY_IDS)?, given(&SECRETS)?);
    let credential = AwsCredential { key_id, secret_key, token: given(&TOKENS) };
    Some(Arc::new(StaticCredentialProvider::new(credential)))
}
