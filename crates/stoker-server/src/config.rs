//! Settings of a server.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use stoker_lake::{HOLD_DAYS, HOLD_DAYS_MAX};
use stoker_net::{Secret, UnixPath};
use stoker_session::{Error, Result};
use stoker_types::Role;

use crate::edge::ConnectionTimes;
use crate::permits::Shares;
use crate::ticket_key::TicketKey;
use crate::{QuerySettings, toml_file};

/// The upper bound of the default for `connections_max`: an idle connection takes about 30 KiB of memory.
const CONNECTIONS_MAX: usize = 4_096;

/// The settings of a server, as in its configuration file (TOML). All have defaults.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The addresses to listen on, as a list or a single text: `host:port`, where port 0 picks a free one, or
    /// `unix:///path` for clients of the same user on this host. `127.0.0.1:8815` by default.
    #[serde(deserialize_with = "one_or_several")]
    pub listen: Vec<String>,
    /// A loopback address, `host:port`, on which operators get `/healthz`, `/readyz` and `/metrics` over HTTP without a
    /// token; none by default.
    pub admin_listen: Option<String>,
    /// If true, the server may listen on addresses that other machines reach without a token or without TLS; `false` by
    /// default.
    pub insecure: bool,
    /// If true, clients with the role `write` may execute statements that change the lake; `false` by default.
    pub allow_writes: bool,
    /// The bearer token of an administrator, at least 16 bytes; none by default. If any token is configured, every
    /// request must carry a valid one (or come with a client certificate, see [`TlsFiles::client_ca`]), except health
    /// checks.
    pub token: Option<Secret>,
    /// A file that contains this token; an alternative to `token`.
    pub token_file: Option<PathBuf>,
    /// A file of named tokens (TOML), each with a role and optionally an expiry time. The server reads it again when it
    /// changes.
    pub tokens_file: Option<PathBuf>,
    /// The certificate and key for all TCP addresses; plain text by default.
    pub tls: Option<TlsFiles>,
    /// Keys that sign tickets; the first key signs. By default one random key for each start, so replicas need
    /// configured keys that they share.
    pub ticket_keys: Vec<TicketKey>,
    /// A file with such keys, one per line as `ID:SECRET` or `SECRET`. They come before those of `ticket_keys`.
    pub ticket_key_file: Option<PathBuf>,
    /// The time for which tickets are valid, in seconds; 3,600 by default.
    pub ticket_ttl_secs: u64,
    /// URIs at which clients reach this service; the server puts them into endpoints. None by default, which tells
    /// clients to stay with the server that they asked.
    pub advertise: Vec<String>,
    /// The target size of a message in bytes, before compression; 2 MiB by default.
    pub message_bytes: usize,
    /// The maximum memory in bytes for parts of batches that are being filled or wait to be sent, for all streams of
    /// the server; 2 GiB by default. That is four times the default size of a job's windows, which the server reads as
    /// a whole. Open streams share the bytes equally, but one stream gets at most half. A stream may always hold one
    /// part, besides the messages that are being sent.
    pub memory_budget_bytes: u64,
    /// A local folder for the chunk cache: it keeps what streams read from the lake's object store, for later epochs,
    /// jobs and servers. None by default. A lake on a local disk does not use it.
    pub cache_dir: Option<PathBuf>,
    /// The maximum size of this folder in bytes; half of the free space of its file system by default.
    pub cache_bytes: Option<u64>,
    /// If true, streams read the dense columns of a lake on a local disk past the page cache (`O_DIRECT`); `false` by
    /// default. A lake in an object store does not use it.
    pub direct_io: bool,
    /// The number of days, from the last read on, for which the table versions that streams read are protected from
    /// cleanups; 30 by default. 0 turns this off.
    pub hold_days: u32,
    /// Limits of queries.
    pub query: QuerySettings,
    /// The number of objects that each principal with the role `read` may add to the lake in a day, by new streams,
    /// runs and log entries; 100,000 by default. A stream takes three objects or more, a log entry three.
    pub reader_objects_per_day: u64,
    /// The size of these objects in bytes; 64 GiB by default.
    pub reader_bytes_per_day: u64,
    /// The maximum number of streams at once; 256 by default.
    pub streams_max: usize,
    /// The maximum number of streams at once for one client (an address with a token); three quarters of `streams_max`
    /// by default.
    pub streams_per_client_max: Option<usize>,
    /// The maximum number of query results that are sent at once, of which one client gets at most three quarters; 64
    /// by default.
    pub results_max: usize,
    /// The time in seconds after which the server ends a stream or a result whose client reads nothing of it; 60 by
    /// default. Stoker's client opens the stream again, from where it stopped, when its consumer wants more.
    pub stall_secs: u64,
    /// The maximum number of connections at once. By default half of the process's limit of open files, 4,096 at most:
    /// the other half is for storage.
    pub connections_max: Option<usize>,
    /// The maximum number of connections at once from one address or one IPv6 network (64 bits); three quarters of all
    /// by default.
    pub connections_per_address_max: Option<usize>,
    /// The deadline in seconds from the beginning of a connection to the headers of its first request; 10 by default.
    pub handshake_secs: u64,
    /// The time in seconds without a request after which the server closes a connection; 300 by default.
    pub idle_secs: u64,
    /// The time in seconds without a frame after which the server pings a client; 30 by default. The server closes the
    /// connection of a client that does not respond for this time plus `stall_secs`.
    pub keepalive_secs: u64,
    /// The maximum size of a request in bytes; 16 MiB by default.
    pub request_bytes_max: usize,
    /// The grace period in seconds for running streams when the server stops; 10 by default.
    pub grace_secs: u64,
}

/// The certificate and key files (PEM). The server reads them again when they change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate chain.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The certificate authority of client certificates, which replace tokens; none by default.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// The role of clients with a certificate; `read` by default.
    #[serde(default)]
    pub client_role: Option<Role>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec!["127.0.0.1:8815".into()],
            admin_listen: None,
            insecure: false,
            allow_writes: false,
            token: None,
            token_file: None,
            tokens_file: None,
            tls: None,
            ticket_keys: Vec::new(),
            ticket_key_file: None,
            ticket_ttl_secs: 3_600,
            advertise: Vec::new(),
            message_bytes: 2 << 20,
            memory_budget_bytes: 2 << 30,
            cache_dir: None,
            cache_bytes: None,
            direct_io: false,
            hold_days: HOLD_DAYS,
            query: QuerySettings::default(),
            reader_objects_per_day: 100_000,
            reader_bytes_per_day: 64 << 30,
            streams_max: 256,
            streams_per_client_max: None,
            results_max: 64,
            stall_secs: 60,
            connections_max: None,
            connections_per_address_max: None,
            handshake_secs: 10,
            idle_secs: 300,
            keepalive_secs: 30,
            request_bytes_max: 16 << 20,
            grace_secs: 10,
        }
    }
}

impl ServerConfig {
    /// Parses the text of a configuration file.
    ///
    /// # Errors
    /// A text that does not parse. The message contains no values, because some are secret.
    pub fn parse(text: &str) -> Result<Self> {
        toml_file::parse(text)
    }

    /// Returns the token of the administrator, if one is configured.
    ///
    /// # Errors
    /// A token that is too short; both `token` and `token_file`; a file that cannot be read.
    pub(crate) fn admin_token(&self) -> Result<Option<Secret>> {
        let token = match (&self.token, &self.token_file) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid("token and token_file are both given; leave one of them out"));
            }
            (Some(token), None) => token.clone(),
            (None, Some(path)) => Secret::read("token", path).map_err(stoker_wire::Error::from)?,
            (None, None) => return Ok(None),
        };
        token.check("token").map_err(stoker_wire::Error::from)?;
        Ok(Some(token))
    }

    /// Returns whether tokens are configured.
    pub(crate) fn has_tokens(&self) -> bool {
        self.token.is_some() || self.token_file.is_some() || self.tokens_file.is_some()
    }

    /// Returns the role of clients with a certificate, if an authority for them is configured.
    pub(crate) fn certificate_role(&self) -> Option<Role> {
        let tls = self.tls.as_ref().filter(|tls| tls.client_ca.is_some())?;
        Some(tls.client_role.unwrap_or(Role::Read))
    }

    /// Returns whether clients must authenticate by a token or a certificate.
    pub(crate) fn asks_who(&self) -> bool {
        self.has_tokens() || self.certificate_role().is_some()
    }

    /// Checks the ranges of the settings, and that they fit together.
    pub(crate) fn validate(&self) -> Result<()> {
        let check = |name: &str, good: bool, range: &str| match good {
            true => Ok(()),
            false => Err(Error::invalid(format!("{name} is out of range: {range}"))),
        };
        check("listen", !self.listen.is_empty(), "at least one address")?;
        let only_unix = self.listen.iter().all(|address| UnixPath::strip_scheme(address).is_some());
        if self.tls.is_some() && only_unix {
            return Err(Error::invalid(
                "TLS is for TCP, and all addresses to listen on are Unix sockets, which never leave this host: \
                 leave out certificate and key",
            ));
        }
        let role_of_nobody = self.tls.as_ref().is_some_and(|tls| tls.client_role.is_some() && tls.client_ca.is_none());
        if role_of_nobody {
            return Err(Error::invalid(
                "client_role is for clients with certificates: give client_ca, their authority",
            ));
        }
        check("message_bytes", (1 << 10..=64 << 20).contains(&self.message_bytes), "1 KiB to 64 MiB")?;
        check("ticket_ttl_secs", (1..=30 * 86_400).contains(&self.ticket_ttl_secs), "1 s to 30 days")?;
        check("hold_days", self.hold_days <= HOLD_DAYS_MAX, "0 to 3,650")?;
        let counts = 1..=1 << 20;
        check("streams_max", counts.contains(&self.streams_max), "1 to 1,048,576")?;
        check("results_max", counts.contains(&self.results_max), "1 to 1,048,576")?;
        for (name, count) in [
            ("streams_per_client_max", self.streams_per_client_max),
            ("connections_max", self.connections_max),
            ("connections_per_address_max", self.connections_per_address_max),
        ] {
            check(name, count.is_none_or(|count| counts.contains(&count)), "1 to 1,048,576")?;
        }
        for (name, secs) in [
            ("stall_secs", self.stall_secs),
            ("handshake_secs", self.handshake_secs),
            ("idle_secs", self.idle_secs),
            ("keepalive_secs", self.keepalive_secs),
        ] {
            check(name, (1..=86_400).contains(&secs), "1 s to 1 day")?;
        }
        check("memory_budget_bytes", self.memory_budget_bytes > 0, "at least 1")
    }

    /// Returns the bytes that one stream may hold: half of the budget, so that a stream whose client stalls leaves
    /// memory to later streams.
    pub(crate) fn stream_budget_bytes(&self) -> u64 {
        self.memory_budget_bytes.div_ceil(2)
    }

    pub(crate) fn stall(&self) -> Duration {
        Duration::from_secs(self.stall_secs)
    }

    /// Returns the numbers of permits for streams.
    pub(crate) fn stream_shares(&self) -> Shares {
        let per_client = self.streams_per_client_max.unwrap_or(three_quarters(self.streams_max));
        Shares { total: self.streams_max, per_client }
    }

    /// Returns the numbers of permits for query results.
    pub(crate) fn result_shares(&self) -> Shares {
        Shares { total: self.results_max, per_client: three_quarters(self.results_max) }
    }

    /// Returns the numbers of permits for connections, for a process that may have `files_max` files open.
    pub(crate) fn connection_shares(&self, files_max: u64) -> Shares {
        let by_files = usize::try_from(files_max / 2).unwrap_or(CONNECTIONS_MAX).clamp(1, CONNECTIONS_MAX);
        let total = self.connections_max.unwrap_or(by_files);
        Shares { total, per_client: self.connections_per_address_max.unwrap_or(three_quarters(total)) }
    }

    pub(crate) fn connection_times(&self) -> ConnectionTimes {
        ConnectionTimes {
            handshake: Duration::from_secs(self.handshake_secs),
            idle: Duration::from_secs(self.idle_secs),
            keepalive: Duration::from_secs(self.keepalive_secs),
            stall: self.stall(),
        }
    }

    pub(crate) fn ticket_ttl(&self) -> Duration {
        Duration::from_secs(self.ticket_ttl_secs)
    }

    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_secs)
    }
}

fn three_quarters(places: usize) -> usize {
    places - places / 4
}

fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected an address or a list of addresses")]
    enum Addresses {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Addresses::deserialize(deserializer)? {
        Addresses::One(address) => vec![address],
        Addresses::Several(addresses) => addresses,
    })
}

impl std::fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerConfig").field("listen", &self.listen).field("tls", &self.tls).finish_non_exhaustive()
    }
}
