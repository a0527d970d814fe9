//! GET requests whose response bodies are read from the socket directly into their destination.
//!
//! ```text
//! RangeReader ──GetOptions──► AmazonS3 ──signed request──► DirectService ──head──► exchange
//!      ◄──────────────────────── SocketBody, through a Handover ◄─────────────────────┘
//! ```
//!
//! object_store signs requests, retries them and interprets responses. But its HTTP client returns bodies in its own
//! memory, which costs one more copy of each byte, into fresh pages. Here, requests for ranges use the connections of
//! `stoker-net` instead, and the body stays in the socket until its reader reads it. This works for S3 and stores that
//! speak its protocol, in plain text and over TLS. Where it does not, one line of the log says why; then, as for other
//! requests (over a proxy, to other stores, with responses whose body has no known length), object_store's usual client
//! is used.

mod service;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use lance_io::object_store::providers::aws::build_aws_credential;
use lance_io::object_store::{ObjectStoreParams, StorageOptions};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStore, RetryConfig};
use rustls::ClientConfig;
use stoker_net::http1::Timeouts;
use stoker_net::{Protocol, TlsFiles, client_config};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

pub(crate) use stoker_net::http1::{SocketBody, fill};

use crate::breaker::Breaker;
use crate::breaker_store::through_twice;
use crate::renewable::{Purpose, Renewable};

use self::service::{DirectConnector, Handover};

/// Options that the usual client supports and this one does not, without the prefix `aws_`, which object_store accepts
/// before each of them.
const FOREIGN_OPTIONS: [&str; 5] =
    ["use_opendal", "proxy_url", "proxy_ca_certificate", "s3_express", "allow_invalid_certificates"];

/// Environment variables that send requests through a proxy.
const PROXY_VARIABLES: [&str; 6] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// A bucket whose objects are read over this crate's own connections.
#[derive(Debug)]
pub(crate) struct DirectStore {
    store: Renewable<AmazonS3>,
    breaker: Arc<Breaker>,
}

impl DirectStore {
    /// Opens the bucket of a lake. Returns `None` where its objects must be read through the usual client.
    pub async fn try_new(uri: &str, params: &ObjectStoreParams, breaker: Arc<Breaker>) -> Option<Arc<Self>> {
        let store = open(uri, params).await?;
        let (uri, params) = (uri.to_string(), params.clone());
        let reopen = move || {
            let (uri, params) = (uri.clone(), params.clone());
            async move { open(&uri, &params).await }.boxed()
        };
        Some(Arc::new(Self { store: Renewable::new(store, Box::new(reopen)), breaker }))
    }

    /// Requests a range. When a [`SocketBody`] is returned, it has the bytes, and the payload of the result is empty.
    pub async fn get(&self, path: &Path, options: GetOptions) -> object_store::Result<(GetResult, Option<SocketBody>)> {
        let get = || {
            self.store.ask(Purpose::Read, |store| {
                // Each attempt has a handover of its own, so that a cancelled attempt cannot leave its body to
                // another one.
                let (path, mut options, handover) = (path.clone(), options.clone(), Handover::default());
                options.extensions.insert(handover.clone());
                self.breaker.at_home(async move { Ok((store.get_opts(&path, options).await?, handover.take())) })
            })
        };
        through_twice(&self.breaker, path, get).await
    }
}

/// Opens the bucket with the current credentials. Returns `None` where this client cannot serve it, and says why.
async fn open(uri: &str, params: &ObjectStoreParams) -> Option<AmazonS3> {
    if !uri.starts_with("s3://") {
        return None;
    }
    let mut options = StorageOptions::new(params.storage_options().cloned().unwrap_or_default());
    options.with_env_s3();
    match build(uri, params, &options).await {
        Ok(store) => Some(store),
        Err(reason) => {
            tracing::info!(uri, reason, "ranges of objects are read through the general client, with a further copy");
            None
        }
    }
}

/// Returns the TLS configuration of all stores. The first call of the process reads the certificate authorities of the
/// system, on a thread for blocking work.
async fn tls_config() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceCell<Arc<ClientConfig>> = OnceCell::const_new();
    let read = || async {
        let read = spawn_blocking(|| client_config(&TlsFiles::default(), Protocol::Http1)).await;
        read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    };
    CONFIG.get_or_try_init(read).await.cloned()
}

/// Why the bucket cannot be read over the connections of this crate.
fn obstacle(options: &StorageOptions) -> Option<String> {
    let is_foreign = |key: &&String| {
        let name = key.strip_prefix("aws_").unwrap_or(key);
        FOREIGN_OPTIONS.contains(&name) || name.starts_with("headers.")
    };
    if let Some(option) = options.0.keys().find(is_foreign) {
        return Some(format!("it does not know the storage option {option}"));
    }
    let is_set = |variable: &&str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    let variable = ["AWS_PROFILE"].into_iter().chain(PROXY_VARIABLES).find(is_set)?;
    Some(format!("it does not follow the environment variable {variable}"))
}

async fn build(uri: &str, params: &ObjectStoreParams, options: &StorageOptions) -> Result<AmazonS3, String> {
    if let Some(reason) = obstacle(options) {
        return Err(reason);
    }
    let known: HashMap<AmazonS3ConfigKey, String> = options.as_s3_options();
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint].iter().find_map(|key| known.get(key));
    let tls = match endpoint {
        Some(endpoint) if endpoint.starts_with("http://") => None,
        Some(endpoint) if !endpoint.starts_with("https://") => return Err("its endpoint has no known scheme".into()),
        // Without an endpoint, the store is that of AWS.
        _ => Some(tls_config().await?),
    };
    let duration = |key: &str| -> Result<Duration, String> {
        let value = options.0.get(key).ok_or_else(|| format!("the storage option {key} is not set"))?;
        humantime::parse_duration(value).map_err(|error| format!("the storage option {key}: {error}"))
    };
    let timeouts = Timeouts { connect: duration("connect_timeout")?, answer: duration("timeout")? };
    // Lance opens its own store in the same way, and errors of that were reported already.
    let credentials = build_aws_credential(
        params.s3_credentials_refresh_offset,
        params.aws_credentials.clone(),
        Some(&known),
        known.get(&AmazonS3ConfigKey::Region).cloned(),
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
    let connector = DirectConnector::new(tls, timeouts);
    let builder = builder.with_url(uri).with_credentials(credentials).with_region(region).with_retry(retry);
    builder.with_http_connector(connector).build().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
