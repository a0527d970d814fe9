//! URIs of buckets, of their objects, and of files of web servers.

use stoker_store::normalised_uri;
use url::Url;

use crate::{Error, Result};

/// The schemes of sources that are not on this machine.
const SCHEMES: [&str; 6] = ["s3", "gs", "az", "abfss", "https", "http"];

/// A URI of a bucket, of an object or a folder in it, or of a file of a web server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceUri {
    /// The bucket, or the scheme and host of a web server, without a slash at the end.
    pub root: String,
    /// The path below the root, without slashes around it; empty for the bucket itself.
    pub key: String,
    /// Whether the URI ended with a slash, so that it names a folder.
    pub names_folder: bool,
    /// The query of the URL of a file of a web server, which may be a signature.
    pub(crate) query: Option<String>,
}

impl SourceUri {
    /// Whether a source is a URI and not a path of this machine.
    pub fn is_uri(source: &str) -> bool {
        source.contains("://")
    }

    /// Parses a URI.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other schemes, a missing bucket, and credentials in the URI; for folders of web servers.
    pub fn parse(uri: &str) -> Result<Self> {
        let invalid = |reason: String| Err(Error::Invalid { reason });
        let Some((scheme, rest)) = uri.split_once("://") else { return invalid("it is no URI".into()) };
        match scheme {
            "s3" | "gs" | "az" => match normalised_uri(uri) {
                Ok(_) => Ok(Self::in_bucket(scheme, rest)),
                Err(stoker_store::Error::InvalidUri { reason, .. }) => invalid(reason),
                Err(error) => invalid(error.to_string()),
            },
            "abfss" => match rest.split('/').next().and_then(|authority| authority.split_once('@')) {
                Some((container, account)) if !container.contains(':') && !account.is_empty() => {
                    Ok(Self::in_bucket(scheme, rest))
                }
                _ => invalid("it should be abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH".into()),
            },
            "https" | "http" => Self::of_website(uri),
            _ => invalid(format!("scheme '{scheme}' is not supported; use a local path, {}://", SCHEMES.join("://, "))),
        }
    }

    fn in_bucket(scheme: &str, rest: &str) -> Self {
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let names_folder = key.is_empty() || key.ends_with('/');
        Self { root: format!("{scheme}://{bucket}"), key: key.trim_matches('/').into(), names_folder, query: None }
    }

    fn of_website(uri: &str) -> Result<Self> {
        let invalid = |reason: &str| Err(Error::Invalid { reason: reason.into() });
        let Ok(url) = Url::parse(uri) else { return invalid("it is no URL") };
        if !url.username().is_empty() || url.password().is_some() {
            return invalid("it must not contain credentials");
        }
        let (Some(host), path) = (url.host_str(), url.path()) else { return invalid("the host is missing") };
        if path.len() < 2 || path.ends_with('/') {
            return invalid("a folder of a web server cannot be listed: name its files, or give the bucket behind it");
        }
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let (root, key) = (format!("{}://{host}{port}", url.scheme()), path.trim_start_matches('/').to_string());
        Ok(Self { root, key, names_folder: false, query: url.query().map(str::to_string) })
    }

    /// Whether the source is a file of a web server.
    pub fn is_website(&self) -> bool {
        self.root.starts_with("http")
    }
}
