//! Packs: whole documents side by side in sequences of one length.
//!
//! ```text
//! lengths of documents ──groups of neighbours──► packs of a group, by best fit ──seed, epoch──► documents of each pack
//! ```
//!
//! A group is a fixed number of packs. Documents are put into its packs one after the other, each into the pack that it
//! leaves the least room in (best fit: Johnson, Near-optimal bin packing algorithms, MIT 1973). A document that fits no
//! pack waits for the next group, which gets it first. The group ends when it is full, or when 64 documents wait. Only a
//! document that is longer than a pack is cut, into pieces as long as a pack and a rest.
//!
//! Groups are the same in all epochs. In each epoch, documents of the same length within a group change places, and so do
//! the documents of a pack. A reader of a pack needs the lengths of its group only.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Key;

/// The largest number of documents that wait for the next group.
const WAITING_MAX: usize = 64;

/// A group ends when at most one token in so many would still fit.
const ROOM_DIVISOR: u64 = 512;

/// The label of the keys of packs.
const PACKED: u64 = 9;

/// A document, or a part of one that is longer than a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentPiece {
    /// The ordinal of the document in the row set.
    pub document: u64,
    /// The first token.
    pub start: u64,
    /// The number of tokens.
    pub length: u64,
    /// Whether the piece is the whole document.
    pub is_whole: bool,
}

/// The sizes of packs and of their groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackSize {
    /// The number of tokens in a pack, at least 2.
    pub length: u64,
    /// The number of packs in a group, 1 to 256, so that the last tokens that would fit a group are not a pack.
    pub group_packs: u64,
}

/// Where a group begins: at a token of a document.
type GroupStart = (u64, u64);

/// A piece that waited for a group, in 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Waited {
    document: u64,
    /// The number of the piece in its document, and [`Waited::IS_WHOLE`] if the piece is all of it.
    number: u32,
    length: u32,
}

/// The packs of a row set: 32 bytes for each group, and 16 for each document that waits for a group.
#[derive(Clone, Debug)]
pub struct Packing {
    size: PackSize,
    starts: Vec<GroupStart>,
    /// For each group, the documents that waited for it, as a range of `waiting`.
    waited: Vec<Range<usize>>,
    waiting: Vec<Waited>,
    num_documents: u64,
    num_packs: u64,
    num_tokens: u64,
}

/// Puts the documents of a row set into packs, in the order of their ordinals.
#[derive(Debug)]
pub struct Packer {
    packing: Packing,
    group: Option<Group>,
}

/// The packs of a group that is being filled.
#[derive(Debug)]
struct Group {
    length: u64,
    /// The room in each pack.
    room: Vec<u64>,
    room_left: u64,
    waiting: Vec<DocumentPiece>,
}

impl Group {
    fn new(size: PackSize) -> Self {
        let packs = usize::try_from(size.group_packs).unwrap_or(usize::MAX);
        let room_left = size.length.saturating_mul(size.group_packs);
        Self { length: size.length, room: vec![size.length; packs], room_left, waiting: Vec::new() }
    }

    /// Returns the pack into which a piece goes, or lets the piece wait.
    fn put(&mut self, piece: DocumentPiece) -> Option<usize> {
        let fits = self.room.iter().enumerate().filter(|(_, room)| **room >= piece.length);
        let Some((pack, _)) = fits.min_by_key(|(_, room)| **room) else {
            self.waiting.push(piece);
            return None;
        };
        self.room[pack] -= piece.length;
        self.room_left -= piece.length;
        Some(pack)
    }

    fn is_full(&self) -> bool {
        self.room_left <= self.length * self.room.len() as u64 / ROOM_DIVISOR || self.waiting.len() >= WAITING_MAX
    }

    fn num_packs(&self) -> u64 {
        self.room.iter().filter(|room| **room < self.length).count() as u64
    }
}

/// Returns the pieces of a document from a token on.
fn pieces(document: u64, length: u64, from: u64, pack: u64) -> impl Iterator<Item = DocumentPiece> {
    let piece =
        move |start: u64| DocumentPiece { document, start, length: pack.min(length - start), is_whole: length <= pack };
    (0..).map(move |index| from + index * pack).take_while(move |start| *start < length).map(piece)
}

impl Waited {
    const IS_WHOLE: u32 = 1 << 31;

    fn from_piece(piece: DocumentPiece, pack: u64) -> Self {
        // Documents have less than 2^32 tokens, and packs at least two.
        #[expect(clippy::cast_possible_truncation, reason = "a document has less than 2^31 pieces")]
        let (number, length) = ((piece.start / pack) as u32, piece.length as u32);
        let number = if piece.is_whole { number | Self::IS_WHOLE } else { number };
        Self { document: piece.document, number, length }
    }

    fn to_piece(self, pack: u64) -> DocumentPiece {
        let Self { document, number, length } = self;
        let start = u64::from(number & !Self::IS_WHOLE) * pack;
        DocumentPiece { document, start, length: u64::from(length), is_whole: number & Self::IS_WHOLE != 0 }
    }
}

impl Packer {
    /// Begins with no documents.
    pub fn new(size: PackSize) -> Self {
        let packing = Packing {
            size,
            starts: Vec::new(),
            waited: Vec::new(),
            waiting: Vec::new(),
            num_documents: 0,
            num_packs: 0,
            num_tokens: 0,
        };
        Self { packing, group: None }
    }

    /// Adds the next document, with its number of tokens. A document without tokens is in no pack.
    pub fn add(&mut self, length: u32) {
        let (document, length) = (self.packing.num_documents, u64::from(length));
        self.packing.num_documents += 1;
        self.packing.num_tokens += length;
        for piece in pieces(document, length, 0, self.packing.size.length) {
            let end = piece.start + piece.length;
            let Self { packing, group } = self;
            group.get_or_insert_with(|| packing.begin((document, piece.start), Vec::new())).put(piece);
            let next = if end < length { (document, end) } else { (document + 1, 0) };
            while self.group.as_ref().is_some_and(Group::is_full) {
                self.end_group(next);
            }
        }
    }

    /// Ends the group, and begins the next one with the documents that wait for it. The piece after them is at `next`.
    fn end_group(&mut self, next: GroupStart) {
        let Some(group) = self.group.take() else { return };
        self.packing.num_packs += group.num_packs();
        if !group.waiting.is_empty() {
            self.group = Some(self.packing.begin(next, group.waiting));
        }
    }

    /// Ends the last group.
    pub fn finish(mut self) -> Packing {
        let end = (self.packing.num_documents, 0);
        while self.group.is_some() {
            self.end_group(end);
        }
        self.packing
    }
}

impl Packing {
    /// Begins a group with the documents that waited for it.
    fn begin(&mut self, start: GroupStart, waited: Vec<DocumentPiece>) -> Group {
        let mut group = Group::new(self.size);
        self.starts.push(start);
        let first = self.waiting.len();
        for piece in waited {
            self.waiting.push(Waited::from_piece(piece, self.size.length));
            group.put(piece);
        }
        self.waited.push(first..self.waiting.len());
        group
    }

    /// Returns the number of packs.
    pub fn num_packs(&self) -> u64 {
        self.num_packs
    }

    /// Returns the number of documents, those without tokens included.
    pub fn num_documents(&self) -> u64 {
        self.num_documents
    }

    /// Returns the share of the packs that tokens fill, from 0 to 1.
    pub fn fill(&self) -> f64 {
        let room = self.num_packs as f64 * self.size.length as f64;
        if room == 0.0 { 1.0 } else { self.num_tokens as f64 / room }
    }

    /// Returns the group of a pack, and the number of the pack in it.
    pub fn group_of(&self, pack: u64) -> (u64, u64) {
        (pack / self.size.group_packs, pack % self.size.group_packs)
    }

    /// Returns the documents whose lengths a group follows from.
    pub fn group_documents(&self, group: u64) -> Range<u64> {
        let (start, end) = self.group_range(group);
        start.0..if end.1 > 0 { end.0 + 1 } else { end.0 }
    }

    fn group_range(&self, group: u64) -> (GroupStart, GroupStart) {
        let start = |group: u64| {
            let index = usize::try_from(group).unwrap_or(usize::MAX);
            self.starts.get(index).copied().unwrap_or((self.num_documents, 0))
        };
        (start(group), start(group.saturating_add(1)))
    }

    /// Returns the packs of a group. `lengths` are those of [`Packing::group_documents`].
    pub fn group(&self, group: u64, lengths: &[u32]) -> PackedGroup {
        let (start, end) = self.group_range(group);
        let mut filled = Group::new(self.size);
        let mut packs = vec![Vec::new(); filled.room.len()];
        let mut put = |piece: DocumentPiece| {
            if let Some(pack) = filled.put(piece) {
                packs[pack].push(piece);
            }
        };
        let waited = usize::try_from(group).ok().and_then(|group| self.waited.get(group).cloned());
        waited.into_iter().flatten().for_each(|index| put(self.waiting[index].to_piece(self.size.length)));
        for (document, length) in (start.0..).zip(lengths) {
            let from = if document == start.0 { start.1 } else { 0 };
            pieces(document, u64::from(*length), from, self.size.length)
                .take_while(|piece| (document, piece.start) < end)
                .for_each(&mut put);
        }
        packs.retain(|pack| !pack.is_empty());
        PackedGroup { number: group, packs }
    }
}

/// The documents of the packs of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedGroup {
    number: u64,
    packs: Vec<Vec<DocumentPiece>>,
}

impl PackedGroup {
    /// Returns the packs.
    pub fn packs(&self) -> &[Vec<DocumentPiece>] {
        &self.packs
    }

    /// Returns the packs of an epoch of a source with this seed: documents of the same length change places, and then
    /// the documents of each pack.
    #[must_use]
    pub fn in_epoch(mut self, seed: u64, epoch: u64) -> Self {
        let key = Key::new(seed).with(epoch).with(PACKED).with(self.number);
        let mut alike: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
        for (pack, pieces) in self.packs.iter().enumerate() {
            for (index, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.is_whole) {
                alike.entry(piece.length).or_default().push((pack, index));
            }
        }
        for (length, places) in alike {
            let mut documents: Vec<DocumentPiece> =
                places.iter().map(|(pack, index)| self.packs[*pack][*index]).collect();
            shuffle(&mut documents, key.with(0).with(length));
            places.iter().zip(documents).for_each(|((pack, index), piece)| self.packs[*pack][*index] = piece);
        }
        for (pack, pieces) in (0..).zip(&mut self.packs) {
            shuffle(pieces, key.with(1).with(pack));
        }
        self
    }
}

/// Puts items in random order (Fisher and Yates; Durstenfeld, Communications of the ACM 7, 1964).
pub(crate) fn shuffle<T>(items: &mut [T], key: Key) {
    for last in (1..items.len()).rev() {
        let other = key.with(last as u64).bits() % (last as u64 + 1);
        #[expect(clippy::cast_possible_truncation, reason = "a remainder is less than its divisor")]
        items.swap(last, other as usize);
    }
}
