//! Where rows lie after compactions.
//!
//! A compaction gives rows new addresses. Streams of older versions, their receipts and people name rows by the old
//! ones. So each compaction leaves an object in the folder of its table that tells the new address for each old one:
//!
//! ```text
//! <table>.lance/_moves/<key>.moves   the fragments before and after, and the deleted rows; written before the commit
//! <table>.lance/_moves/<key>.v7      no content; written after the commit of version 7
//! ```
//!
//! Rows keep their order, so the deleted rows of the old fragments and the numbers of rows of the new ones determine
//! all addresses. An object whose second one is missing counts if a transaction has its key. It is in the folder of the
//! table, so that it goes with the table, and with no other table of the same name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use stoker_store::again;
use stoker_types::{ErrorKind, TableName};
use uuid::Uuid;

use crate::cleanup::DRAFT_AGE;
use crate::commit::{TRANSACTIONS_IN_FLIGHT, transaction};
use crate::row_id_set::row_offset;
use crate::{Error, LakeStore, Result, Table};

/// The key of the transaction property with the key of the moves.
pub(crate) const MOVES_PROPERTY: &str = "stoker.moves";

/// The folder of moves, in that of their table.
const FOLDER: &str = "_moves";

/// The extension of the objects that hold moves.
const EXTENSION: &str = ".moves";

/// The version of the format.
const VERSION: u32 = 1;

/// The bytes before the JSON text: its length, in little-endian order.
const LENGTH_BYTES: usize = 8;

/// The number of objects that are read at the same time.
const OBJECTS_IN_FLIGHT: usize = 8;

/// The old and the new addresses of the rows of a compaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moves {
    /// The version before that of the compaction.
    read_version: u64,
    groups: Vec<MovedGroup>,
}

/// Fragments, and those that took their place, in the order of their rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MovedGroup {
    pub old: Vec<OldFragment>,
    pub new: Vec<NewFragment>,
}

/// A fragment before the compaction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OldFragment {
    pub id: u64,
    pub num_rows: u64,
    /// The offsets of its deleted rows.
    pub deleted: RoaringBitmap,
}

/// A fragment after the compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewFragment {
    pub id: u64,
    pub num_rows: u64,
}

/// The JSON text of moves. The bitmaps of all old fragments follow it.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    read_version: u64,
    groups: Vec<GroupHeader>,
}

#[derive(Serialize, Deserialize)]
struct GroupHeader {
    old: Vec<OldHeader>,
    new: Vec<NewFragment>,
}

#[derive(Serialize, Deserialize)]
struct OldHeader {
    id: u64,
    num_rows: u64,
    /// The bytes of its bitmap.
    bytes: usize,
}

/// Where a row is that a version does not have at its old address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// It was deleted before a compaction left it out.
    Dropped,
    /// It had this address when its fragment was last known.
    Last(u64),
    /// It has this address.
    Present(u64),
}

impl Moves {
    pub fn new(read_version: u64, groups: Vec<MovedGroup>) -> Self {
        Self { read_version, groups }
    }

    /// Returns where the row of an old address lies; `None` for an address of another fragment, or beyond its end.
    fn get(&self, addr: u64) -> Option<Option<u64>> {
        let (id, offset) = (addr >> 32, row_offset(addr));
        for group in &self.groups {
            let mut before = 0;
            for old in &group.old {
                if old.id == id {
                    return (u64::from(offset) < old.num_rows).then(|| group.address_of(before, old, offset));
                }
                before += old.num_rows.saturating_sub(old.deleted.len());
            }
        }
        None
    }

    fn to_bytes(&self) -> Result<Bytes, String> {
        let (mut bitmaps, mut groups) = (Vec::new(), Vec::new());
        for group in &self.groups {
            let mut old = Vec::new();
            for fragment in &group.old {
                let bytes = fragment.deleted.serialized_size();
                fragment.deleted.serialize_into(&mut bitmaps).map_err(|source| source.to_string())?;
                old.push(OldHeader { id: fragment.id, num_rows: fragment.num_rows, bytes });
            }
            groups.push(GroupHeader { old, new: group.new.clone() });
        }
        let header = Header { version: VERSION, read_version: self.read_version, groups };
        let json = serde_json::to_vec(&header).map_err(|source| source.to_string())?;
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json);
        bytes.extend(bitmaps);
        Ok(bytes.into())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let cut = || "it is cut off".to_string();
        let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>().ok_or_else(cut)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|length| *length <= rest.len());
        let (json, mut bitmaps) = rest.split_at(length.ok_or_else(cut)?);
        let header: Header = serde_json::from_slice(json).map_err(|source| source.to_string())?;
        if header.version != VERSION {
            return Err(format!("its version is {}; this build of Stoker reads {VERSION}", header.version));
        }
        let mut groups = Vec::with_capacity(header.groups.len());
        for group in header.groups {
            let mut old = Vec::with_capacity(group.old.len());
            for OldHeader { id, num_rows, bytes } in group.old {
                let (bitmap, after) = bitmaps.split_at_checked(bytes).ok_or_else(cut)?;
                let deleted = RoaringBitmap::deserialize_from(bitmap).map_err(|source| source.to_string())?;
                old.push(OldFragment { id, num_rows, deleted });
                bitmaps = after;
            }
            groups.push(MovedGroup { old, new: group.new });
        }
        Ok(Self { read_version: header.read_version, groups })
    }
}

impl MovedGroup {
    /// The new address of a row of an old fragment, before which the group has `before` rows. `None` for a deleted row.
    fn address_of(&self, before: u64, old: &OldFragment, offset: u32) -> Option<u64> {
        if old.deleted.contains(offset) {
            return None;
        }
        let mut row = before + u64::from(offset) - old.deleted.rank(offset);
        for new in &self.new {
            match row.checked_sub(new.num_rows) {
                None => return Some(new.id << 32 | row),
                Some(after) => row = after,
            }
        }
        None
    }
}

impl LakeStore {
    fn moves_folder(&self, table: &TableName) -> Path {
        self.table_path(table).join(FOLDER)
    }

    /// Stores moves that are about to be committed under a key. Those of an earlier attempt are replaced.
    pub(crate) async fn put_moves(&self, table: &TableName, key: Uuid, moves: &Moves) -> Result<()> {
        let attempted = || format!("writing where rows of table {table} move");
        let bytes = moves.to_bytes().map_err(|source| Error::Storage {
            attempted: attempted(),
            kind: ErrorKind::Internal,
            source: source.into(),
        })?;
        let path = self.moves_folder(table).join(format!("{key}{EXTENSION}"));
        let put = self.inner.store.inner.put(&path, PutPayload::from(bytes)).await;
        put.map(|_| ()).map_err(|source| Error::storage(attempted(), source))
    }

    /// Notes that moves were committed. If that fails, the transactions tell.
    pub(crate) async fn confirm_moves(&self, table: &TableName, key: Uuid, version: u64) {
        let path = self.moves_folder(table).join(format!("{key}.v{version}"));
        if let Err(error) = self.inner.store.inner.put(&path, PutPayload::default()).await {
            tracing::debug!(%error, "the transaction of version {version} tells that rows of table {table} moved");
        }
    }

    /// Removes moves that belong to no commit and are older than a week, and those of compactions whose old fragments
    /// no version has any more. `table` is the newest version.
    pub(crate) async fn clean_moves(&self, table: &Table) -> Result<()> {
        let stored = table.stored_moves().await?;
        if stored.is_empty() {
            return Ok(());
        }
        let oldest = table.version_numbers().await?.into_iter().min().unwrap_or(0);
        for (key, StoredMoves { confirmed, age }) in stored {
            let version = match confirmed {
                Some(version) => Some(version),
                None if age < DRAFT_AGE => continue,
                None => table.settled(key).await?,
            };
            match version {
                Some(version) if version > oldest => {}
                _ => table.remove_moves(key, confirmed).await?,
            }
        }
        Ok(())
    }
}

/// What the names of the objects of moves tell.
#[derive(Clone, Copy, Debug, Default)]
struct StoredMoves {
    /// The version of the commit, if it was noted.
    confirmed: Option<u64>,
    age: Duration,
}

impl Table {
    /// Returns the addresses that rows have in this version, sorted and without duplicates, and the number of rows that
    /// compactions left out because they were deleted. Addresses of fragments that this version has stay as they are,
    /// and so do those of which nothing is known. Takes requests only if a fragment is missing: a listing, and a
    /// request for each compaction of the table.
    ///
    /// # Errors
    /// `DataCorrupt` for moves that cannot be read; storage errors.
    pub(crate) async fn followed(&self, addrs: &[u64]) -> Result<(Vec<u64>, u64)> {
        let ids: HashSet<u64> = self.dataset().fragments().iter().map(|fragment| fragment.id).collect();
        let mut now: Vec<u64> = addrs.to_vec();
        now.sort_unstable();
        now.dedup();
        let mut num_dropped = 0;
        if now.iter().any(|addr| !ids.contains(&(addr >> 32))) {
            let moves = self.moves().await?;
            now.retain_mut(|addr| match place(*addr, &moves, &ids) {
                _ if ids.contains(&(*addr >> 32)) => true,
                Some(Moved::Present(moved) | Moved::Last(moved)) => {
                    *addr = moved;
                    true
                }
                Some(Moved::Dropped) => {
                    num_dropped += 1;
                    false
                }
                None => true,
            });
        }
        now.sort_unstable();
        now.dedup();
        Ok((now, num_dropped))
    }

    /// Reads the moves of all compactions of the table that were committed.
    async fn moves(&self) -> Result<Vec<Moves>> {
        let stored = stream::iter(self.stored_moves().await?);
        let read = stored.map(|(key, stored)| async move { self.committed_moves(key, stored).await });
        read.buffered(OBJECTS_IN_FLIGHT).try_filter_map(|found| std::future::ready(Ok(found))).try_collect().await
    }

    async fn committed_moves(&self, key: Uuid, stored: StoredMoves) -> Result<Option<Moves>> {
        let is_committed = stored.confirmed.is_some() || self.settled(key).await?.is_some();
        if is_committed { self.read_moves(key).await } else { Ok(None) }
    }

    async fn read_moves(&self, key: Uuid) -> Result<Option<Moves>> {
        let path = self.lake().moves_folder(self.name()).join(format!("{key}{EXTENSION}"));
        let attempted = || format!("reading where rows of table {} moved", self.name());
        let read = async || match self.lake().inner.store.inner.get(&path).await {
            Ok(found) => found.bytes().await.map(Some).map_err(|source| Error::storage(attempted(), source)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(Error::storage(attempted(), source)),
        };
        let Some(bytes) = again(read).await? else { return Ok(None) };
        let moves = Moves::from_bytes(&bytes);
        moves
            .map(Some)
            .map_err(|reason| Error::DataCorrupt { attempted: attempted(), reason: format!("{path}: {reason}") })
    }

    /// Lists the moves of the table.
    async fn stored_moves(&self) -> Result<BTreeMap<Uuid, StoredMoves>> {
        let folder = self.lake().moves_folder(self.name());
        let list = async || {
            let listed = self.lake().inner.store.inner.list(Some(&folder)).try_collect::<Vec<_>>().await;
            listed.map_err(|source| Error::storage(format!("listing the moves of table {}", self.name()), source))
        };
        let mut stored: BTreeMap<Uuid, StoredMoves> = BTreeMap::new();
        let mut confirmed: HashMap<Uuid, u64> = HashMap::new();
        for found in again(list).await? {
            let Some((key, extension)) = found.location.filename().and_then(|name| name.split_once('.')) else {
                continue;
            };
            let Ok(key) = key.parse::<Uuid>() else { continue };
            if extension == &EXTENSION[1..] {
                let age = SystemTime::now().duration_since(found.last_modified.into()).unwrap_or_default();
                stored.insert(key, StoredMoves { confirmed: None, age });
            } else if let Some(version) = extension.strip_prefix('v').and_then(|version| version.parse().ok()) {
                confirmed.insert(key, version);
            }
        }
        stored.iter_mut().for_each(|(key, stored)| stored.confirmed = confirmed.get(key).copied());
        Ok(stored)
    }

    /// Finds the version of moves of which no object tells whether they were committed, and notes it.
    async fn settled(&self, key: Uuid) -> Result<Option<u64>> {
        let Some(moves) = self.read_moves(key).await? else { return Ok(None) };
        let text = key.to_string();
        let versions = stream::iter(moves.read_version + 1..=self.version());
        let read = versions.map(|version| async move { Ok::<_, Error>((version, transaction(self, version).await?)) });
        let mut read = read.buffered(TRANSACTIONS_IN_FLIGHT);
        while let Some((version, found)) = read.try_next().await? {
            let properties = found.and_then(|found| found.transaction_properties);
            if properties.and_then(|properties| properties.get(MOVES_PROPERTY).cloned()) == Some(text.clone()) {
                self.lake().confirm_moves(self.name(), key, version).await;
                return Ok(Some(version));
            }
        }
        Ok(None)
    }

    async fn remove_moves(&self, key: Uuid, confirmed: Option<u64>) -> Result<()> {
        let folder = self.lake().moves_folder(self.name());
        let confirmation = confirmed.map(|version| format!("{key}.v{version}"));
        for name in [Some(format!("{key}{EXTENSION}")), confirmation].into_iter().flatten() {
            match self.lake().inner.store.inner.delete(&folder.clone().join(name)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => {
                    return Err(Error::storage(format!("removing moves of table {}", self.name()), source));
                }
            }
        }
        Ok(())
    }
}

/// Finds where the row of an old address lies, through any number of compactions. A restore may have brought fragments
/// back that were compacted twice: the place in a fragment that is there counts.
fn place(addr: u64, moves: &[Moves], ids: &HashSet<u64>) -> Option<Moved> {
    let mut found = None;
    for next in moves.iter().filter_map(|moves| moves.get(addr)) {
        let place = match next {
            None => Moved::Dropped,
            Some(next) if ids.contains(&(next >> 32)) => return Some(Moved::Present(next)),
            // New fragments have larger ids, so that this ends.
            Some(next) if next >> 32 > addr >> 32 => place(next, moves, ids).unwrap_or(Moved::Last(next)),
            Some(_) => continue,
        };
        match place {
            Moved::Present(_) => return Some(place),
            Moved::Last(_) => found = Some(place),
            Moved::Dropped => found = found.or(Some(place)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(id: u64, num_rows: u64, deleted: &[u32]) -> OldFragment {
        OldFragment { id, num_rows, deleted: deleted.iter().copied().collect() }
    }

    fn moves(old: Vec<OldFragment>, new: &[(u64, u64)]) -> Moves {
        let new = new.iter().map(|(id, num_rows)| NewFragment { id: *id, num_rows: *num_rows }).collect();
        Moves::new(7, vec![MovedGroup { old, new }])
    }

    fn addr(id: u64, offset: u64) -> u64 {
        id << 32 | offset
    }

    #[test]
    fn rows_keep_their_order() {
        let moves = moves(vec![old(1, 4, &[0, 2]), old(5, 3, &[]), old(2, 2, &[1])], &[(8, 4), (9, 2)]);
        let expected = [
            (addr(1, 0), Some(None)),
            (addr(1, 1), Some(Some(addr(8, 0)))),
            (addr(1, 2), Some(None)),
            (addr(1, 3), Some(Some(addr(8, 1)))),
            (addr(1, 4), None),
            (addr(5, 0), Some(Some(addr(8, 2)))),
            (addr(5, 2), Some(Some(addr(9, 0)))),
            (addr(2, 0), Some(Some(addr(9, 1)))),
            (addr(2, 1), Some(None)),
            (addr(3, 0), None),
        ];
        for (addr, found) in expected {
            assert_eq!(moves.get(addr), found, "{addr:x}");
        }
        let bytes = moves.to_bytes().expect("bytes");
        assert_eq!(Moves::from_bytes(&bytes).expect("moves"), moves);
        for length in 0..bytes.len() {
            assert!(Moves::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn rows_are_found_after_several_compactions() {
        let all = [
            moves(vec![old(1, 3, &[])], &[(2, 3)]),
            moves(vec![old(2, 3, &[1])], &[(3, 2)]),
            // A restore brought fragment 1 back, and it was compacted again.
            moves(vec![old(1, 3, &[2])], &[(6, 2)]),
        ];
        let find = |offset, ids: &[u64]| place(addr(1, offset), &all, &ids.iter().copied().collect());
        assert_eq!(find(2, &[3]), Some(Moved::Present(addr(3, 1))));
        assert_eq!(find(1, &[6]), Some(Moved::Present(addr(6, 1))));
        assert_eq!(find(1, &[3]), Some(Moved::Last(addr(6, 1))));
        assert_eq!(find(2, &[]), Some(Moved::Last(addr(3, 1))));
        assert_eq!(place(addr(9, 0), &all, &HashSet::new()), None);
    }
}
