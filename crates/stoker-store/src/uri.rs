//! URIs of lakes: which are allowed, and their form without credentials.

use crate::{Error, Result};

/// The URL schemes of the stores that a lake can be in.
const SCHEMES: [&str; 5] = ["file", "s3", "gs", "az", "memory"];

/// The beginnings of the URIs of stores that are reached over a network.
const REMOTE_SCHEMES: [&str; 3] = ["s3://", "gs://", "az://"];

/// Whether the store of a lake is reached over a network.
pub fn is_remote(uri: &str) -> bool {
    REMOTE_SCHEMES.iter().any(|scheme| uri.starts_with(scheme))
}

/// Checks the scheme of a URI and returns the URI in its usual form; local paths become absolute.
///
/// # Errors
/// [`Error::InvalidUri`].
pub fn normalised_uri(uri: &str) -> Result<String> {
    let fail = |reason: String| Err(Error::InvalidUri { uri: without_secrets(uri), reason });
    if uri.is_empty() {
        return fail("it is empty".into());
    }
    let path = match uri.split_once("://") {
        None => uri,
        Some(("file", _)) => {
            let url = url::Url::parse(uri).ok().and_then(|url| url.to_file_path().ok());
            match url.as_deref().and_then(std::path::Path::to_str) {
                Some(path) => return Ok(without_trailing_slash(path)),
                None => return fail("it is not the URL of a local path".into()),
            }
        }
        Some((scheme, rest)) if SCHEMES.contains(&scheme) => {
            let rest = rest.trim_end_matches('/');
            return match (scheme, rest) {
                ("memory", "") => Ok("memory://lake".into()),
                (_, "") => fail("the bucket is missing".into()),
                _ if has_userinfo(uri) => fail(
                    "it must not contain credentials: give them as storage options, or as environment variables such \
                     as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                        .into(),
                ),
                _ if rest.contains('?') => fail("it has a query (?…); give settings as storage options".into()),
                _ => Ok(format!("{scheme}://{rest}")),
            };
        }
        Some((scheme, _)) => {
            return fail(format!(
                "scheme '{scheme}' is not supported; use a local path, {}",
                SCHEMES.join("://, ") + "://"
            ));
        }
    };
    let absolute = std::path::absolute(path)
        .map_err(|source| Error::InvalidUri { uri: uri.to_string(), reason: source.to_string() })?;
    match absolute.to_str() {
        Some(path) => Ok(without_trailing_slash(path)),
        None => fail("the path is not UTF-8".into()),
    }
}

/// Removes user, password and query from a URI, because they may hold credentials.
pub fn without_secrets(uri: &str) -> String {
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_string() };
    let rest = rest.split('?').next().unwrap_or_default();
    match rest.rfind('@').filter(|_| has_userinfo(uri)) {
        Some(at) => format!("{scheme}://…{}", &rest[at..]),
        None => format!("{scheme}://{rest}"),
    }
}

/// Whether a URI has a user or a password before the host. A password may contain a slash, although the URI standard
/// forbids it.
fn has_userinfo(uri: &str) -> bool {
    let Some((_, rest)) = uri.split_once("://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    authority.contains('@') || (authority.contains(':') && rest.contains('@'))
}

fn without_trailing_slash(path: &str) -> String {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { "/".into() } else { trimmed.into() }
}
