//! Requests to a web server, for files whose URLs are known.

use std::collections::HashMap;
use std::ops::Range;
use std::str::FromStr;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderName, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequestBody, HttpResponse, ReqwestConnector};
use object_store::{ClientConfigKey, ClientOptions};
use stoker_store::{StorageOptions, first_line};
use stoker_types::to_usize;

use crate::listed_object::plain_etag;
use crate::read_ahead::PART_BYTES;
use crate::requests::Requests;
use crate::{Error, ListedObject, Result, SourceUri};

/// A web server.
#[derive(Debug)]
pub(crate) struct Website {
    client: HttpClient,
    root: String,
    /// The queries of the URLs of files, by key.
    queries: HashMap<String, String>,
}

impl Website {
    /// Prepares requests for files of one server.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that no client has, and for `http://` without the option `allow_http`.
    pub fn open(files: &[SourceUri], options: &StorageOptions) -> Result<Self> {
        let root = files.first().map(|file| file.root.clone()).unwrap_or_default();
        let options = options.resolved();
        let may_be_plain = options.get("allow_http").is_some_and(|value| value == "true");
        if root.starts_with("http://") && !may_be_plain {
            let reason = "http:// is not encrypted; give --source-option allow_http=true if that is right".into();
            return Err(Error::Invalid { reason });
        }
        let mut client = ClientOptions::new();
        for (key, value) in options {
            if let Ok(key) = ClientConfigKey::from_str(&key) {
                client = client.with_config(key, value);
            }
        }
        let client = ReqwestConnector::default().connect(&client).map_err(Error::of_store)?;
        let queries = files.iter().filter_map(|file| Some((file.key.clone(), file.query.clone()?))).collect();
        Ok(Self { client, root, queries })
    }

    /// Asks for a range of a file.
    async fn ask(&self, key: &str, range: &Range<u64>) -> Result<HttpResponse> {
        let query = self.queries.get(key).map(|query| format!("?{query}")).unwrap_or_default();
        let request = Request::get(format!("{}/{key}{query}", self.root))
            .header(RANGE, format!("bytes={}-{}", range.start, range.end.saturating_sub(1)))
            .body(HttpRequestBody::empty())
            .map_err(|error| Error::Invalid { reason: error.to_string() })?;
        self.client.execute(request).await.map_err(|error| of_client(&error))
    }
}

#[async_trait::async_trait]
impl Requests for Website {
    async fn get(&self, key: &str, range: Range<u64>) -> Result<(Bytes, ListedObject)> {
        let response = self.ask(key, &range).await?;
        let (expected, whole) = (range.end - range.start, number(response.headers(), CONTENT_LENGTH));
        let bytes = match response.status() {
            StatusCode::PARTIAL_CONTENT => match content_range(response.headers()) {
                Some((found, bytes)) if found == range => bytes,
                _ => return Err(Error::Unavailable { reason: "the server answers with other bytes".into() }),
            },
            StatusCode::OK if range.start == 0 => match whole {
                Some(bytes) if bytes == range.end => bytes,
                // Some server that serves no ranges has another file now.
                Some(bytes) => return Ok((Bytes::new(), object(response.headers(), bytes))),
                None => return Err(without_ranges()),
            },
            StatusCode::OK => return Err(without_ranges()),
            status => return Err(refused(status)),
        };
        let object = object(response.headers(), bytes);
        let body = Limited::new(response.into_body(), to_usize(expected)).collect().await;
        let bytes = body.map_err(|error| Error::Unavailable { reason: first_line(&error) })?.to_bytes();
        match bytes.len() as u64 == expected {
            true => Ok((bytes, object)),
            false => Err(Error::Unavailable { reason: format!("{} bytes came instead of {expected}", bytes.len()) }),
        }
    }

    async fn head(&self, key: &str) -> Result<Option<ListedObject>> {
        // A signed URL is often signed for GET only.
        let response = self.ask(key, &(0..1)).await?;
        let headers = response.headers();
        let bytes = match response.status() {
            StatusCode::PARTIAL_CONTENT => content_range(headers).map(|(_, bytes)| bytes),
            StatusCode::RANGE_NOT_SATISFIABLE => Some(0),
            StatusCode::OK => number(headers, CONTENT_LENGTH).filter(|bytes| *bytes <= PART_BYTES),
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            status => return Err(refused(status)),
        };
        bytes.map(|bytes| Some(object(headers, bytes))).ok_or_else(without_ranges)
    }

    async fn list(&self, _folder: &str, _found: &mut Vec<(String, ListedObject)>) -> Result<()> {
        Err(Error::Invalid { reason: "a folder of a web server cannot be listed: name its files".into() })
    }
}

fn object(headers: &HeaderMap, bytes: u64) -> ListedObject {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let version = text(&ETAG).map(plain_etag).or_else(|| text(&LAST_MODIFIED)).unwrap_or_default();
    ListedObject { bytes, version: version.into(), modified_nanos: 0 }
}

fn number(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Parses `bytes 0-9/100`.
fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, size) = text.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let last: u64 = last.parse().ok()?;
    Some((first.parse().ok()?..last.checked_add(1)?, size.parse().ok()?))
}

fn without_ranges() -> Error {
    let reason = format!("the server does not serve parts of files, which files over {} MiB need", PART_BYTES >> 20);
    Error::Invalid { reason }
}

/// Returns the error for a response that has no file.
fn refused(status: StatusCode) -> Error {
    let reason = format!("the server answers {status}");
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Error::gone(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Error::Unavailable { reason },
        status if status.is_server_error() => Error::Unavailable { reason },
        StatusCode::RANGE_NOT_SATISFIABLE => Error::Unavailable { reason },
        _ => Error::Denied { reason },
    }
}

fn of_client(error: &HttpError) -> Error {
    let cause = std::error::Error::source(error).map(|source| first_line(&source)).unwrap_or_default();
    let reason = format!("{}: {cause}", first_line(error));
    Error::Unavailable { reason }
}
