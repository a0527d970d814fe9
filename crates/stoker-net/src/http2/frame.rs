//! HTTP/2 frames: <https://www.rfc-editor.org/rfc/rfc9113#name-frame-format>.

use bytes::{BufMut, BytesMut};

/// The bytes that a client sends first on a connection.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The size of a frame's head, which precedes its payload.
pub const HEAD_BYTES: usize = 9;
/// The id of the stream with the only request; id zero is the connection itself.
pub(super) const STREAM: u32 = 1;
/// The largest payload that every peer accepts.
pub(super) const PAYLOAD_BYTES_DEFAULT: usize = 16 << 10;
/// The window of every peer before its settings change it.
pub(super) const WINDOW_BYTES_DEFAULT: u32 = (1 << 16) - 1;
/// The largest window, and the mask of a 31-bit number.
pub(super) const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// The flag of SETTINGS and PING frames that answer one.
pub(super) const ACK: u8 = 0x1;
/// The flag of the last DATA or HEADERS frame of a stream.
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
/// The flag of DATA and HEADERS frames whose payload has padding.
pub const PADDED: u8 = 0x8;
/// The flag of HEADERS frames that begin with a priority.
pub const WITH_PRIORITY: u8 = 0x20;

/// The identifiers of settings.
pub(super) mod setting {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of the body.
    Data,
    /// The headers or the trailers, or their beginning.
    Headers,
    /// The priority of a stream; deprecated, and ignored.
    Priority,
    /// The end of a stream before its time (RST_STREAM).
    Reset,
    /// Settings of the sender, or the acknowledgement of settings.
    Settings,
    /// A request that the server makes by itself; this client refuses it.
    PushPromise,
    /// A ping, or the answer to one.
    Ping,
    /// The announcement that the connection will be closed.
    GoAway,
    /// More bytes that the receiver may send.
    WindowUpdate,
    /// The rest of headers or trailers.
    Continuation,
    /// A type of an extension. Such frames are ignored.
    Unknown,
}

impl Kind {
    const NUMBERED: [Kind; 10] = [
        Kind::Data,
        Kind::Headers,
        Kind::Priority,
        Kind::Reset,
        Kind::Settings,
        Kind::PushPromise,
        Kind::Ping,
        Kind::GoAway,
        Kind::WindowUpdate,
        Kind::Continuation,
    ];
}

/// A frame without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The size of the payload in bytes.
    pub length: usize,
    /// The type of the frame.
    pub kind: Kind,
    /// The flags, whose meaning depends on the type.
    pub flags: u8,
    /// The id of the stream; 0 for the connection itself.
    pub stream: u32,
}

impl FrameHead {
    /// Parses the 9 bytes before a payload.
    pub fn parse(bytes: [u8; HEAD_BYTES]) -> Self {
        let [length_0, length_1, length_2, kind, flags, stream @ ..] = bytes;
        Self {
            length: u32::from_be_bytes([0, length_0, length_1, length_2]) as usize,
            kind: Kind::NUMBERED.get(kind as usize).copied().unwrap_or(Kind::Unknown),
            flags,
            // The highest bit is reserved.
            stream: u32::from_be_bytes(stream) & WINDOW_BYTES_MAX,
        }
    }

    /// Returns whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame. Its payload must be shorter than 2^24 bytes.
pub(super) fn put_frame(out: &mut BytesMut, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    out.reserve(HEAD_BYTES + payload.len());
    out.put_uint(payload.len() as u64, 3);
    out.put_u8(kind as u8);
    out.put_u8(flags);
    out.put_u32(stream);
    out.put_slice(payload);
}
