//! Places that clients share: connections of a server, streams, results of queries.
//!
//! Three rules decide who gets one:
//!
//! 1. One client holds no more places than its share.
//! 2. The last eighth of all places is for clients that hold few: one in 64, and one at least.
//! 3. Where a rule leaves no place, a holder that gives way makes one: a connection that nobody asked anything over, an answer that
//!    nobody reads. Without such a holder the newcomer is refused.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The part of all places that is for clients which hold few.
const RESERVED_PART: usize = 8;
/// The part of all places that is few.
const FEW_PART: usize = 64;

/// How readily a holder makes room for a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Work is under way: it makes none.
    Busy,
    /// Nothing is under way: it makes room from then on.
    Idle(Instant),
    /// The holder did not show that it may be here: it makes room from then on, and before those that are idle.
    Unproven(Instant),
}

/// A number of places and who holds them. Cheap to clone; clones share them.
pub(crate) struct Places<K> {
    ledger: Arc<Mutex<Ledger<K>>>,
    /// Told when a place is given back.
    returned: Arc<Notify>,
}

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub total: usize,
    /// Of one client.
    pub per_client: usize,
}

/// A place, until it is dropped.
pub(crate) struct Place<K: Hash + Eq> {
    places: Places<K>,
    id: u64,
    /// Cancelled when the holder must make room.
    displaced: CancellationToken,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// When the first holder gives way, if it stays as it is.
    pub ripe_at: Option<Instant>,
}

struct Ledger<K> {
    shares: Shares,
    holders: HashMap<u64, Holder<K>>,
    held: HashMap<K, usize>,
    next_id: u64,
}

struct Holder<K> {
    client: K,
    standing: Standing,
    displaced: CancellationToken,
}

impl<K: Clone + Hash + Eq> Places<K> {
    pub fn new(shares: Shares) -> Self {
        let ledger = Ledger { shares, holders: HashMap::new(), held: HashMap::new(), next_id: 0 };
        Self { ledger: Arc::new(Mutex::new(ledger)), returned: Arc::default() }
    }

    /// A place for a client, if need be that of a holder that gives way.
    ///
    /// # Errors
    /// [`Full`] where nobody gives way now.
    pub fn take(&self, client: K, standing: Standing, now: Instant) -> Result<Place<K>, Full> {
        let mut ledger = self.ledger.lock();
        if let Some(crowd) = ledger.crowd(&client) {
            let victim = ledger.victim(&client, crowd, now)?;
            ledger.displace(victim);
        }
        let (id, displaced) = (ledger.next_id, CancellationToken::new());
        ledger.next_id += 1;
        *ledger.held.entry(client.clone()).or_default() += 1;
        ledger.holders.insert(id, Holder { client, standing, displaced: displaced.clone() });
        Ok(Place { places: self.clone(), id, displaced })
    }

    /// As [`Places::take`], for work that is under way at once. Waits where somebody gives way, or goes, within `patience`.
    ///
    /// # Errors
    /// [`Full`] where nobody does.
    pub async fn take_within(&self, client: K, patience: Duration) -> Result<Place<K>, Full> {
        let deadline = Instant::now() + patience;
        loop {
            let returned = self.returned.notified();
            let full = match self.take(client.clone(), Standing::Busy, Instant::now()) {
                Err(full) => full,
                place => return place,
            };
            let Some(ripe_at) = full.ripe_at.filter(|ripe_at| *ripe_at <= deadline) else { return Err(full) };
            tokio::select! {
                () = returned => {}
                () = tokio::time::sleep_until(ripe_at.into()) => {}
            }
        }
    }

    /// Whether all places are taken.
    pub fn is_full(&self) -> bool {
        let ledger = self.ledger.lock();
        ledger.holders.len() >= ledger.shares.total
    }

    /// Displaces a holder that proved nothing, to free what it uses. Says whether there was one.
    pub fn displace_unproven(&self) -> bool {
        let mut ledger = self.ledger.lock();
        let unproven = ledger.holders.iter().filter(|(_, holder)| matches!(holder.standing, Standing::Unproven(_)));
        let Some(id) = unproven.min_by_key(|(_, holder)| holder.standing.since()).map(|(id, _)| *id) else {
            return false;
        };
        ledger.displace(id);
        true
    }
}

impl<K> Clone for Places<K> {
    fn clone(&self) -> Self {
        Self { ledger: self.ledger.clone(), returned: self.returned.clone() }
    }
}

/// Among whom a newcomer finds a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crowd {
    All,
    /// The newcomer's own holders.
    Own,
}

impl<K: Clone + Hash + Eq> Ledger<K> {
    /// Who must make room for a client; `None` where a place is free for it.
    fn crowd(&self, client: &K) -> Option<Crowd> {
        let Shares { total, per_client } = self.shares;
        let own = self.held.get(client).copied().unwrap_or(0);
        let free = total.saturating_sub(self.holders.len());
        match free {
            _ if own >= per_client => Some(Crowd::Own),
            0 => Some(Crowd::All),
            free if free <= total / RESERVED_PART && own >= (total / FEW_PART).max(1) => Some(Crowd::Own),
            _ => None,
        }
    }

    /// The holder that makes room: one of the client with the most places among those that give way most readily, and of these the one
    /// that does so longest.
    fn victim(&self, newcomer: &K, crowd: Crowd, now: Instant) -> Result<u64, Full> {
        let yielding = || {
            let own_or_all = |holder: &&Holder<K>| crowd == Crowd::All || holder.client == *newcomer;
            let yielding = self.holders.iter().filter(move |(_, holder)| own_or_all(holder));
            yielding.filter_map(|(id, holder)| holder.standing.since().map(|since| (*id, since, holder)))
        };
        let rank = |since: Instant, holder: &Holder<K>| {
            let is_unproven = matches!(holder.standing, Standing::Unproven(_));
            (is_unproven, self.held[&holder.client], now.saturating_duration_since(since))
        };
        let ripe = yielding().filter(|(_, since, _)| *since <= now);
        match ripe.max_by_key(|(_, since, holder)| rank(*since, holder)) {
            Some((id, ..)) => Ok(id),
            None => Err(Full { ripe_at: yielding().map(|(_, since, _)| since).min() }),
        }
    }
}

impl<K: Hash + Eq> Ledger<K> {
    /// Takes a holder's place away, if it has it still.
    fn remove(&mut self, id: u64) -> Option<Holder<K>> {
        let holder = self.holders.remove(&id)?;
        if let Some(held) = self.held.get_mut(&holder.client) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&holder.client);
            }
        }
        Some(holder)
    }

    fn displace(&mut self, id: u64) {
        if let Some(holder) = self.remove(id) {
            holder.displaced.cancel();
        }
    }
}

impl Standing {
    /// From when on the holder makes room, if it does.
    fn since(self) -> Option<Instant> {
        match self {
            Standing::Busy => None,
            Standing::Idle(since) | Standing::Unproven(since) => Some(since),
        }
    }
}

impl<K: Hash + Eq> Place<K> {
    pub fn set_standing(&self, standing: Standing) {
        if let Some(holder) = self.places.ledger.lock().holders.get_mut(&self.id) {
            holder.standing = standing;
        }
    }

    /// Waits until the place is somebody else's.
    pub async fn displaced(&self) {
        self.displaced.cancelled().await;
    }
}

impl<K: Hash + Eq> Drop for Place<K> {
    fn drop(&mut self) {
        // A holder that was displaced is not there any more.
        self.places.ledger.lock().remove(self.id);
        self.places.returned.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
