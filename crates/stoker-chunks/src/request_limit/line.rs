//! Who has GETs under way, and who waits for a turn.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

/// Bytes that the GETs of a scan may ask for together, for each GET of the limit. They are no memory beside that of the budget:
/// the rows that a GET brings have their room in batches, blocks or the cache before it waits for its turn. 128 MiB at first,
/// which is enough for 6 GB/s with a latency of 20 ms.
const BYTES_PER_REQUEST: u64 = 1 << 20;

/// The scans of a limit, by client.
#[derive(Debug, Default)]
pub(super) struct Line {
    clients: BTreeMap<u64, Client>,
    next_id: u64,
    next_ticket: u64,
    /// The client that had the last turn for which others waited.
    last: u64,
    num_under_way: usize,
    num_waiting: usize,
}

/// A scan of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberId {
    client: u64,
    scan: u64,
}

/// The scans of one client.
#[derive(Debug, Default)]
struct Client {
    members: BTreeMap<u64, Member>,
    /// The scan that had the client's last turn for which others waited.
    last: u64,
}

/// What a scan has.
#[derive(Debug)]
struct Member {
    requests_max: usize,
    num_under_way: usize,
    /// Bytes that the GETs under way ask for.
    bytes: u64,
    /// GETs without a turn by ticket, oldest first.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    bytes: u64,
    granted: oneshot::Sender<()>,
}

/// What was asked for, and when it is granted.
#[derive(Debug)]
pub(super) struct Asked {
    pub ticket: u64,
    pub granted: oneshot::Receiver<()>,
}

impl Member {
    fn has_turn(&self, limit: usize) -> bool {
        self.num_under_way < self.requests_max.min(limit)
    }

    /// Whether its oldest waiting GET may begin.
    fn is_ready(&self, limit: usize) -> bool {
        let bytes_max = BYTES_PER_REQUEST * self.requests_max.min(limit) as u64;
        let fits = |bytes: u64| self.bytes == 0 || self.bytes.saturating_add(bytes) <= bytes_max;
        self.has_turn(limit) && self.waiting.first_key_value().is_some_and(|(_, oldest)| fits(oldest.bytes))
    }
}

impl Client {
    /// The scan whose turn it is, of those that may begin a GET.
    fn next_ready(&self, limit: usize) -> Option<u64> {
        in_rotation(&self.members, self.last).find(|(_, member)| member.is_ready(limit)).map(|(scan, _)| scan)
    }
}

/// All entries, from the one after the last that had its turn.
fn in_rotation<T>(entries: &BTreeMap<u64, T>, last: u64) -> impl Iterator<Item = (u64, &T)> {
    let later = entries.range(last.saturating_add(1)..);
    later.chain(entries.range(..=last)).map(|(id, entry)| (*id, entry))
}

impl Line {
    /// GETs under way.
    pub fn num_under_way(&self) -> usize {
        self.num_under_way
    }

    /// GETs without a turn.
    pub fn num_waiting(&self) -> usize {
        self.num_waiting
    }

    /// Takes in a scan of a client.
    pub fn join(&mut self, client: u64, requests_max: usize) -> MemberId {
        let scan = self.next_id;
        self.next_id += 1;
        let member = Member { requests_max, num_under_way: 0, bytes: 0, waiting: BTreeMap::new() };
        self.clients.entry(client).or_default().members.insert(scan, member);
        MemberId { client, scan }
    }

    /// Forgets a scan, all of whose GETs have ended.
    pub fn leave(&mut self, id: MemberId) {
        let Some(client) = self.clients.get_mut(&id.client) else { return };
        client.members.remove(&id.scan);
        if client.members.is_empty() {
            self.clients.remove(&id.client);
        }
    }

    /// Puts a GET at the end of its scan's line.
    pub fn ask(&mut self, id: MemberId, bytes: u64) -> Asked {
        let ticket = self.take_ticket();
        let (sender, granted) = oneshot::channel();
        if let Some(member) = self.member(id) {
            member.waiting.insert(ticket, Waiting { bytes, granted: sender });
            self.num_waiting += 1;
        }
        Asked { ticket, granted }
    }

    /// A turn for a GET of no bytes that does not wait; its ticket.
    pub fn try_ask(&mut self, id: MemberId, limit: usize) -> Option<u64> {
        let has_room = self.num_under_way < limit;
        let member = self.member(id).filter(|member| has_room && member.has_turn(limit))?;
        member.num_under_way += 1;
        self.num_under_way += 1;
        Some(self.take_ticket())
    }

    /// Ends a GET that is under way, or waits.
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

    /// Gives turns within a limit, to one client after the other, and of each to one scan after the other. What is under way beyond
    /// a limit that shrank goes on.
    pub fn admit(&mut self, limit: usize) {
        while self.num_waiting > 0 && self.num_under_way < limit {
            let Some(id) = self.next_ready(limit) else { return };
            self.begin_oldest(id);
        }
    }

    /// The scan whose turn it is, of those that may begin a GET.
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
        // Who does not wait any more ends its turn as one who got it.
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
