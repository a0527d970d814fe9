//! `stoker serve`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use stoker_flight::{ServerConfig, TicketKey, TlsFiles, serve};
use stoker_lake::{Lake, StorageOptions};
use stoker_sql::{Engine, EngineOptions};

use crate::connect::ReadArgs;
use crate::serve_limits::LimitArgs;

/// Serve a lake over Arrow Flight. Flags win over `STOKER_*` variables, which win over the configuration file.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// An address to listen on, host:port (port 0 picks a free one) or unix:///path for clients of the same user on this
    /// host; may be repeated [default: 127.0.0.1:8815]
    #[arg(long, env = "STOKER_LISTEN", value_name = "ADDRESS", value_delimiter = ',')]
    listen: Vec<String>,
    /// An address of this host for operators, such as 127.0.0.1:8816: /healthz, /readyz and /metrics over HTTP
    #[arg(long, env = "STOKER_ADMIN_LISTEN", value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// A TOML file with settings
    #[arg(long, env = "STOKER_CONFIG")]
    config: Option<PathBuf>,
    /// A bearer token that every request must carry
    #[arg(long, env = "STOKER_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// PEM file with the certificate chain; Unix sockets go without
    #[arg(long, env = "STOKER_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key
    #[arg(long, env = "STOKER_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The secret that signs tickets, equal on all replicas, as ID:SECRET or SECRET
    #[arg(long, env = "STOKER_TICKET_KEY", hide_env_values = true)]
    ticket_key: Option<String>,
    /// Seconds that tickets are valid [default: 3600]
    #[arg(long, env = "STOKER_TICKET_TTL_SECS")]
    ticket_ttl_secs: Option<u64>,
    /// Seconds that running streams get when the server stops [default: 10]
    #[arg(long, env = "STOKER_GRACE_SECS")]
    grace_secs: Option<u64>,
    /// Bytes of a message, about [default: 2097152]
    #[arg(long, env = "STOKER_MESSAGE_BYTES")]
    message_bytes: Option<usize>,
    /// Bytes of batches that all streams of the server hold together [default: 2147483648]
    #[arg(long, env = "STOKER_MEMORY_BUDGET_BYTES")]
    memory_budget_bytes: Option<u64>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    reads: ReadArgs,
    /// A URI under which clients reach this service, such as grpc://host:8815; may be repeated
    #[arg(long, env = "STOKER_ADVERTISE", value_name = "URI", value_delimiter = ',')]
    advertise: Vec<String>,
}

impl ServeArgs {
    fn into_config(self) -> anyhow::Result<ServerConfig> {
        let mut config = match &self.config {
            None => ServerConfig::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
                // The error as a whole shows the line, which may hold a secret.
                toml::from_str(&text).map_err(|error| {
                    let line = |start: usize| text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
                    let place = error.span().map_or(String::new(), |span| format!("line {}: ", line(span.start)));
                    anyhow!("{} is not a configuration: {place}{}", path.display(), error.message())
                })?
            }
        };
        if !self.listen.is_empty() {
            config.listen = self.listen;
        }
        config.admin_listen = self.admin_listen.or(config.admin_listen);
        config.token = self.token.or(config.token);
        if let (Some(cert), Some(key)) = (self.tls_cert, self.tls_key) {
            config.tls = Some(TlsFiles { cert, key });
        }
        if let Some(key) = self.ticket_key {
            let (id, secret) = key.split_once(':').unwrap_or(("default", key.as_str()));
            config.ticket_keys.insert(0, TicketKey { id: id.to_string(), secret: secret.to_string() });
        }
        config.ticket_ttl_secs = self.ticket_ttl_secs.unwrap_or(config.ticket_ttl_secs);
        config.grace_secs = self.grace_secs.unwrap_or(config.grace_secs);
        self.limits.apply(&mut config);
        config.message_bytes = self.message_bytes.unwrap_or(config.message_bytes);
        config.memory_budget_bytes = self.memory_budget_bytes.unwrap_or(config.memory_budget_bytes);
        config.cache_dir = self.reads.cache_dir.or(config.cache_dir);
        config.cache_bytes = self.reads.cache_bytes.or(config.cache_bytes);
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
    let lake = Lake::open(lake, &storage).await?;
    // A lake that cannot be reached is better refused now than at the first request.
    let tables = lake.tables().await?;
    tracing::info!(lake = lake.uri(), tables = tables.len(), "serving");
    let engine = Engine::new(lake, EngineOptions::default());
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
        // Whoever started the server may have closed its end; the server works all the same.
        out.write_all(lines.as_bytes()).and_then(|()| out.flush()).ok();
    };
    serve(engine, config, ready, stopped).await?;
    Ok(())
}
