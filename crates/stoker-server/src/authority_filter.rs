//! Rewrites the server names in requests over Unix sockets, so that hyper accepts them.
//!
//! gRPC's C++ library, and thus stock pyarrow, sends the percent-encoded path of the socket as the `:authority`.
//! hyper's parser allows no percent sign there, and resets the request with a protocol error before any service sees
//! it. Stoker does not use the `:authority`. So this filter overwrites the characters that hyper rejects in the bytes
//! that come from the socket, which keeps all lengths. These clients send headers without Huffman coding; Huffman-coded
//! headers could not be changed in place.

use stoker_net::http2::frame::{FrameHead, HEAD_BYTES, Kind, PADDED, PREFACE, WITH_PRIORITY};

const AUTHORITY: &[u8] = b":authority";
/// The index of `:authority` in the static table: <https://www.rfc-editor.org/rfc/rfc7541#appendix-A>.
const AUTHORITY_INDEX: u8 = 1;
/// Replaces each character that hyper rejects.
const REPLACEMENT: u8 = b'-';
/// The size of the priority fields before the headers of a HEADERS frame, in bytes.
const PRIORITY_BYTES: usize = 5;

/// Parses the bytes that a client sends, from the first byte of a connection on.
pub(crate) struct AuthorityFilter {
    /// The number of next bytes that are not part of a frame head or of headers.
    skip: usize,
    /// The bytes of a frame head that came so far, and the byte with the length of its padding.
    head: Vec<u8>,
    /// The header bytes that are left in the frame, and the padding bytes behind them.
    headers: usize,
    padding: usize,
    place: HeaderState,
}

/// The state of the header parser: what the next byte of compressed headers is
/// (<https://www.rfc-editor.org/rfc/rfc7541#section-6>).
enum HeaderState {
    /// The first byte of a field.
    Field,
    /// A later byte of an index that takes several.
    Index {
        value_follows: bool,
    },
    /// The first byte of a text's length.
    Length(Text),
    /// A later byte of a text's length.
    LongLength {
        text: Text,
        length: usize,
        shift: u32,
    },
    Text {
        text: Text,
        left: usize,
    },
}

#[derive(Clone, Copy)]
enum Text {
    /// A header's name, with the number of its bytes that matched those of `:authority`.
    Name {
        matched: usize,
    },
    Value {
        is_authority: bool,
    },
}

impl AuthorityFilter {
    pub fn new() -> Self {
        Self { skip: PREFACE.len(), head: Vec::new(), headers: 0, padding: 0, place: HeaderState::Field }
    }

    /// Parses the next bytes of the connection, and overwrites those that hyper would reject.
    pub fn filter(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let taken = if self.skip > 0 {
                let taken = self.skip.min(bytes.len());
                self.skip -= taken;
                taken
            } else if self.headers > 0 {
                let taken = self.headers.min(bytes.len());
                bytes[..taken].iter_mut().for_each(|byte| self.place.step(byte));
                self.headers -= taken;
                if self.headers == 0 {
                    self.skip = self.padding;
                }
                taken
            } else {
                self.take_head(bytes[0]);
                1
            };
            bytes = &mut bytes[taken..];
        }
    }

    fn take_head(&mut self, byte: u8) {
        self.head.push(byte);
        let Some(head) = self.head.first_chunk::<HEAD_BYTES>() else { return };
        let head = FrameHead::parse(*head);
        let is_first = head.kind == Kind::Headers;
        let is_padded = is_first && head.has(PADDED) && head.length > 0;
        if is_padded && self.head.len() == HEAD_BYTES {
            return;
        }
        if is_first {
            self.place = HeaderState::Field;
        }
        match head.kind {
            Kind::Headers | Kind::Continuation => {
                self.skip = if is_first && head.has(WITH_PRIORITY) { PRIORITY_BYTES } else { 0 };
                self.padding = if is_padded { usize::from(byte) } else { 0 };
                let others = usize::from(is_padded) + self.skip + self.padding;
                // hyper refuses a frame that is shorter than its flags require.
                self.headers = head.length.saturating_sub(others);
                if self.headers == 0 {
                    self.skip += self.padding;
                }
            }
            _ => self.skip = head.length,
        }
        self.head.clear();
    }
}

impl HeaderState {
    fn step(&mut self, byte: &mut u8) {
        *self = match *self {
            HeaderState::Field => match *byte {
                indexed @ 0x80.. => HeaderState::after_index(indexed & 0x7f, 0x7f, false),
                literal @ 0x40..0x80 => HeaderState::after_index(literal & 0x3f, 0x3f, true),
                table_size @ 0x20..0x40 => HeaderState::after_index(table_size & 0x1f, 0x1f, false),
                literal => HeaderState::after_index(literal & 0x0f, 0x0f, true),
            },
            HeaderState::Index { value_follows } if *byte & 0x80 != 0 => HeaderState::Index { value_follows },
            HeaderState::Index { value_follows: true } => HeaderState::Length(Text::Value { is_authority: false }),
            HeaderState::Index { value_follows: false } => HeaderState::Field,
            HeaderState::Length(text) => {
                let text = if *byte & 0x80 != 0 { text.coded() } else { text };
                match *byte & 0x7f {
                    0x7f => HeaderState::LongLength { text, length: 0x7f, shift: 0 },
                    length => HeaderState::text(text, length.into()),
                }
            }
            HeaderState::LongLength { text, length, shift } => {
                let more = usize::from(*byte & 0x7f).checked_shl(shift).unwrap_or(usize::MAX);
                let length = length.saturating_add(more);
                match *byte & 0x80 != 0 {
                    true => HeaderState::LongLength { text, length, shift: shift.saturating_add(7) },
                    false => HeaderState::text(text, length),
                }
            }
            HeaderState::Text { text, left } => HeaderState::text(text.step(byte), left - 1),
        };
    }

    /// Returns the state behind the first byte of a field. An `index` equal to `max` continues in further bytes.
    fn after_index(index: u8, max: u8, value_follows: bool) -> Self {
        match index {
            _ if index == max => HeaderState::Index { value_follows },
            _ if !value_follows => HeaderState::Field,
            0 => HeaderState::Length(Text::Name { matched: 0 }),
            _ => HeaderState::Length(Text::Value { is_authority: index == AUTHORITY_INDEX }),
        }
    }

    /// Returns the state with `left` bytes left of a text, or behind the text for 0.
    fn text(text: Text, left: usize) -> Self {
        match (text, left) {
            (_, 1..) => HeaderState::Text { text, left },
            (Text::Name { matched }, 0) => {
                HeaderState::Length(Text::Value { is_authority: matched == AUTHORITY.len() })
            }
            (Text::Value { .. }, 0) => HeaderState::Field,
        }
    }
}

impl Text {
    /// Returns the same text marked as Huffman-coded, so that it never counts as `:authority` and stays unchanged.
    fn coded(self) -> Self {
        match self {
            Text::Name { .. } => Text::Name { matched: AUTHORITY.len() + 1 },
            Text::Value { .. } => Text::Value { is_authority: false },
        }
    }

    fn step(self, byte: &mut u8) -> Self {
        match self {
            Text::Name { matched } if AUTHORITY.get(matched) == Some(&*byte) => Text::Name { matched: matched + 1 },
            Text::Name { .. } => Text::Name { matched: AUTHORITY.len() + 1 },
            Text::Value { is_authority } => {
                if is_authority && !byte.is_ascii_alphanumeric() && !b".-_~".contains(byte) {
                    *byte = REPLACEMENT;
                }
                self
            }
        }
    }
}
