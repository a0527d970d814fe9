//! GET requests whose response bodies are read from the socket directly into their destination.
//!
//! ```text
//! RangeReader ──GetOptions──► AmazonS3 ──signed request──► DirectService ──head──► exchange
//!      ◄──────────────────────── SocketBody, through a Handover ◄─────────────────────┘
//! ```
//!
//! object_store signs requests, retries them and interprets responses. But its HTTP client returns bodies in its own
//! memory, which costs one more copy of each byte, into fresh pages. Here, requests for ranges use this crate's own
//! connections instead, and the body stays in the socket until its reader reads it. This works for S3 over plain
//! HTTP, as stores in a local network offer it. All other requests (over TLS or a proxy, to other stores, with
//! responses whose body has no known length) use object_store's usual client.

mod body;
mod connections;
mod head;
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

pub(crate) use self::body::{SocketBody, fill};
use crate::breaker::Breaker;
use crate::breaker_store::through_twice;
use crate::renewable::{Purpose, Renewable};

use self::service::{DirectConnector, Handover, Timeouts};

/// Options that the usual client supports and this one does not.
const FOREIGN_OPTIONS: [&str; 5] = ["use_opendal", "proxy_url", "proxy_ca_certificate", "s3_express", "aws_s3_express"];

/// Environment variables that send requests through a proxy.
const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];

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

/// Opens the bucket with the current credentials. Returns `None` where this client cannot serve it.
async fn open(uri: &str, params: &ObjectStoreParams) -> Option<AmazonS3> {
    let mut options = StorageOptions::new(params.storage_options().cloned().unwrap_or_default());
    options.with_env_s3();
    let is_foreign = |key: &String| FOREIGN_OPTIONS.contains(&key.as_str()) || key.starts_with("headers.");
    let is_set = |variable: &str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    if options.0.keys().any(is_foreign) || is_set("AWS_PROFILE") || PROXY_VARIABLES.into_iter().any(is_set) {
        return None;
    }
    let known: HashMap<AmazonS3ConfigKey, String> = options.as_s3_options();
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint].iter().find_map(|key| known.get(key));
    if !uri.starts_with("s3://") || !endpoint?.starts_with("http://") {
        return None;
    }
    let duration = |key: &str| humantime::parse_duration(options.0.get(key)?).ok();
    let (answer, connect) = (duration("timeout")?, duration("connect_timeout")?);
    // Lance opens its own store in the same way, and errors of that were reported already.
    let credentials = build_aws_credential(
        params.s3_credentials_refresh_offset,
        params.aws_credentials.clone(),
        Some(&known),
        known.get(&AmazonS3ConfigKey::Region).cloned(),
        params.get_accessor(),
        options.aws_provider_scheme().ok()?,
    );
    let (credentials, region) = credentials.await.ok()?;
    let mut builder = AmazonS3Builder::new().with_client_options(options.client_options().ok()?);
    for (key, value) in known {
        builder = builder.with_config(key, value);
    }
    let retry = RetryConfig {
        max_retries: options.client_max_retries(),
        retry_timeout: Duration::from_secs(options.client_retry_timeout()),
        ..RetryConfig::default()
    };
    let connector = DirectConnector::new(Timeouts { connect, answer });
    let builder = builder.with_url(uri).with_credentials(credentials).with_region(region).with_retry(retry);
    builder.with_http_connector(connector).build().ok()
}

#[cfg(test)]
mod tests;
