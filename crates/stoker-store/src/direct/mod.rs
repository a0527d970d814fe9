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

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStore};
use rustls::ClientConfig;
use stoker_net::http1::{SocketBody, Timeouts};
use stoker_net::{Protocol, TlsFiles, client_config};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use crate::breaker::Breaker;
use crate::breaker_store::through_twice;
use crate::renewable::{Open, Purpose, Renewable};

pub use self::service::DirectConnector;
use self::service::Handover;

/// Options that the usual client supports and this one does not, without the prefix `aws_`, which object_store accepts
/// before each of them.
const FOREIGN_OPTIONS: [&str; 5] =
    ["use_opendal", "proxy_url", "proxy_ca_certificate", "s3_express", "allow_invalid_certificates"];

/// A bucket whose objects are read over this crate's own connections.
#[derive(Debug)]
pub struct DirectStore {
    store: Renewable<AmazonS3>,
    breaker: Arc<Breaker>,
}

impl DirectStore {
    /// Makes a store of an opened bucket. `reopen` opens the bucket again, with the current credentials.
    pub fn new(store: AmazonS3, reopen: Open<AmazonS3>, breaker: Arc<Breaker>) -> Self {
        Self { store: Renewable::new(store, reopen), breaker }
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

impl DirectConnector {
    /// A connector for the bucket that these storage options name, at this endpoint or that of AWS in this region.
    ///
    /// # Errors
    /// Why the bucket cannot be read over the connections of this crate, for the log.
    pub async fn try_new(
        options: &HashMap<String, String>,
        endpoint: Option<&str>,
        region: Option<&str>,
    ) -> Result<Self, String> {
        if let Some(reason) = obstacle(options, &destination(endpoint, region), &Matcher::from_system()) {
            return Err(reason);
        }
        let tls = match endpoint {
            Some(endpoint) if endpoint.starts_with("http://") => None,
            Some(endpoint) if !endpoint.starts_with("https://") => {
                return Err("its endpoint has no known scheme".into());
            }
            // Without an endpoint, the store is that of AWS.
            _ => Some(tls_config().await?),
        };
        let duration = |key: &str| -> Result<Duration, String> {
            let value = options.get(key).ok_or_else(|| format!("the storage option {key} is not set"))?;
            humantime::parse_duration(value).map_err(|error| format!("the storage option {key}: {error}"))
        };
        Ok(Self::new(tls, Timeouts { connect: duration("connect_timeout")?, answer: duration("timeout")? }))
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

/// Returns the URL of the store: an endpoint, or that of AWS in a region.
fn destination(endpoint: Option<&str>, region: Option<&str>) -> String {
    let of_aws = || format!("https://s3.{}.amazonaws.com", region.unwrap_or("us-east-1"));
    endpoint.map_or_else(of_aws, str::to_string)
}

/// Why the bucket at a URL cannot be read over the connections of this crate. `proxies` says which requests the usual
/// client sends through a proxy.
fn obstacle(options: &HashMap<String, String>, destination: &str, proxies: &Matcher) -> Option<String> {
    let is_foreign = |key: &&String| {
        let name = key.strip_prefix("aws_").unwrap_or(key);
        FOREIGN_OPTIONS.contains(&name) || name.starts_with("headers.")
    };
    if let Some(option) = options.keys().find(is_foreign) {
        return Some(format!("it does not know the storage option {option}"));
    }
    if std::env::var_os("AWS_PROFILE").is_some_and(|value| !value.is_empty()) {
        return Some("it does not follow the environment variable AWS_PROFILE".into());
    }
    let destination: Uri = destination.parse().ok()?;
    proxies.intercept(&destination)?;
    let host = destination.host().unwrap_or_default();
    Some(format!("requests to {host} go through a proxy; NO_PROXY names hosts that need none"))
}

#[cfg(test)]
mod tests;
