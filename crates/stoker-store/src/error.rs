//! Errors of object stores, and the kinds that follow from their causes.

use std::error::Error as StdError;

use http::StatusCode;
use object_store::client::{HttpError, HttpErrorKind};
use stoker_types::{ErrorKind, plain_message};

use crate::breaker::Out;
use crate::sectors::Damage;
use crate::uri::without_secrets;

/// The part of object_store's messages that is followed by the status of a response. object_store 0.14.2 makes the
/// message from its type `client::retry::RequestError`, which is private, so that the status can be read from the text
/// only. For 401 and 403, requests for single objects return variants of `object_store::Error`, but listings do not.
const STATUS: &str = "Server returned non-2xx status code: ";

/// The code in the body of a response by which S3 asks for fewer requests. The status may be 200. The body is in the
/// same private type.
const SLOW_DOWN: &str = "<Code>SlowDown<";

/// The codes in the bodies of S3's responses to requests whose credentials have expired. The status is 400. The body is
/// in the same private type.
const EXPIRED: [&str; 3] = ["<Code>ExpiredToken<", "<Code>InvalidToken<", "<Code>TokenRefreshRequired<"];

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an object store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URI of a lake cannot be used.
    #[error("cannot open a lake at {uri:?}: {reason}")]
    InvalidUri {
        /// The URI, without credentials.
        uri: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The store of a lake is not atomic, so that commits would be lost.
    #[error("{lake} cannot be written, commits would be lost: {reason}; use a store that creates objects atomically")]
    UnsafeStore {
        /// The lake and its endpoint.
        lake: String,
        /// What failed.
        reason: String,
    },
    /// Stored bytes are damaged.
    #[error("{attempted}: the data is damaged: {reason}")]
    DataCorrupt {
        /// What was attempted, on which file.
        attempted: String,
        /// What was found.
        reason: String,
    },
    /// Stored bytes of some rows are damaged; other rows of the same file may be intact.
    #[error("{attempted}: the data is damaged: {reason}")]
    DamagedRows {
        /// What was attempted.
        attempted: String,
        /// Which bytes of which file.
        reason: String,
    },
    /// A request to storage failed.
    #[error("{attempted}: {}", first_line(source))]
    Storage {
        /// What was attempted, on which URI.
        attempted: String,
        /// The kind that follows from the cause.
        kind: ErrorKind,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// What one error of a chain of causes says about the kind of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The kind, whatever the causes of this error are.
    Certain(ErrorKind),
    /// The kind, unless a cause of this error says something else.
    Likely(ErrorKind),
}

/// Interprets the errors of libraries that this crate does not know. Returns `None` for all other errors, which say
/// nothing.
pub type Interpret = fn(&(dyn StdError + 'static)) -> Option<Finding>;

/// Interprets no error.
pub(crate) fn uninterpreted(_error: &(dyn StdError + 'static)) -> Option<Finding> {
    None
}

impl Error {
    /// The kind of the error, which says what a caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidUri { .. } | Error::UnsafeStore { .. } => ErrorKind::InvalidRequest,
            Error::DataCorrupt { .. } | Error::DamagedRows { .. } => ErrorKind::DataCorrupt,
            Error::Storage { kind, .. } => *kind,
        }
    }

    /// Makes an error of the storage layer, whose kind follows from its cause. `interpret` knows further types of
    /// causes.
    pub fn storage(
        attempted: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
        interpret: Interpret,
    ) -> Self {
        let (attempted, source) = (attempted.into(), source.into());
        if let Some(damaged) = Damage::error(&attempted, source.as_ref()) {
            return damaged;
        }
        match classify(source.as_ref(), interpret) {
            ErrorKind::DataCorrupt => Error::DataCorrupt { attempted, reason: first_line(&source) },
            kind => Error::Storage { attempted, kind, source },
        }
    }
}

/// Whether an error of kind `Unavailable` with this cause means that the store has more requests than it can serve: it
/// said so, or it did not respond before the timeout.
pub fn is_of_overload(source: &(dyn StdError + 'static)) -> bool {
    let text = source.to_string();
    let is_refusal = matches!(status(&text), Some(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE));
    is_refusal || text.contains(SLOW_DOWN) || is_timeout(source)
}

/// Whether an error with this cause is one of a request that failed or was held back during an outage of the store.
pub fn is_of_outage(source: &(dyn StdError + 'static)) -> bool {
    causes(source).any(|cause| cause.is::<Out>())
}

/// Returns the first line of a message in plain words, at most 400 characters. Lance's source locations are left out,
/// and so are the user and query parts of URLs, which may hold credentials and signatures.
pub fn first_line(source: &(impl std::fmt::Display + ?Sized)) -> String {
    let text = plain_message(&source.to_string());
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(", /").next().unwrap_or(line).split(", library/").next().unwrap_or(line);
    let words: Vec<String> = line.split(' ').map(without_secrets).collect();
    words.join(" ").chars().take(400).collect()
}

/// Whether the request may succeed when it is retried: the store failed or could not be reached.
pub(crate) fn is_transient(error: &object_store::Error, interpret: Interpret) -> bool {
    classify(error, interpret).is_transient()
}

/// Whether a store refused the credentials of a request, or refused the request to their owner.
pub(crate) fn is_denied(error: &object_store::Error) -> bool {
    match error {
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => true,
        object_store::Error::Generic { store: "LocalFileSystem", .. } => false,
        object_store::Error::Generic { .. } => {
            let text = error.to_string();
            let is_denied = matches!(status(&text), Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN));
            is_denied || EXPIRED.iter().any(|code| text.contains(code))
        }
        _ => false,
    }
}

/// Derives the kind of an error from its chain of causes.
fn classify(source: &(dyn StdError + 'static), interpret: Interpret) -> ErrorKind {
    let mut current = Some(source);
    let mut kind = ErrorKind::Internal;
    while let Some(error) = current {
        if let Some(error) = error.downcast_ref::<object_store::Error>() {
            return match error {
                object_store::Error::NotFound { .. } => ErrorKind::NotFound,
                object_store::Error::AlreadyExists { .. } => ErrorKind::AlreadyExists,
                object_store::Error::InvalidPath { .. } | object_store::Error::NotSupported { .. } => {
                    ErrorKind::InvalidRequest
                }
                // Lance holds this file's bytes in memory, and a range beyond their end was requested.
                object_store::Error::Generic { store: "memory" | "InMemory", .. } => ErrorKind::DataCorrupt,
                // An error of Lance that passed through this crate's stores.
                object_store::Error::Generic { store: "N/A", source } => classify(source.as_ref(), interpret),
                object_store::Error::NotImplemented { .. } => ErrorKind::PermissionDenied,
                error if is_denied(error) || is_not_allowed(error) => ErrorKind::PermissionDenied,
                error => refused_by_system(error).unwrap_or(ErrorKind::Unavailable),
            };
        }
        if error.downcast_ref::<tokio::task::JoinError>().is_some_and(|error| error.is_panic()) {
            return ErrorKind::Internal;
        }
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            kind = match error.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    ErrorKind::PermissionDenied
                }
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::ResourceExhausted,
                std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData => ErrorKind::DataCorrupt,
                _ if is_impossible(error) => ErrorKind::DataCorrupt,
                _ => ErrorKind::Unavailable,
            };
            if error.get_ref().is_none() {
                return kind;
            }
        }
        match interpret(error) {
            Some(Finding::Certain(kind)) => return kind,
            Some(Finding::Likely(likely)) => kind = likely,
            None => {}
        }
        current = error.source();
    }
    kind
}

/// Whether the store does not support this kind of request.
fn is_not_allowed(source: &object_store::Error) -> bool {
    let status = status(&source.to_string());
    matches!(status, Some(StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED))
}

/// Returns the status of the response that a message of object_store is about.
fn status(text: &str) -> Option<StatusCode> {
    let (_, status) = text.split_once(STATUS)?;
    StatusCode::from_bytes(status.as_bytes().get(..3)?).ok()
}

/// An error and its causes, outermost first.
fn causes<'a>(source: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(source), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

/// Whether the response, or the rest of its body, did not arrive before the timeout.
fn is_timeout(source: &(dyn StdError + 'static)) -> bool {
    let mut errors = causes(source).filter_map(|error| error.downcast_ref::<HttpError>());
    errors.any(|error| error.kind() == HttpErrorKind::Timeout)
}

/// Whether the system refused an offset that no file can have.
fn is_impossible(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::InvalidInput && error.raw_os_error().is_some()
}

/// Derives the kind from an operating system's error inside a generic error, as local stores report them. A local
/// file that ends early is damaged; a response body from a remote store that ends early was only cut off.
fn refused_by_system(source: &object_store::Error) -> Option<ErrorKind> {
    let is_local = matches!(source, object_store::Error::Generic { store: "LocalFileSystem", .. });
    let mut current = source.source();
    while let Some(error) = current {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return match io.kind() {
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    Some(ErrorKind::PermissionDenied)
                }
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    Some(ErrorKind::ResourceExhausted)
                }
                std::io::ErrorKind::UnexpectedEof if is_local => Some(ErrorKind::DataCorrupt),
                _ if is_local && is_impossible(io) => Some(ErrorKind::DataCorrupt),
                _ => None,
            };
        }
        current = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use http::StatusCode;
    use object_store::aws::{AmazonS3, AmazonS3Builder};
    use object_store::client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    };
    use object_store::path::Path;
    use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig};
    use stoker_types::ErrorKind;

    use super::{Error, Finding, Interpret, first_line, is_denied, is_of_overload, uninterpreted};

    /// A connection to a store that gives the same response to each request.
    #[derive(Clone, Debug)]
    struct Answers {
        status: StatusCode,
        body: &'static str,
    }

    #[async_trait::async_trait]
    impl HttpService for Answers {
        async fn call(&self, _request: HttpRequest) -> Result<HttpResponse, HttpError> {
            let response = http::Response::builder().status(self.status).body(self.body.to_string().into());
            response.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))
        }
    }

    impl HttpConnector for Answers {
        fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
            Ok(HttpClient::new(self.clone()))
        }
    }

    fn s3(status: StatusCode, body: &'static str) -> AmazonS3 {
        let builder = AmazonS3Builder::new().with_endpoint("http://store").with_bucket_name("bucket");
        let builder = builder.with_access_key_id("a").with_secret_access_key("b").with_allow_http(true);
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        builder.with_retry(retry).with_http_connector(Answers { status, body }).build().expect("a store")
    }

    /// The errors of S3's client, for one object and for a listing, about the same response.
    async fn errors(status: StatusCode, body: &'static str) -> [object_store::Error; 2] {
        let (store, path) = (s3(status, body), Path::from("status code: 429 <Code>SlowDown"));
        let listed = store.list_with_delimiter(None).await.expect_err("no list");
        [store.get(&path).await.expect_err("no object"), listed]
    }

    #[tokio::test]
    async fn statuses_and_codes_of_responses_are_known_by_the_errors_of_the_client() {
        let expired = "<Error><Code>ExpiredToken</Code><Message>too late</Message></Error>";
        let slow_down = "<Error><Code>SlowDown</Code><Message>wait</Message></Error>";
        for (status, body, kind, is_overload) in [
            (429, "", ErrorKind::Unavailable, true),
            (503, slow_down, ErrorKind::Unavailable, true),
            (500, slow_down, ErrorKind::Unavailable, true),
            (500, "status code: 503", ErrorKind::Unavailable, false),
            (401, "", ErrorKind::PermissionDenied, false),
            (403, "", ErrorKind::PermissionDenied, false),
            (400, expired, ErrorKind::PermissionDenied, false),
            (400, "", ErrorKind::Unavailable, false),
            (405, "", ErrorKind::PermissionDenied, false),
            (501, "", ErrorKind::PermissionDenied, false),
        ] {
            for error in errors(StatusCode::from_u16(status).expect("a status"), body).await {
                let expects_denial = matches!(status, 400 | 401 | 403) && kind == ErrorKind::PermissionDenied;
                assert_eq!((is_of_overload(&error), is_denied(&error)), (is_overload, expects_denial), "{error}");
                assert_eq!(Error::storage("reading", error, uninterpreted).kind(), kind, "{status} {body}");
            }
        }
    }

    #[tokio::test]
    async fn a_store_may_ask_for_fewer_requests_in_the_body_of_a_response_without_an_error() {
        let (from, to) = (Path::from("a"), Path::from("b"));
        for (body, is_overload) in [
            ("<Error><Code>SlowDown</Code><Message>wait</Message></Error>", true),
            ("<Error><Code>InternalError</Code><Message>broken</Message></Error>", false),
        ] {
            let error = s3(StatusCode::OK, body).copy(&from, &to).await.expect_err("not copied");
            assert_eq!(is_of_overload(&error), is_overload, "{error}");
            assert_eq!(kind(error, uninterpreted), ErrorKind::Unavailable);
        }
    }

    /// An error of another library, with a cause.
    #[derive(Debug, thiserror::Error)]
    struct Foreign {
        name: &'static str,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    }

    impl fmt::Display for Foreign {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.name)
        }
    }

    fn interpret(error: &(dyn std::error::Error + 'static)) -> Option<Finding> {
        match error.downcast_ref::<Foreign>()?.name {
            "certain" => Some(Finding::Certain(ErrorKind::AlreadyExists)),
            "likely" => Some(Finding::Likely(ErrorKind::InvalidRequest)),
            _ => None,
        }
    }

    fn kind(source: impl Into<Box<dyn std::error::Error + Send + Sync>>, interpret: Interpret) -> ErrorKind {
        Error::storage("reading", source, interpret).kind()
    }

    #[test]
    fn offsets_that_no_file_has_are_damage() {
        const EINVAL: i32 = 22;
        assert_eq!(kind(std::io::Error::from_raw_os_error(EINVAL), uninterpreted), ErrorKind::DataCorrupt);
        let wrapped =
            |store| object_store::Error::Generic { store, source: Box::new(std::io::Error::from_raw_os_error(EINVAL)) };
        assert_eq!(kind(wrapped("LocalFileSystem"), uninterpreted), ErrorKind::DataCorrupt);
        assert_eq!(kind(wrapped("S3"), uninterpreted), ErrorKind::Unavailable);
    }

    #[test]
    fn errors_of_other_libraries_are_interpreted_wherever_they_are() {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound).into();
        for (name, alone, with_cause) in [
            ("certain", ErrorKind::AlreadyExists, ErrorKind::AlreadyExists),
            ("likely", ErrorKind::InvalidRequest, ErrorKind::NotFound),
            ("other", ErrorKind::Internal, ErrorKind::NotFound),
        ] {
            assert_eq!(kind(Foreign { name, source: None }, interpret), alone, "{name}");
            assert_eq!(kind(Foreign { name, source: Some(missing()) }, interpret), with_cause, "{name}");
            let passed = object_store::Error::Generic { store: "N/A", source: Foreign { name, source: None }.into() };
            assert_eq!(kind(passed, interpret), alone, "{name}");
            assert_eq!(kind(Foreign { name, source: None }, uninterpreted), ErrorKind::Internal, "{name}");
        }
    }

    #[test]
    fn messages_hide_users_and_queries_of_urls() {
        let text = "cannot read https://me:secret@host/a?signature=secret now\na second line";
        assert_eq!(first_line(text), "cannot read https://…@host/a now");
    }
}
