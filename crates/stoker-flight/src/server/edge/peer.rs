//! What the other end of a connection showed so far.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::server::places::{Place, Standing};

/// Requests in a row that are refused for want of a token, before their connection ends.
const REFUSED_MAX: u32 = 32;
/// Bits of an IPv6 address that name a network: a host can have any address in it.
const NETWORK_BITS: u32 = 64;

/// Where connections come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// An IPv4 address, or the network of an IPv6 address.
    Ip(IpAddr),
    /// This host.
    Unix,
}

impl Address {
    pub fn of(ip: IpAddr) -> Self {
        Address::Ip(match ip.to_canonical() {
            IpAddr::V6(ip) => {
                let network = ip.to_bits() >> (128 - NETWORK_BITS) << (128 - NETWORK_BITS);
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
            ip => ip,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(ip) => ip.fmt(f),
            Address::Unix => f.write_str("unix"),
        }
    }
}

/// The other end of one connection, and its place.
pub(crate) struct Peer {
    pub address: Address,
    place: Place<Address>,
    shown: Mutex<Shown>,
    /// Cancelled when the connection must end.
    ending: CancellationToken,
}

struct Shown {
    since: Instant,
    has_asked: bool,
    is_proven: bool,
    /// Requests in a row that were refused.
    refused: u32,
    /// Requests that are being answered.
    running: usize,
    /// Since when none is.
    idle_since: Instant,
}

impl Peer {
    pub fn new(address: Address, place: Place<Address>, now: Instant) -> Self {
        let shown = Shown { since: now, has_asked: false, is_proven: false, refused: 0, running: 0, idle_since: now };
        Self { address, place, shown: Mutex::new(shown), ending: CancellationToken::new() }
    }

    /// Takes note of a request that was let in.
    pub fn prove(&self) {
        let mut shown = self.shown.lock();
        (shown.is_proven, shown.refused) = (true, 0);
        self.place.set_standing(shown.standing());
    }

    /// Takes note of a request that was refused for want of a token.
    pub fn refuse(&self) {
        let mut shown = self.shown.lock();
        shown.refused += 1;
        if shown.refused >= REFUSED_MAX {
            drop(shown);
            self.end("it sends requests without a token that is valid");
        }
    }

    /// Ends the connection.
    pub fn end(&self, reason: &str) {
        tracing::debug!(address = ?self.address, reason, "closing a connection");
        self.ending.cancel();
    }

    pub(super) fn begin_request(&self) {
        let mut shown = self.shown.lock();
        shown.has_asked = true;
        shown.running += 1;
        self.place.set_standing(shown.standing());
    }

    pub(super) fn end_request(&self) {
        let mut shown = self.shown.lock();
        shown.running -= 1;
        shown.idle_since = Instant::now();
        self.place.set_standing(shown.standing());
    }

    /// Whether the headers of a request came.
    pub(super) fn has_asked(&self) -> bool {
        self.shown.lock().has_asked
    }

    /// Since when no request is being answered.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let shown = self.shown.lock();
        (shown.running == 0).then_some(shown.idle_since)
    }

    /// Waits until the connection must end.
    pub(super) async fn ending(&self) {
        self.ending.cancelled().await;
    }

    /// Waits until another connection has the place of this one.
    pub(super) async fn displaced(&self) {
        self.place.displaced().await;
    }
}

impl Shown {
    fn standing(&self) -> Standing {
        match self.is_proven {
            false => Standing::Unproven(self.since),
            true if self.running > 0 => Standing::Busy,
            true => Standing::Idle(self.idle_since),
        }
    }
}
