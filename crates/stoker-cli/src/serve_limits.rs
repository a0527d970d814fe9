//! The limits of `stoker serve` for clients and their connections.

use clap::Args;
use stoker_server::ServerConfig;

/// The limits for clients and connections; a limit that is not given keeps its configured value.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of clients")]
pub struct LimitArgs {
    /// The maximum number of concurrent streams [default: 256]
    #[arg(long, env = "STOKER_STREAMS_MAX")]
    streams_max: Option<usize>,
    /// The maximum number of concurrent streams of one client, which is an address with a token [default: three
    /// quarters of all]
    #[arg(long, env = "STOKER_STREAMS_PER_CLIENT_MAX")]
    streams_per_client_max: Option<usize>,
    /// The maximum number of query results that are sent at once [default: 64]
    #[arg(long, env = "STOKER_RESULTS_MAX")]
    results_max: Option<usize>,
    /// Seconds after which the server ends a stream or result whose client accepts no data [default: 60]
    #[arg(long, env = "STOKER_STALL_SECS")]
    stall_secs: Option<u64>,
    /// The maximum number of connections [default: half of the files that may be open, at most 4096]
    #[arg(long, env = "STOKER_CONNECTIONS_MAX")]
    connections_max: Option<usize>,
    /// The maximum number of connections from one address [default: three quarters of all]
    #[arg(long, env = "STOKER_CONNECTIONS_PER_ADDRESS_MAX")]
    connections_per_address_max: Option<usize>,
    /// Seconds from the start of a connection until its first request must arrive [default: 10]
    #[arg(long, env = "STOKER_HANDSHAKE_SECS")]
    handshake_secs: Option<u64>,
    /// Seconds without a request after which the server closes a connection [default: 300]
    #[arg(long, env = "STOKER_IDLE_SECS")]
    idle_secs: Option<u64>,
    /// Seconds without traffic after which the server pings a client [default: 30]
    #[arg(long, env = "STOKER_KEEPALIVE_SECS")]
    keepalive_secs: Option<u64>,
    /// Objects that each token with the role read may create in the lake per day, by new streams and runs [default:
    /// 100000]
    #[arg(long, env = "STOKER_READER_OBJECTS_PER_DAY")]
    reader_objects_per_day: Option<u64>,
    /// Bytes of the objects that each token with the role read may create per day [default: 68719476736]
    #[arg(long, env = "STOKER_READER_BYTES_PER_DAY")]
    reader_bytes_per_day: Option<u64>,
}

impl LimitArgs {
    /// Overrides the configuration with the limits that were given.
    pub fn apply(self, config: &mut ServerConfig) {
        config.streams_max = self.streams_max.unwrap_or(config.streams_max);
        config.streams_per_client_max = self.streams_per_client_max.or(config.streams_per_client_max);
        config.results_max = self.results_max.unwrap_or(config.results_max);
        config.stall_secs = self.stall_secs.unwrap_or(config.stall_secs);
        config.connections_max = self.connections_max.or(config.connections_max);
        config.connections_per_address_max = self.connections_per_address_max.or(config.connections_per_address_max);
        config.handshake_secs = self.handshake_secs.unwrap_or(config.handshake_secs);
        config.idle_secs = self.idle_secs.unwrap_or(config.idle_secs);
        config.reader_objects_per_day = self.reader_objects_per_day.unwrap_or(config.reader_objects_per_day);
        config.reader_bytes_per_day = self.reader_bytes_per_day.unwrap_or(config.reader_bytes_per_day);
        config.keepalive_secs = self.keepalive_secs.unwrap_or(config.keepalive_secs);
    }
}
