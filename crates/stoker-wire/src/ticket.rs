//! Signed, expiring tickets.

use std::time::Duration;

use hmac::{Hmac, Mac};
use prost::Message;
use sha2::Sha256;

use crate::proto::{SignedTicket, TicketBody};
use crate::{Error, Result};

/// The version of the ticket's body.
pub const TICKET_VERSION: u32 = 1;

/// Signs tickets with its first key and verifies tickets with any of its keys.
#[derive(Clone)]
pub struct TicketSigner {
    keys: Vec<(String, Vec<u8>)>,
    ttl: Duration,
}

impl std::fmt::Debug for TicketSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketSigner").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

impl TicketSigner {
    /// Creates a signer. `keys` are pairs of id and secret. The first key signs, so that an operator rotates keys by
    /// putting a new one first. `ttl` is the time for which tickets are valid.
    ///
    /// # Errors
    /// No keys, or a secret shorter than 16 bytes.
    pub fn try_new(keys: Vec<(String, Vec<u8>)>, ttl: Duration) -> Result<Self> {
        match keys.iter().find(|(_, secret)| secret.len() < 16) {
            Some((id, secret)) => Err(Error::invalid(format!(
                "ticket key '{id}' has {} bytes; use at least 16 random bytes",
                secret.len()
            ))),
            None if keys.is_empty() => Err(Error::invalid("no ticket key is configured")),
            None => Ok(Self { keys, ttl }),
        }
    }

    /// Returns the time for which tickets are valid.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Signs a ticket and returns its bytes. `now_unix_secs` is in seconds since 1970 UTC.
    pub fn sign(&self, mut body: TicketBody, now_unix_secs: u64) -> Vec<u8> {
        body.version = TICKET_VERSION;
        body.expires_unix_secs = now_unix_secs.saturating_add(self.ttl.as_secs());
        let (key_id, secret) = &self.keys[0];
        let body = body.encode_to_vec();
        let mac = mac(key_id, secret, &body).finalize().into_bytes().to_vec();
        SignedTicket { key_id: key_id.clone(), body, mac }.encode_to_vec()
    }

    /// Checks the signature and the age of a ticket and returns its body.
    ///
    /// # Errors
    /// [`Error::InvalidTicket`] for a ticket that was changed, and for bytes that are not a ticket;
    /// [`Error::ExpiredTicket`] for a ticket that is too old, or whose key or version is unknown.
    pub fn verify(&self, ticket: &[u8], now_unix_secs: u64) -> Result<TicketBody> {
        let signed = SignedTicket::decode(ticket)
            .map_err(|_| Error::InvalidTicket { reason: "it is not a ticket of Stoker" })?;
        let Some((key_id, secret)) = self.keys.iter().find(|(id, _)| *id == signed.key_id) else {
            return Err(Error::ExpiredTicket { reason: "its key is unknown to this server".into() });
        };
        let good = mac(key_id, secret, &signed.body).verify_slice(&signed.mac);
        good.map_err(|_| Error::InvalidTicket {
            reason: "its signature does not fit: it was changed or signed with another key",
        })?;
        let body = TicketBody::decode(signed.body.as_slice())
            .map_err(|_| Error::InvalidTicket { reason: "its body cannot be read" })?;
        if body.version != TICKET_VERSION {
            return Err(Error::ExpiredTicket { reason: format!("its version is {}", body.version) });
        }
        if body.expires_unix_secs <= now_unix_secs {
            let age = now_unix_secs - body.expires_unix_secs;
            return Err(Error::ExpiredTicket { reason: format!("it expired {age} s ago") });
        }
        Ok(body)
    }
}

fn mac(key_id: &str, secret: &[u8], body: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap_or_else(|_| unreachable!("HMAC takes any key"));
    mac.update(&(key_id.len() as u64).to_le_bytes());
    mac.update(key_id.as_bytes());
    mac.update(body);
    mac
}
