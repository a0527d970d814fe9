//! A rate limit for the frames that a client sends, so that a flood of them ends its connection.
//!
//! hyper and h2 respond to each frame or drop it; a client that sends nothing but PING, PRIORITY, SETTINGS,
//! WINDOW_UPDATE, RST_STREAM or empty DATA costs them processor time without end. So every frame takes a token, except
//! DATA of 256 bytes or more. A client earns tokens with time, and with the bytes that the server sends to it, because
//! clients acknowledge those with frames.

use std::time::Duration;

use stoker_net::http2::frame::{FrameHead, HEAD_BYTES, Kind, PREFACE};
use stoker_types::{Moment, to_millis};

/// The maximum number of tokens, and that of a new connection: more than a client with 128 requests and small windows
/// needs.
const TOKENS_MAX: u64 = 10_000;
/// The time that earns one token: 500 tokens in a second.
const MILLIS_PER_TOKEN: u64 = 2;
/// The sent bytes that earn one token. A client that acknowledges frames of 16 KiB one by one, both for the stream and
/// for the connection, spends an eighth of what it earns.
const BYTES_PER_TOKEN: u64 = 1 << 10;
/// DATA frames of at least this payload take no token.
const DATA_BYTES_MIN: usize = 256;

/// Parses the frame heads that a client sends, from the first byte of a connection on, and counts tokens.
pub(crate) struct FrameMeter {
    /// The number of bytes before the next frame head.
    skip: usize,
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    tokens: u64,
    /// The time up to which tokens were credited.
    counted_until: Moment,
    /// The sent bytes for which no token was credited yet.
    sent_bytes: u64,
}

impl FrameMeter {
    pub fn new(now: Moment) -> Self {
        let (skip, head) = (PREFACE.len(), [0; HEAD_BYTES]);
        Self { skip, head, head_bytes: 0, tokens: TOKENS_MAX, counted_until: now, sent_bytes: 0 }
    }

    /// Records bytes that were sent to the client.
    pub fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }

    /// Records bytes that the client sent. Returns `false` if they are a flood.
    #[must_use]
    pub fn received(&mut self, mut bytes: &[u8], now: Moment) -> bool {
        self.earn(now);
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD_BYTES - self.head_bytes).min(bytes.len());
            self.head[self.head_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.head_bytes += taken;
            bytes = &bytes[taken..];
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                let head = FrameHead::parse(self.head);
                self.skip = head.length;
                if head.kind == Kind::Data && head.length >= DATA_BYTES_MIN {
                    continue;
                }
                match self.tokens.checked_sub(1) {
                    Some(left) => self.tokens = left,
                    None => return false,
                }
            }
        }
        true
    }

    fn earn(&mut self, now: Moment) {
        let earned = to_millis(now - self.counted_until) / MILLIS_PER_TOKEN;
        self.counted_until += Duration::from_millis(earned * MILLIS_PER_TOKEN);
        let sent = self.sent_bytes / BYTES_PER_TOKEN;
        self.sent_bytes %= BYTES_PER_TOKEN;
        self.tokens = (self.tokens + earned + sent).min(TOKENS_MAX);
    }
}

#[cfg(test)]
mod tests;
