//! Settings of a server.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use stoker_lake::{HOLD_DAYS, HOLD_DAYS_MAX};
use stoker_types::Role;

use crate::secret::Secret;
use crate::server::QuerySettings;
use crate::server::edge::ConnectionTimes;
use crate::server::places::Shares;
use crate::server::ticket_key::TicketKey;
use crate::unix_path::UnixPath;
use crate::{Error, Result, toml_file};

/// Connections at once, by default and at most: an idle one takes about 30 KiB of memory.
const CONNECTIONS_MAX: usize = 4_096;

/// Settings of a server, as in its configuration file (TOML). All have defaults.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The addresses to listen on, or only one: `host:port`, where port 0 picks a free one, or `unix:///path` for clients of the
    /// same user on this host. `127.0.0.1:8815` by default.
    #[serde(deserialize_with = "one_or_several")]
    pub listen: Vec<String>,
    /// An address of this host, `host:port`, for operators: `/healthz`, `/readyz` and `/metrics` over HTTP, without a token; none by
    /// default.
    pub admin_listen: Option<String>,
    /// Whether addresses that other machines reach may be served without a token or without TLS; not by default.
    pub insecure: bool,
    /// The bearer token of an administrator, at least 16 bytes; none by default. With a token, every request must carry one, health
    /// checks excepted.
    pub token: Option<Secret>,
    /// A file with that token, in its place.
    pub token_file: Option<PathBuf>,
    /// A file of several named tokens, each with a role and perhaps an end (TOML); read again when it changes.
    pub tokens_file: Option<PathBuf>,
    /// Certificate and key, for all addresses but Unix sockets; plain text by default.
    pub tls: Option<TlsFiles>,
    /// Keys that sign tickets; the first signs. Random for each start by default: replicas must share keys.
    pub ticket_keys: Vec<TicketKey>,
    /// A file with such keys, one a line as `ID:SECRET` or `SECRET`; they come before the others.
    pub ticket_key_file: Option<PathBuf>,
    /// Seconds that tickets are valid; 3,600 by default.
    pub ticket_ttl_secs: u64,
    /// URIs under which clients reach this service, put into endpoints; none by default: clients stay where they are.
    pub advertise: Vec<String>,
    /// Bytes of a message, about; 2 MiB by default.
    pub message_bytes: usize,
    /// Bytes of parts of batches that all streams of the server hold together while these are filled or wait to be sent; 2 GiB by
    /// default: four times the windows of a job, which are read in one piece then. Open streams share the bytes equally, but
    /// one alone gets no more than half. A stream may always hold one part, besides those that are being sent.
    pub memory_budget_bytes: u64,
    /// A folder of the server's machine that keeps what streams read from the object store of the lake, for later epochs, jobs and
    /// servers; none by default. A lake on a local disk needs none, and does not use it.
    pub cache_dir: Option<PathBuf>,
    /// Bytes that the folder holds at most; half of the free space of its file system by default.
    pub cache_bytes: Option<u64>,
    /// Whether streams read the tensors of a lake on a local disk past the system's memory of files; not by default. A lake in
    /// an object store does not use it.
    pub direct_io: bool,
    /// Days for which the versions that streams read are kept from cleanups, from when they are last read; 30 by default, not at all
    /// for 0.
    pub hold_days: u32,
    /// What queries may take.
    pub query: QuerySettings,
    /// Objects that each token with the role `read` may leave in the lake in a day, by new streams and runs: a stream takes three or
    /// more, an entry of a log three; 100,000 by default.
    pub reader_objects_per_day: u64,
    /// Bytes of these objects; 64 GiB by default.
    pub reader_bytes_per_day: u64,
    /// Streams at once; 256 by default.
    pub streams_max: usize,
    /// Streams at once of one client, an address with a token; three quarters of all by default.
    pub streams_per_client_max: Option<usize>,
    /// Results of queries that are sent at once, three quarters of them to one client at most; 64 by default.
    pub results_max: usize,
    /// Seconds after which a stream or a result ends of which its client takes nothing; 60 by default. Our client asks for the rest of a
    /// stream when it is wanted again.
    pub stall_secs: u64,
    /// Connections at once. By default half of the files that the process may have open, 4,096 at most: the other half is for
    /// storage.
    pub connections_max: Option<usize>,
    /// Connections at once from one address, or one network of IPv6 (64 bits); three quarters of all by default.
    pub connections_per_address_max: Option<usize>,
    /// Seconds from the beginning of a connection to the headers of its first request; 10 by default.
    pub handshake_secs: u64,
    /// Seconds without a request after which a connection is closed; 300 by default.
    pub idle_secs: u64,
    /// Seconds of silence after which a client is asked whether it lives; 30 by default. One that does not answer for this time and
    /// `stall_secs` is gone.
    pub keepalive_secs: u64,
    /// Bytes of a request at most; 16 MiB by default.
    pub request_bytes_max: usize,
    /// Seconds that running streams get when the server stops; 10 by default.
    pub grace_secs: u64,
}

/// Certificate and key files, PEM; read again when they change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate chain.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The authority of clients' certificates, which stand for tokens; none by default.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// What clients with a certificate may do; `read` by default.
    #[serde(default)]
    pub client_role: Option<Role>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: vec!["127.0.0.1:8815".into()],
            admin_listen: None,
            insecure: false,
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
    /// The settings in the text of a configuration file.
    ///
    /// # Errors
    /// A text that is none; the message has no values, of which some are secret.
    pub fn parse(text: &str) -> Result<Self> {
        toml_file::parse(text)
    }

    /// The token of the administrator.
    ///
    /// # Errors
    /// A token that is too short, or given twice; a file that cannot be read.
    pub(crate) fn admin_token(&self) -> Result<Option<Secret>> {
        let token = match (&self.token, &self.token_file) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid("token and token_file are both given; leave one of them out"));
            }
            (Some(token), None) => token.clone(),
            (None, Some(path)) => Secret::read("token", path)?,
            (None, None) => return Ok(None),
        };
        token.check("token")?;
        Ok(Some(token))
    }

    /// Whether there are tokens.
    pub(crate) fn has_tokens(&self) -> bool {
        self.token.is_some() || self.token_file.is_some() || self.tokens_file.is_some()
    }

    /// What clients with a certificate may do, if there is an authority for these.
    pub(crate) fn certificate_role(&self) -> Option<Role> {
        let tls = self.tls.as_ref().filter(|tls| tls.client_ca.is_some())?;
        Some(tls.client_role.unwrap_or(Role::Read))
    }

    /// Whether clients must say who they are, by a token or a certificate.
    pub(crate) fn asks_who(&self) -> bool {
        self.has_tokens() || self.certificate_role().is_some()
    }

    /// Checks the ranges.
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

    /// Bytes that one stream may hold, so that one whose client stalls leaves room to those that come later.
    pub(crate) fn stream_budget_bytes(&self) -> u64 {
        self.memory_budget_bytes.div_ceil(2)
    }

    pub(crate) fn stall(&self) -> Duration {
        Duration::from_secs(self.stall_secs)
    }

    /// The places of streams.
    pub(crate) fn stream_shares(&self) -> Shares {
        let per_client = self.streams_per_client_max.unwrap_or(three_quarters(self.streams_max));
        Shares { total: self.streams_max, per_client }
    }

    /// The places of results.
    pub(crate) fn result_shares(&self) -> Shares {
        Shares { total: self.results_max, per_client: three_quarters(self.results_max) }
    }

    /// The places of connections of a process that may have so many files open.
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
