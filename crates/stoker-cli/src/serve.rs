//! `stoker serve`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use clap::builder::BoolishValueParser;
use stoker::warn_of_readers;
use stoker_lake::{LakeStore, StorageOptions};
use stoker_server::{ServerConfig, TicketKey, TlsFiles, serve};
use stoker_sql::Engine;
use stoker_types::Role;

use crate::connect::ReadArgs;
use crate::query_args::QueryArgs;
use crate::secret_args::{OnCommandLine, secret_in_environment};
use crate::serve_limits::LimitArgs;

/// Serve a lake over Arrow Flight. Options override `STOKER_*` variables, which override the configuration file.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// An address to listen on, host:port (port 0 selects a free port) or unix:///path for clients of the same user on
    /// this host; repeatable [default: 127.0.0.1:8815]
    #[arg(long, env = "STOKER_LISTEN", value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<String>,
    /// An address of this host that serves /healthz, /readyz and /metrics over HTTP to operators, such as
    /// 127.0.0.1:8816
    #[arg(long, env = "STOKER_ADMIN_LISTEN", value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// A TOML file with settings
    #[arg(long, env = "STOKER_CONFIG")]
    config: Option<PathBuf>,
    /// Serve other machines without a token or without TLS; only for trusted networks
    #[arg(
        long,
        env = "STOKER_INSECURE",
        value_name = "BOOL",
        value_parser = BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    insecure: Option<bool>,
    /// Let clients with the role write execute statements that change the lake, such as CREATE INDEX
    #[arg(
        long,
        env = "STOKER_ALLOW_WRITES",
        value_name = "BOOL",
        value_parser = BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    allow_writes: Option<bool>,
    /// A file with the bearer token of an administrator, at least 16 bytes; overrides the token in STOKER_TOKEN. If a
    /// token is set, every request must carry a token
    #[arg(long, env = "STOKER_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[arg(long, hide = true, value_parser = OnCommandLine::parse)]
    token: Option<OnCommandLine>,
    /// A TOML file of named tokens, each with a role (read, write, admin) and an optional expiry; the server reloads it
    /// when it changes
    #[arg(long, env = "STOKER_TOKENS_FILE", value_name = "FILE")]
    tokens_file: Option<PathBuf>,
    /// PEM file with the certificate chain; the server reloads it when it changes. Unix sockets do not use TLS
    #[arg(long, env = "STOKER_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key
    #[arg(long, env = "STOKER_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// PEM file with the authority of clients' certificates; a client with such a certificate needs no token
    #[arg(long, env = "STOKER_TLS_CLIENT_CA", value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// The role of clients with a certificate: read, write or admin [default: read]
    #[arg(long, env = "STOKER_TLS_CLIENT_ROLE", value_name = "ROLE")]
    tls_client_role: Option<Role>,
    /// A file with the secret that signs tickets, equal on all replicas, as ID:SECRET or SECRET; overrides the one in
    /// STOKER_TICKET_KEY. If the file has several lines, the first secret signs and all of them are accepted
    #[arg(long, env = "STOKER_TICKET_KEY_FILE", value_name = "FILE")]
    ticket_key_file: Option<PathBuf>,
    #[arg(long, hide = true, value_parser = OnCommandLine::parse)]
    ticket_key: Option<OnCommandLine>,
    /// Seconds for which a ticket is valid [default: 3600]
    #[arg(long, env = "STOKER_TICKET_TTL_SECS")]
    ticket_ttl_secs: Option<u64>,
    /// Seconds for which running streams may continue when the server stops [default: 10]
    #[arg(long, env = "STOKER_GRACE_SECS")]
    grace_secs: Option<u64>,
    /// The approximate number of bytes of a message [default: 2097152]
    #[arg(long, env = "STOKER_MESSAGE_BYTES")]
    message_bytes: Option<usize>,
    /// Bytes of batches that all streams of the server may hold together [default: 2147483648]
    #[arg(long, env = "STOKER_MEMORY_BUDGET_BYTES")]
    memory_budget_bytes: Option<u64>,
    /// A URI at which clients reach this service, such as grpc://host:8815; repeatable
    #[arg(long, env = "STOKER_ADVERTISE", value_name = "URI", value_delimiter = ',')]
    advertise: Vec<String>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    reads: ReadArgs,
    #[command(flatten)]
    query: QueryArgs,
}

impl ServeArgs {
    fn into_config(self) -> anyhow::Result<ServerConfig> {
        OnCommandLine::refuse(self.token, "--token", "--token-file", "STOKER_TOKEN")?;
        OnCommandLine::refuse(self.ticket_key, "--ticket-key", "--ticket-key-file", "STOKER_TICKET_KEY")?;
        let mut config = match &self.config {
            None => ServerConfig::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
                let shown = path.display();
                let config: ServerConfig = ServerConfig::parse(&text)
                    .map_err(|error| anyhow!("{shown} is not a valid configuration: {error}"))?;
                if config.token.is_some() || !config.ticket_keys.is_empty() {
                    warn_of_readers(path);
                }
                config
            }
        };
        if !self.listen.is_empty() {
            config.listen = self.listen;
        }
        config.admin_listen = self.admin_listen.or(config.admin_listen);
        config.insecure = self.insecure.unwrap_or(config.insecure);
        config.allow_writes = self.allow_writes.unwrap_or(config.allow_writes);
        let token = secret_in_environment("STOKER_TOKEN");
        if self.token_file.is_some() || token.is_some() {
            // A token file overrides the token of the environment, because an option may have named the file.
            config.token = token.filter(|_| self.token_file.is_none());
            config.token_file = self.token_file;
        }
        config.tokens_file = self.tokens_file.or(config.tokens_file);
        if let (Some(cert), Some(key)) = (self.tls_cert, self.tls_key) {
            let clients = config.tls.take().map(|tls| (tls.client_ca, tls.client_role)).unwrap_or_default();
            config.tls = Some(TlsFiles { cert, key, client_ca: clients.0, client_role: clients.1 });
        }
        match &mut config.tls {
            Some(tls) => {
                tls.client_ca = self.tls_client_ca.or(tls.client_ca.take());
                tls.client_role = self.tls_client_role.or(tls.client_role);
            }
            None => ensure!(self.tls_client_ca.is_none(), "--tls-client-ca needs --tls-cert and --tls-key"),
        }
        if let Some(file) = self.ticket_key_file {
            config.ticket_key_file = Some(file);
        } else if let Some(key) = secret_in_environment("STOKER_TICKET_KEY") {
            config.ticket_keys.insert(0, TicketKey::parse(key.reveal()));
        }
        config.ticket_ttl_secs = self.ticket_ttl_secs.unwrap_or(config.ticket_ttl_secs);
        config.grace_secs = self.grace_secs.unwrap_or(config.grace_secs);
        self.limits.apply(&mut config);
        config.message_bytes = self.message_bytes.unwrap_or(config.message_bytes);
        config.memory_budget_bytes = self.memory_budget_bytes.unwrap_or(config.memory_budget_bytes);
        self.query.apply(&mut config.query);
        config.cache_dir = self.reads.cache_dir.or(config.cache_dir);
        config.cache_bytes = self.reads.cache_bytes.or(config.cache_bytes);
        config.hold_days = self.reads.hold_days.unwrap_or(config.hold_days);
        config.direct_io = self.reads.direct_io.unwrap_or(config.direct_io);
        if !self.advertise.is_empty() {
            config.advertise = self.advertise;
        }
        Ok(config)
    }
}

/// Serves until SIGTERM or SIGINT.
pub async fn run(args: ServeArgs, lake: &str, storage: StorageOptions) -> anyhow::Result<()> {
    let config = args.into_config()?;
    let lake = LakeStore::open(lake, &storage).await?;
    // Listing the tables makes the command fail now, not at the first request, if the lake cannot be reached.
    let tables = lake.tables().await?;
    tracing::info!(lake = lake.uri(), tables = tables.len(), "serving");
    let engine = Engine::new(lake, config.query.engine_options());
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let stopped = async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    let ready = |urls: &[String]| {
        let mut out = std::io::stdout();
        let lines: String = urls.iter().map(|url| format!("listening on {url}\n")).collect();
        // The process that started the server may have closed its end of the pipe; the server then runs on.
        out.write_all(lines.as_bytes()).and_then(|()| out.flush()).ok();
    };
    serve(engine, config, ready, stopped).await?;
    Ok(())
}
