//! The queue of GETs that wait for permits, and the counts of those in flight.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

/// The maximum number of bytes that the GETs of a scan read together, per GET of the limit. These bytes need no memory
/// beyond the budget: before a GET waits for its permit, memory for its rows was reserved in batches, blocks or the
/// cache. With the initial limit this is 128 MiB, enough for 6 GB/s at a latency of 20 ms.
const BYTES_PER_REQUEST: u64 = 1 << 20;

/// The scans of a limit, grouped by client.
#[derive(Debug, Default)]
pub(super) struct Line {
    clients: BTreeMap<u64, Client>,
    next_id: u64,
    next_ticket: u64,
    /// The client that got the last permit for which GETs waited.
    last: u64,
    num_under_way: usize,
    num_waiting: usize,
}

/// Identifies a scan of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberId {
    client: u64,
    scan: u64,
}

/// The scans of one client.
#[derive(Debug, Default)]
struct Client {
    members: BTreeMap<u64, Member>,
    /// The scan that got the client's last permit for which GETs waited.
    last: u64,
}

/// The state of a scan.
#[derive(Debug)]
struct Member {
    requests_max: usize,
    num_under_way: usize,
    /// The number of bytes that the GETs in flight read.
    bytes: u64,
    /// The GETs that wait for permits, by ticket, the oldest first.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    bytes: u64,
    granted: oneshot::Sender<()>,
}

/// A request for a permit.
#[derive(Debug)]
pub(super) struct Asked {
    pub ticket: u64,
    pub granted: oneshot::Receiver<()>,
}

impl Member {
    fn has_turn(&self, limit: usize) -> bool {
        self.num_under_way < self.requests_max.min(limit)
    }

    /// Returns whether the scan's oldest waiting GET may begin.
    fn is_ready(&self, limit: usize) -> bool {
        let bytes_max = BYTES_PER_REQUEST * self.requests_max.min(limit) as u64;
        let fits = |bytes: u64| self.bytes == 0 || self.bytes.saturating_add(bytes) <= bytes_max;
        self.has_turn(limit) && self.waiting.first_key_value().is_some_and(|(_, oldest)| fits(oldest.bytes))
    }
}

impl Client {
    /// Returns the scan whose turn it is, of those that may begin a GET.
    fn next_ready(&self, limit: usize) -> Option<u64> {
        in_rotation(&self.members, self.last).find(|(_, member)| member.is_ready(limit)).map(|(scan, _)| scan)
    }
}

/// Returns all entries, beginning after the one that had the last turn.
fn in_rotation<T>(entries: &BTreeMap<u64, T>, last: u64) -> impl Iterator<Item = (u64, &T)> {
    let later = entries.range(last.saturating_add(1)..);
    later.chain(entries.range(..=last)).map(|(id, entry)| (*id, entry))
}

impl Line {
    /// The number of GETs in flight.
    pub fn num_under_way(&self) -> usize {
        self.num_under_way
    }

    /// The number of GETs that wait for permits.
    pub fn num_waiting(&self) -> usize {
        self.num_waiting
    }

    /// Adds a scan of a client.
    pub fn join(&mut self, client: u64, requests_max: usize) -> MemberId {
        let scan = self.next_id;
        self.next_id += 1;
        let member = Member { requests_max, num_under_way: 0, bytes: 0, waiting: BTreeMap::new() };
        self.clients.entry(client).or_default().members.insert(scan, member);
        MemberId { client, scan }
    }

    /// Removes a scan. All of its GETs must have ended.
    pub fn leave(&mut self, id: MemberId) {
        let Some(client) = self.clients.get_mut(&id.client) else { return };
        client.members.remove(&id.scan);
        if client.members.is_empty() {
            self.clients.remove(&id.client);
        }
    }

    /// Adds a GET at the end of its scan's queue.
    pub fn ask(&mut self, id: MemberId, bytes: u64) -> Asked {
        let ticket = self.take_ticket();
        let (sender, granted) = oneshot::channel();
        if let Some(member) = self.member(id) {
            member.waiting.insert(ticket, Waiting { bytes, granted: sender });
            self.num_waiting += 1;
        }
        Asked { ticket, granted }
    }

    /// Returns the ticket of a permit for a GET of zero bytes, if one is available at once.
    pub fn try_ask(&mut self, id: MemberId, limit: usize) -> Option<u64> {
        let has_room = self.num_under_way < limit;
        let member = self.member(id).filter(|member| has_room && member.has_turn(limit))?;
        member.num_under_way += 1;
        self.num_under_way += 1;
        Some(self.take_ticket())
    }

    /// Ends a GET that is in flight or waits.
    pub fn end(&mut self, id: MemberId, ticket: u64, bytes: u64) {
        let Some(member) = self.member(id) else { return };
        if member.waiting.remove(&ticket).is_some() {
            self.num_waiting -= 1;
            return;
        }
        member.num_under_way -= 1;
        member.bytes -= bytes;
        self.num_under_way -= 1;
    }

    /// Gives permits within a limit: clients take turns, and so do the scans of each client. If the limit shrank, GETs
    /// in flight beyond it continue.
    pub fn admit(&mut self, limit: usize) {
        while self.num_waiting > 0 && self.num_under_way < limit {
            let Some(id) = self.next_ready(limit) else { return };
            self.begin_oldest(id);
        }
    }

    /// Returns the scan whose turn it is, of those that may begin a GET.
    fn next_ready(&self, limit: usize) -> Option<MemberId> {
        let mut clients = in_rotation(&self.clients, self.last);
        clients.find_map(|(client, scans)| Some(MemberId { client, scan: scans.next_ready(limit)? }))
    }

    fn begin_oldest(&mut self, id: MemberId) {
        self.last = id.client;
        let Some(client) = self.clients.get_mut(&id.client) else { return };
        client.last = id.scan;
        let Some(member) = client.members.get_mut(&id.scan) else { return };
        let Some((_, Waiting { bytes, granted })) = member.waiting.pop_first() else { return };
        member.num_under_way += 1;
        member.bytes += bytes;
        self.num_under_way += 1;
        self.num_waiting -= 1;
        // A cancelled waiter releases its permit like a holder.
        granted.send(()).ok();
    }

    fn member(&mut self, id: MemberId) -> Option<&mut Member> {
        self.clients.get_mut(&id.client)?.members.get_mut(&id.scan)
    }

    fn take_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}
