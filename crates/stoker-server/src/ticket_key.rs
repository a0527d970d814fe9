//! Keys that sign a server's tickets.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use stoker_net::Secret;
use stoker_session::{Error, Result};

use crate::ServerConfig;

/// A key that signs tickets.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TicketKey {
    /// The id of the key, which tickets carry.
    pub id: String,
    /// The secret, at least 16 bytes.
    pub secret: Secret,
}

impl TicketKey {
    /// Parses a key: `ID:SECRET`, or `SECRET` with the id `default`.
    pub fn parse(text: &str) -> Self {
        let (id, secret) = text.split_once(':').unwrap_or(("default", text));
        Self { id: id.trim().to_string(), secret: secret.into() }
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Returns the configured keys, those of the file first; without any, one random key.
///
/// # Errors
/// A file that cannot be read, or contains no key.
pub(crate) fn ticket_keys(config: &ServerConfig) -> Result<Vec<(String, Vec<u8>)>> {
    let mut keys = Vec::new();
    if let Some(path) = &config.ticket_key_file {
        let text = Secret::read("ticket keys", path).map_err(stoker_wire::Error::from)?;
        let lines = text.reveal().lines().filter(|line| !line.trim().is_empty());
        keys.extend(lines.map(TicketKey::parse));
        if keys.is_empty() {
            return Err(Error::invalid(format!("{} has no ticket key; write one a line", path.display())));
        }
    }
    keys.extend(config.ticket_keys.iter().cloned());
    if !keys.is_empty() {
        return Ok(keys.into_iter().map(|key| (key.id, key.secret.reveal().as_bytes().to_vec())).collect());
    }
    tracing::warn!("no ticket key is configured: other replicas will not accept this server's tickets");
    let mut bytes = [0; 36];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|source| {
        Error::invalid(format!("cannot make a ticket key from /dev/urandom: {source}; configure one"))
    })?;
    let (id, secret) = bytes.split_at(4);
    Ok(vec![(id.iter().map(|byte| format!("{byte:02x}")).collect(), secret.to_vec())])
}
