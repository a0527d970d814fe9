//! Opens the buckets whose objects are read over connections of `stoker-net`, with the options and credentials that
//! Lance uses for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use lance_io::object_store::providers::aws::build_aws_credential;
use lance_io::object_store::{ObjectStoreParams, StorageOptions};
use object_store::RetryConfig;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use stoker_store::{Breaker, DirectConnector, DirectStore};

/// Opens the bucket of a lake. Returns `None` where its objects must be read through the usual client.
pub(crate) async fn direct_store(
    uri: &str,
    params: &ObjectStoreParams,
    breaker: Arc<Breaker>,
) -> Option<Arc<DirectStore>> {
    let store = open(uri, params).await?;
    let (uri, params) = (uri.to_string(), params.clone());
    let reopen = move || {
        let (uri, params) = (uri.clone(), params.clone());
        async move { open(&uri, &params).await }.boxed()
    };
    Some(Arc::new(DirectStore::new(store, Box::new(reopen), breaker)))
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

async fn build(uri: &str, params: &ObjectStoreParams, options: &StorageOptions) -> Result<AmazonS3, String> {
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
