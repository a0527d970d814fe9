//! Permits (`Permit`) for limited resources that clients share: connections of a server, streams, query results.
//!
//! Three rules divide the permits fairly among clients:
//!
//! 1. One client holds at most `per_client` permits.
//! 2. The last eighth of all permits is reserved for clients that hold few: fewer than 1/64 of all permits, or none
//!    where that is less than one.
//! 3. Where these limits leave no permit, the newcomer displaces a holder that may be displaced: a connection that is
//!    not authenticated or has no running request, or a response whose client reads nothing. Without such a holder, the
//!    newcomer is refused.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stoker_clock::Clock;
use stoker_types::Moment;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The reserved part of all permits, as a divisor: 1/8.
const RESERVED_PART: usize = 8;
/// A client that holds this part of all permits or more gets no reserved one; as a divisor: 1/64.
const FEW_PART: usize = 64;

/// The state of a permit's holder, which decides whether a newcomer may displace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The holder is at work and cannot be displaced.
    Busy,
    /// The holder is idle and can be displaced from this time on.
    Idle(Moment),
    /// No request of the holder has passed authentication yet. It can be displaced from this time on, and before
    /// holders that are idle.
    Unproven(Moment),
}

/// A number of permits and their holders. Cheap to clone; clones share the permits.
pub(crate) struct Permits<K> {
    ledger: Arc<Mutex<Ledger<K>>>,
    /// Notified when a permit is released.
    returned: Arc<Notify>,
    clock: Clock,
}

/// The numbers of permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    pub total: usize,
    /// The maximum for one client.
    pub per_client: usize,
}

/// A permit. Dropping it releases it.
pub(crate) struct Permit<K: Hash + Eq> {
    places: Permits<K>,
    id: u64,
    /// Cancelled when a newcomer displaces the holder.
    displaced: CancellationToken,
}

/// The error of a request for a permit that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// The time from which on the first holder can be displaced, if no holder changes until then; `None` if all are
    /// busy.
    pub ripe_at: Option<Moment>,
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

impl<K: Clone + Hash + Eq> Permits<K> {
    pub fn new(shares: Shares, clock: Clock) -> Self {
        let ledger = Ledger { shares, holders: HashMap::new(), held: HashMap::new(), next_id: 0 };
        Self { ledger: Arc::new(Mutex::new(ledger)), returned: Arc::default(), clock }
    }

    /// Acquires a permit for a client; displaces another holder if necessary.
    ///
    /// # Errors
    /// [`Full`] if no permit is free and no holder can be displaced now.
    pub fn take(&self, client: K, standing: Standing, now: Moment) -> Result<Permit<K>, Full> {
        let mut ledger = self.ledger.lock();
        if let Some(crowd) = ledger.crowd(&client) {
            let victim = ledger.victim(&client, crowd, now)?;
            ledger.displace(victim);
        }
        let (id, displaced) = (ledger.next_id, CancellationToken::new());
        ledger.next_id += 1;
        *ledger.held.entry(client.clone()).or_default() += 1;
        ledger.holders.insert(id, Holder { client, standing, displaced: displaced.clone() });
        Ok(Permit { places: self.clone(), id, displaced })
    }

    /// Acquires a permit as [`Permits::take`] does, for a holder that is busy at once. If no permit is free but a holder
    /// can be displaced within `patience`, it waits for that or for a released permit.
    ///
    /// # Errors
    /// [`Full`] at once if no holder can be displaced within `patience`.
    pub async fn take_within(&self, client: K, patience: Duration) -> Result<Permit<K>, Full> {
        let deadline = self.clock.now() + patience;
        loop {
            let returned = self.returned.notified();
            let full = match self.take(client.clone(), Standing::Busy, self.clock.now()) {
                Err(full) => full,
                place => return place,
            };
            let Some(ripe_at) = full.ripe_at.filter(|ripe_at| *ripe_at <= deadline) else { return Err(full) };
            tokio::select! {
                () = returned => {}
                () = self.clock.sleep_until(ripe_at) => {}
            }
        }
    }

    /// Returns whether all permits are held.
    pub fn is_full(&self) -> bool {
        let ledger = self.ledger.lock();
        ledger.holders.len() >= ledger.shares.total
    }

    /// Displaces the oldest holder that is not authenticated, to free its resources. Returns whether there was one.
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

impl<K> Clone for Permits<K> {
    fn clone(&self) -> Self {
        Self { ledger: self.ledger.clone(), returned: self.returned.clone(), clock: self.clock.clone() }
    }
}

/// The holders among which a newcomer finds one to displace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crowd {
    All,
    /// The newcomer's own holders.
    Own,
}

impl<K: Clone + Hash + Eq> Ledger<K> {
    /// Returns the holders of which one must be displaced for a client; `None` if it gets a free permit.
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

    /// Chooses the holder to displace: first by standing (unproven before idle), then one of the client with the most
    /// permits, then the one that could be displaced for the longest time.
    fn victim(&self, newcomer: &K, crowd: Crowd, now: Moment) -> Result<u64, Full> {
        let yielding = || {
            let own_or_all = |holder: &&Holder<K>| crowd == Crowd::All || holder.client == *newcomer;
            let yielding = self.holders.iter().filter(move |(_, holder)| own_or_all(holder));
            yielding.filter_map(|(id, holder)| holder.standing.since().map(|since| (*id, since, holder)))
        };
        let rank = |since: Moment, holder: &Holder<K>| {
            let is_unproven = matches!(holder.standing, Standing::Unproven(_));
            (is_unproven, self.held[&holder.client], now - since)
        };
        let ripe = yielding().filter(|(_, since, _)| *since <= now);
        match ripe.max_by_key(|(_, since, holder)| rank(*since, holder)) {
            Some((id, ..)) => Ok(id),
            None => Err(Full { ripe_at: yielding().map(|(_, since, _)| since).min() }),
        }
    }
}

impl<K: Hash + Eq> Ledger<K> {
    /// Removes a holder, if it still holds its permit.
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
    /// Returns the time from which on the holder can be displaced, if it can.
    fn since(self) -> Option<Moment> {
        match self {
            Standing::Busy => None,
            Standing::Idle(since) | Standing::Unproven(since) => Some(since),
        }
    }
}

impl<K: Hash + Eq> Permit<K> {
    pub fn set_standing(&self, standing: Standing) {
        if let Some(holder) = self.places.ledger.lock().holders.get_mut(&self.id) {
            holder.standing = standing;
        }
    }

    /// Waits until a newcomer displaces this holder.
    pub async fn displaced(&self) {
        self.displaced.cancelled().await;
    }
}

impl<K: Hash + Eq> Drop for Permit<K> {
    fn drop(&mut self) {
        // A displaced holder is not in the ledger any more.
        self.places.ledger.lock().remove(self.id);
        self.places.returned.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
