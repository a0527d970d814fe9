//! The options that say which lake or server a command connects to.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use arrow_array::Decimal128Array;
use clap::Args;
use clap::builder::BoolishValueParser;
use stoker::{ClientOptions, ConnectOptions, Connection, Secret, connect};
use stoker_lake::StorageOptions;
use stoker_types::{ArrowParam, ParamValue, SnapshotRef};

use crate::secret_args::{OnCommandLine, secret_in_environment};

/// The heading of the options that say which lake or server a command connects to, in the help of each command.
pub const LAKE: &str = "Lake";

/// The lake or server that a command connects to.
///
/// A heading holds for all options that follow, so that this group and others with one are the last fields of their structs.
#[derive(Debug, Args)]
#[command(next_help_heading = LAKE)]
pub struct LakeArgs {
    /// The lake: a local path, s3://, gs://, az:// or file://
    #[arg(long, global = true, env = "STOKER_LAKE", hide_env_values = true)]
    lake: Option<String>,
    /// A server, instead of a lake: grpc://host:port, grpc+tls://host:port or, on this host, unix:///path; several
    /// servers are separated by commas
    #[arg(long, global = true, env = "STOKER_SERVER", hide_env_values = true, conflicts_with = "lake")]
    server: Option<String>,
    /// A file with the bearer token for the server; overrides the token in STOKER_CLIENT_TOKEN
    #[arg(long, global = true, env = "STOKER_CLIENT_TOKEN_FILE", value_name = "FILE")]
    server_token_file: Option<PathBuf>,
    #[arg(long, global = true, hide = true, value_parser = OnCommandLine::parse)]
    server_token: Option<OnCommandLine>,
    /// A PEM file with the server's certificate authority
    #[arg(long, global = true, env = "STOKER_TLS_CA")]
    tls_ca: Option<PathBuf>,
    /// A PEM file with this client's certificate, for a server that requires one
    #[arg(long, global = true, env = "STOKER_CLIENT_TLS_CERT", requires = "client_tls_key")]
    client_tls_cert: Option<PathBuf>,
    /// A PEM file with the private key of that certificate
    #[arg(long, global = true, env = "STOKER_CLIENT_TLS_KEY", requires = "client_tls_cert")]
    client_tls_key: Option<PathBuf>,
    /// An option of the object store, such as aws_endpoint=http://127.0.0.1:9000; repeatable. Put credentials into
    /// environment variables instead
    #[arg(long = "storage-option", global = true, value_name = "KEY=VALUE")]
    storage_options: Vec<String>,
}

impl LakeArgs {
    /// Returns the lake's URI, for commands that work on the lake itself.
    pub fn local(&self, command: &str) -> anyhow::Result<&str> {
        match (&self.lake, &self.server) {
            (Some(lake), _) => Ok(lake),
            (None, Some(_)) => bail!("`stoker {command}` works on a lake, not through a server: give --lake"),
            (None, None) => bail!("no lake is given: use --lake URI or set STOKER_LAKE"),
        }
    }

    /// Returns the object store's options, with those from the environment added.
    pub fn storage(&self) -> anyhow::Result<StorageOptions> {
        let name = "--storage-option";
        let options = storage_options(name, &self.storage_options)?;
        warn_of_credentials(name, "AWS_SECRET_ACCESS_KEY or AZURE_STORAGE_ACCOUNT_KEY", &self.storage_options);
        Ok(options.with_env())
    }

    fn token(&self) -> anyhow::Result<Option<Secret>> {
        OnCommandLine::refuse(self.server_token, "--server-token", "--server-token-file", "STOKER_CLIENT_TOKEN")?;
        match &self.server_token_file {
            Some(path) => Ok(Some(Secret::read("token", path)?)),
            None => Ok(secret_in_environment("STOKER_CLIENT_TOKEN")),
        }
    }

    /// Connects to the server or opens the lake.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        self.connect_with(ReadArgs::default()).await
    }

    /// Connects as [`LakeArgs::connect`] does, with options for how streams read the lake.
    pub async fn connect_with(&self, reads: ReadArgs) -> anyhow::Result<Connection> {
        let Some(target) = self.server.as_ref().or(self.lake.as_ref()) else {
            bail!("no lake is given: use --lake URI or --server URL, or set STOKER_LAKE or STOKER_SERVER");
        };
        let options = ConnectOptions {
            client: ClientOptions {
                token: self.token()?,
                tls_ca: self.tls_ca.clone(),
                tls_cert: self.client_tls_cert.clone(),
                tls_key: self.client_tls_key.clone(),
                ..ClientOptions::default()
            },
            storage_options: self.storage()?,
            cache_dir: reads.cache_dir,
            cache_bytes: reads.cache_bytes,
            direct_io: reads.direct_io.unwrap_or_default(),
            hold_days: reads.hold_days,
        };
        Ok(connect(target, &options).await?)
    }
}

/// Parses the options of an object store, which the option `name` gave, one by one.
pub(crate) fn storage_options(name: &str, given: &[String]) -> anyhow::Result<StorageOptions> {
    let mut pairs = Vec::new();
    for (index, option) in given.iter().enumerate() {
        // The error does not show an option without `=`, because all of it may be a credential.
        let is_no_pair = || format!("{name} number {} is not KEY=VALUE", index + 1);
        let (key, value) = option.split_once('=').with_context(is_no_pair)?;
        pairs.push((key.to_string(), value.to_string()));
    }
    Ok(StorageOptions::new(pairs))
}

/// Warns of credentials on the command line. `variables` are examples of environment variables for them.
pub(crate) fn warn_of_credentials(name: &str, variables: &str, given: &[String]) {
    let keys = given.iter().filter_map(|option| Some(option.split_once('=')?.0));
    for key in keys.filter(|key| StorageOptions::is_credential(key)) {
        tracing::warn!(
            "{name} {key} shows a credential to all users of this machine, in the list of processes: set the store's variable, \
             such as {variables}"
        );
    }
}

/// The options for how streams read a lake.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Reading the lake")]
pub struct ReadArgs {
    /// A local folder that caches what streams read from object stores, for later epochs and other processes. Lakes on
    /// a local disk do not use it
    #[arg(long, env = "STOKER_CACHE_DIR", value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// The maximum number of bytes in the cache folder [default: half of the free space of its file system]
    #[arg(long, env = "STOKER_CACHE_BYTES", value_name = "BYTES")]
    pub cache_bytes: Option<u64>,
    /// Read tensors of lakes on a local disk without the system's page cache, for tables larger than memory. Where the
    /// file system does not support that, the tensors are read through the page cache and then dropped from it. Lakes
    /// in object stores do not use it
    #[arg(
        long,
        env = "STOKER_DIRECT_IO",
        value_name = "BOOL",
        value_parser = BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub direct_io: Option<bool>,
    /// The number of days for which cleanups keep the versions that streams read, counted from the last time that a
    /// stream read them; 0 keeps none [default: 30]
    #[arg(long, env = "STOKER_HOLD_DAYS", value_name = "DAYS")]
    pub hold_days: Option<u32>,
}

/// The snapshot of a table that a command reads.
#[derive(Debug, Args)]
#[command(next_help_heading = "Version of the table")]
pub struct AtArgs {
    /// A version, by its number; the newest by default
    #[arg(long, conflicts_with = "tag")]
    version: Option<u64>,
    /// The version that a tag points to
    #[arg(long)]
    tag: Option<String>,
}

impl AtArgs {
    /// Returns the snapshot that the options name.
    pub fn snapshot(&self) -> SnapshotRef {
        match (&self.version, &self.tag) {
            (Some(version), _) => SnapshotRef::Version(*version),
            (None, Some(tag)) => SnapshotRef::Tag(tag.clone()),
            (None, None) => SnapshotRef::Latest,
        }
    }
}

/// Parses parameters from JSON texts. A text that is not JSON becomes a string, and an integer that does not fit 64
/// bits becomes a decimal.
pub fn parse_params(texts: &[String]) -> Vec<ParamValue> {
    let parse = |text: &String| {
        large_integer(text)
            .or_else(|| serde_json::from_str(text).ok())
            .unwrap_or_else(|| ParamValue::Text(text.clone()))
    };
    texts.iter().map(parse).collect()
}

/// Parses an integer beyond 64 bits, with up to 38 digits, as a decimal; returns `None` for any other text.
fn large_integer(text: &str) -> Option<ParamValue> {
    let value: i128 = text.parse().ok()?;
    if i64::try_from(value).is_ok() || u64::try_from(value).is_ok() {
        return None;
    }
    let array = Decimal128Array::from(vec![value]).with_precision_and_scale(38, 0).ok()?;
    array.validate_decimal_precision(38).ok()?;
    ArrowParam::try_new(Arc::new(array)).ok().map(ParamValue::Arrow)
}
