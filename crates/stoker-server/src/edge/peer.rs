//! The state of a connection's client.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use parking_lot::Mutex;
use stoker_clock::Clock;
use stoker_types::Moment;
use tokio_util::sync::CancellationToken;

use crate::permits::{Permit, Standing};

/// The number of consecutive requests without a valid token after which a connection is closed.
const REFUSED_MAX: u32 = 32;
/// The number of bits of an IPv6 address that name the network: a host can have any address in it.
const NETWORK_BITS: u32 = 64;

/// The origin of a connection, for sharing permits among clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    /// An IPv4 address, or the network of an IPv6 address.
    Ip(IpAddr),
    /// A Unix socket, and thus this host.
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

/// The client of one connection, and the connection's permit.
pub(crate) struct Peer {
    pub address: Address,
    place: Permit<Address>,
    clock: Clock,
    shown: Mutex<Shown>,
    /// Cancelled when the connection must end.
    ending: CancellationToken,
}

struct Shown {
    since: Moment,
    has_asked: bool,
    is_proven: bool,
    /// The number of consecutive requests that were refused for want of a valid token.
    refused: u32,
    /// The number of requests that are being served.
    running: usize,
    /// The time since which no request is being served.
    idle_since: Moment,
}

impl Peer {
    pub fn new(address: Address, place: Permit<Address>, clock: Clock) -> Self {
        let now = clock.now();
        let shown = Shown { since: now, has_asked: false, is_proven: false, refused: 0, running: 0, idle_since: now };
        Self { address, place, clock, shown: Mutex::new(shown), ending: CancellationToken::new() }
    }

    /// Records a request that passed authentication.
    pub fn prove(&self) {
        let mut shown = self.shown.lock();
        (shown.is_proven, shown.refused) = (true, 0);
        self.place.set_standing(shown.standing());
    }

    /// Records a request that was refused for want of a valid token. Too many in a row end the connection.
    pub fn refuse(&self) {
        let mut shown = self.shown.lock();
        shown.refused += 1;
        if shown.refused >= REFUSED_MAX {
            drop(shown);
            self.end("it sent too many requests without a valid token");
        }
    }

    /// Ends the connection with GOAWAY.
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
        shown.idle_since = self.clock.now();
        self.place.set_standing(shown.standing());
    }

    /// Returns whether the headers of a request have come.
    pub(super) fn has_asked(&self) -> bool {
        self.shown.lock().has_asked
    }

    /// Returns the time since which no request is being served; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Moment> {
        let shown = self.shown.lock();
        (shown.running == 0).then_some(shown.idle_since)
    }

    /// Waits until the connection must end.
    pub(super) async fn ending(&self) {
        self.ending.cancelled().await;
    }

    /// Waits until another connection has taken the permit of this one.
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
