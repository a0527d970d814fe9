//! Options of object stores.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

const KEY_ID: &str = "aws_access_key_id";
const SESSION_TOKEN: &str = "aws_session_token";

/// Environment variables, each with the option for which it is the default.
const FROM_ENV: [(&str, &str); 8] = [
    ("AWS_ENDPOINT_URL", "aws_endpoint"),
    ("AWS_ENDPOINT", "aws_endpoint"),
    ("AWS_REGION", "aws_region"),
    ("AWS_DEFAULT_REGION", "aws_region"),
    ("AWS_ACCESS_KEY_ID", KEY_ID),
    ("AWS_SECRET_ACCESS_KEY", "aws_secret_access_key"),
    ("AWS_SESSION_TOKEN", SESSION_TOKEN),
    ("AWS_ALLOW_HTTP", "allow_http"),
];

/// Substrings by which the names of credentials are recognized, in lower case.
const CREDENTIALS: [&str; 5] = ["secret", "token", "password", "account_key", "sas_key"];

/// Options that limit the rate of Lance's requests. Lance requires that the minimum rate is not above the other two.
const MIN_RATE: &str = "lance_aimd_min_rate";
const RATES: [&str; 3] = [MIN_RATE, "lance_aimd_initial_rate", "lance_aimd_max_rate"];

/// Lance's default for the initial rate, in requests per second.
const INITIAL_RATE: &str = "2000";

/// The option for how often Lance's rate limiter retries a request by itself.
const RATE_RETRIES: &str = "lance_aimd_max_retries";

/// Key-value options of an object store, for example `aws_endpoint`, `aws_region`, `aws_access_key_id`, `timeout`.
///
/// Debug output contains no values, because some of them are credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StorageOptions(BTreeMap<String, String>);

impl StorageOptions {
    /// Makes options from pairs; keys are converted to lower case.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.to_lowercase(), value)).collect())
    }

    /// Completes these options from the environment: `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID` and the
    /// like. A key that was given has no session token in the environment, which belongs to another key.
    #[must_use]
    pub fn with_env(mut self) -> Self {
        let has_own_key = self.get(KEY_ID).is_some();
        for (variable, key) in FROM_ENV.into_iter().filter(|(_, key)| !has_own_key || *key != SESSION_TOKEN) {
            if let Ok(value) = std::env::var(variable) {
                self.0.entry(key.to_string()).or_insert(value);
            }
        }
        self
    }

    /// Completes these options from environment variables with a prefix: `PREFIX_AWS_REGION` is the option `aws_region`.
    #[must_use]
    pub fn with_env_of(mut self, prefix: &str) -> Self {
        for (variable, value) in std::env::vars_os() {
            if let (Some(variable), Some(value)) = (variable.to_str(), value.to_str())
                && let Some(key) = variable.strip_prefix(prefix)
            {
                self.0.entry(key.to_lowercase()).or_insert_with(|| value.to_string());
            }
        }
        self
    }

    /// Sets an option that was not given.
    #[must_use]
    pub fn with_default(mut self, key: &str, value: &str) -> Self {
        self.0.entry(key.to_string()).or_insert_with(|| value.to_string());
        self
    }

    /// Returns whether no option was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an option of this name is a credential.
    pub fn is_credential(key: &str) -> bool {
        let key = key.to_lowercase();
        CREDENTIALS.iter().any(|part| key.contains(part))
    }

    /// Returns the value of an option, or `None` if it was not given.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns the maximum duration of a write, retries included.
    pub fn commit_deadline(&self) -> Duration {
        ["timeout", "client_retry_timeout"].into_iter().filter_map(|key| self.time(key)).sum()
    }

    /// Returns the maximum duration of opening a table, retries included: twice the timeout of one request.
    pub fn opening_deadline(&self) -> Option<Duration> {
        self.time("timeout").map(|timeout| timeout.saturating_mul(2))
    }

    /// Returns an option that is a duration, such as `5s`, or `20`, which means seconds.
    fn time(&self, key: &str) -> Option<Duration> {
        let resolved = self.resolved();
        let text = resolved.get(key)?;
        humantime::parse_duration(text).ok().or_else(|| Some(Duration::from_secs(text.parse().ok()?)))
    }

    /// Returns all options, with Stoker's defaults where an option was not given. Requests time out after 5 s, and are
    /// retried three times within 20 s; an endpoint that begins with `http://` is allowed. Lance's rate limiter neither
    /// retries requests nor falls below its initial rate: by default it falls to one request per second in an outage
    /// and recovers slowly. The circuit breaker of this crate stops requests in an outage instead.
    pub fn resolved(&self) -> HashMap<String, String> {
        let mut options: HashMap<_, _> = self.0.clone().into_iter().collect();
        if self.get("aws_endpoint").is_some_and(|endpoint| endpoint.starts_with("http://")) {
            options.entry("allow_http".into()).or_insert_with(|| "true".into());
        }
        if self.get("aws_endpoint").is_some() {
            options.entry("aws_region".into()).or_insert_with(|| "us-east-1".into());
        }
        for (key, value) in [
            ("timeout", "5s"),
            ("connect_timeout", "2s"),
            ("client_max_retries", "3"),
            ("client_retry_timeout", "20"),
            ("download_retry_count", "2"),
        ] {
            options.entry(key.into()).or_insert_with(|| value.into());
        }
        let is_set = |key: &str| self.get(key).is_some() || std::env::var_os(key.to_uppercase()).is_some();
        if !RATES.into_iter().any(is_set) {
            options.insert(MIN_RATE.into(), INITIAL_RATE.into());
        }
        if !is_set(RATE_RETRIES) {
            options.insert(RATE_RETRIES.into(), "0".into());
        }
        options
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
