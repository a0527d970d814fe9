//! Puts the stores of `stoker-store` in front of those that Lance opens, for all requests of Lance and of this crate, and for
//! those to buckets whose objects are no tables of a lake, such as the sources of an ingest.
//!
//! Lance does not read local files through the wrapped store through which it makes all other requests, unless the
//! store's prefix differs from that of local files. [`CheckedFiles`] makes stores with another prefix, so that their
//! reads pass through [`CheckedWrapper`] too.
//!
//! [`direct_store`] opens the buckets whose objects are read over connections of `stoker-net`, with the options and
//! credentials that Lance uses for them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use lance_io::object_store::providers::aws::build_aws_credential;
use lance_io::object_store::providers::local::FileStoreProvider;
use lance_io::object_store::{
    ChainedWrappingObjectStore, ObjectStore as LanceStore, ObjectStoreParams, ObjectStoreProvider, ObjectStoreRegistry,
    StorageOptions as LanceOptions, StorageOptionsAccessor, WrappingObjectStore, uri_to_url,
};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig, StaticCredentialProvider};
use parking_lot::Mutex;
use stoker_store::sectors::{CheckedStores, StoreKind};
use stoker_store::{Breaker, BreakerLister, BreakerStore, DirectConnector, DirectStore, Open, first_line, is_remote};
use stoker_types::ErrorKind;
use url::Url;

use crate::error::interpret;
use crate::{Error, Result, StorageOptions};

/// The scheme of local files.
const FILE: &str = "file";

/// The store prefix of checked local files. Any value but the scheme serves.
const PREFIX: &str = "file$checked";

/// The names of the options of S3 with a key, its secret and its session token.
const KEY_IDS: [&str; 2] = ["aws_access_key_id", "access_key_id"];
const SECRETS: [&str; 2] = ["aws_secret_access_key", "secret_access_key"];
const TOKENS: [&str; 4] = ["aws_session_token", "aws_token", "session_token", "token"];

/// The wrapper that all requests to a lake's store pass.
pub(crate) fn wrapper(
    uri: &str,
    breaker: &Arc<Breaker>,
    registry: &Arc<ObjectStoreRegistry>,
    params: &ObjectStoreParams,
) -> Arc<dyn WrappingObjectStore> {
    let place = if uri.contains("://") { StoreKind::Elsewhere } else { StoreKind::Local };
    let checked = Arc::new(CheckedWrapper(CheckedStores::new(place)));
    if !is_remote(uri) {
        return checked;
    }
    Arc::new(ChainedWrappingObjectStore::new(vec![breaker_wrapper(uri, breaker, registry, params), checked]))
}

/// The wrapper that puts a breaker in front of all requests to a store.
fn breaker_wrapper(
    uri: &str,
    breaker: &Arc<Breaker>,
    registry: &Arc<ObjectStoreRegistry>,
    params: &ObjectStoreParams,
) -> Arc<dyn WrappingObjectStore> {
    Arc::new(BreakerWrapper::new(breaker.clone(), registry, uri, params))
}

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

/// A function that opens the store of a lake again, without the wrapper.
type Reopen = Arc<dyn Fn() -> BoxFuture<'static, Option<LanceStore>> + Send + Sync>;

/// A wrapper that puts a breaker in front of all requests of Lance and of this crate.
struct BreakerWrapper {
    breaker: Arc<Breaker>,
    reopen: Reopen,
}

impl BreakerWrapper {
    /// A wrapper for the store that the URI and the options name.
    fn new(breaker: Arc<Breaker>, registry: &Arc<ObjectStoreRegistry>, uri: &str, options: &ObjectStoreParams) -> Self {
        let (registry, uri, options) = (registry.clone(), uri.to_string(), options.clone());
        let reopen = move || {
            let (registry, uri, options) = (registry.clone(), uri.clone(), options.clone());
            async move {
                let url = uri_to_url(&uri).ok()?;
                let provider = registry.get_provider(url.scheme())?;
                provider.new_store(url, &options).await.ok()
            }
            .boxed()
        };
        Self { breaker, reopen: Arc::new(reopen) }
    }

    /// Returns a function that opens the store again and takes one part of it.
    fn reopening<S: 'static>(&self, part: fn(LanceStore) -> Option<S>) -> Open<S> {
        let reopen = self.reopen.clone();
        Box::new(move || reopen().map(move |store| store.and_then(part)).boxed())
    }
}

impl fmt::Debug for BreakerWrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerWrapper").finish_non_exhaustive()
    }
}

impl WrappingObjectStore for BreakerWrapper {
    fn wrap(&self, _store_prefix: &str, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        let reopen = self.reopening(|store| Some(store.inner));
        Arc::new(BreakerStore::new(inner, reopen, self.breaker.clone()))
    }

    fn wrap_paginated(
        &self,
        _store_prefix: &str,
        inner: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        Some(Arc::new(BreakerLister::new(inner, self.reopening(lister), self.breaker.clone())))
    }
}

/// Returns the part of a store that lists page by page. Lance shows it to wrappers only.
fn lister(mut store: LanceStore) -> Option<Arc<dyn PaginatedListStore>> {
    let kept = KeepLister::default();
    store.apply_wrapper(&kept);
    kept.0.into_inner()
}

#[derive(Default)]
struct KeepLister(Mutex<Option<Arc<dyn PaginatedListStore>>>);

impl fmt::Debug for KeepLister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepLister").finish_non_exhaustive()
    }
}

impl WrappingObjectStore for KeepLister {
    fn wrap(&self, _store_prefix: &str, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        inner
    }

    fn wrap_paginated(
        &self,
        _store_prefix: &str,
        inner: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        *self.0.lock() = Some(inner);
        None
    }
}

/// A wrapper that verifies reads of data files with checksums.
#[derive(Debug)]
struct CheckedWrapper(CheckedStores);

impl WrappingObjectStore for CheckedWrapper {
    fn wrap(&self, _store_prefix: &str, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        self.0.wrap(inner)
    }

    fn wrap_paginated(
        &self,
        _store_prefix: &str,
        inner: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        Some(inner)
    }
}

/// Makes stores of local files whose reads all pass through their wrapper.
#[derive(Debug, Default)]
struct CheckedFiles(FileStoreProvider);

/// Returns a registry of stores in which local files are read through the wrapper of their store.
pub(crate) fn checked_registry() -> Arc<ObjectStoreRegistry> {
    let registry = ObjectStoreRegistry::default();
    registry.insert(FILE, Arc::new(CheckedFiles::default()));
    Arc::new(registry)
}

#[async_trait::async_trait]
impl ObjectStoreProvider for CheckedFiles {
    async fn new_store(&self, base_path: Url, params: &ObjectStoreParams) -> lance_core::Result<LanceStore> {
        let mut store = self.0.new_store(base_path, params).await?;
        store.store_prefix = PREFIX.to_string();
        Ok(store)
    }

    fn extract_path(&self, url: &Url) -> lance_core::Result<Path> {
        self.0.extract_path(url)
    }

    fn calculate_object_store_prefix(
        &self,
        url: &Url,
        options: Option<&HashMap<String, String>>,
    ) -> lance_core::Result<String> {
        self.0.calculate_object_store_prefix(url, options)
    }
}

/// Opens the bucket of a lake. Returns `None` where its objects must be read through the usual client.
pub(crate) async fn direct_store(
    uri: &str,
    params: &ObjectStoreParams,
    breaker: Arc<Breaker>,
) -> Option<Arc<DirectStore>> {
    let store = open_direct(uri, params).await?;
    let (uri, params) = (uri.to_string(), params.clone());
    let reopen = move || {
        let (uri, params) = (uri.clone(), params.clone());
        async move { open_direct(&uri, &params).await }.boxed()
    };
    Some(Arc::new(DirectStore::new(store, Box::new(reopen), breaker)))
}

/// Opens the bucket with the current credentials. Returns `None` where this client cannot serve it, and says why.
async fn open_direct(uri: &str, params: &ObjectStoreParams) -> Option<AmazonS3> {
    if !uri.starts_with("s3://") {
        return None;
    }
    let mut options = LanceOptions::new(params.storage_options().cloned().unwrap_or_default());
    options.with_env_s3();
    match build_direct(uri, params, &options).await {
        Ok(store) => Some(store),
        Err(reason) => {
            tracing::info!(uri, reason, "ranges of objects are read through the general client, with a further copy");
            None
        }
    }
}

async fn build_direct(uri: &str, params: &ObjectStoreParams, options: &LanceOptions) -> Result<AmazonS3, String> {
    let known: HashMap<AmazonS3ConfigKey, String> = options.as_s3_options();
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint].iter().find_map(|key| known.get(key));
    let region = known.get(&AmazonS3ConfigKey::Region).cloned();
    let connector = DirectConnector::try_new(&options.0, endpoint.map(String::as_str), region.as_deref()).await?;
    // Lance opens its own store in the same way, and errors of that were reported already.
    let credentials = build_aws_credential(
        params.s3_credentials_refresh_offset,
        params.aws_credentials.clone(),
        Some(&known),
        region,
        params.get_accessor(),
        options.aws_provider_scheme().map_err(|error| error.to_string())?,
    );
    let (credentials, region) = credentials.await.map_err(|error| error.to_string())?;
    let mut builder =
        AmazonS3Builder::new().with_client_options(options.client_options().map_err(|error| error.to_string())?);
    for (key, value) in known {
        builder = builder.with_config(key, value);
    }
    let retry = RetryConfig {
        max_retries: options.client_max_retries(),
        retry_timeout: Duration::from_secs(options.client_retry_timeout()),
        ..RetryConfig::default()
    };
    let builder = builder.with_url(uri).with_credentials(credentials).with_region(region).with_retry(retry);
    builder.with_http_connector(connector).build().map_err(|error| error.to_string())
}
