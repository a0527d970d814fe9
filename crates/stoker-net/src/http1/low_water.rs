//! Connections that wake their reader for many bytes at once.
//!
//! By default, a reader is woken for each packet, and reads it with two system calls. The system can be told to wait
//! until more bytes have arrived (`SO_RCVLOWAT`), or the end of the connection.
#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "no library has this option of sockets; see the safety comment")
)]

use std::cmp::min;

use tokio::net::TcpStream;

/// The number of bytes for which a reader is woken, unless less are left: what stays in a processor's second-level cache
/// until the checksum is computed.
const BYTES: u64 = 128 << 10;

/// The number of bytes that must have arrived before a connection is readable. A connection begins with one byte.
#[derive(Debug)]
pub(crate) struct LowWater {
    bytes: u64,
}

impl Default for LowWater {
    fn default() -> Self {
        Self { bytes: 1 }
    }
}

impl LowWater {
    /// Has the reader woken for many bytes, or for all that are left. If the system refuses, it is woken for each
    /// packet.
    pub fn wait_for_many(&mut self, stream: &TcpStream, left: u64) {
        self.set(stream, min(left, BYTES).max(1));
    }

    /// Has the reader woken for each byte. Returns whether it was woken for more before.
    pub fn wait_for_any(&mut self, stream: &TcpStream) -> bool {
        let waited_for_many = self.bytes > 1;
        self.set(stream, 1);
        waited_for_many
    }

    fn set(&mut self, stream: &TcpStream, bytes: u64) {
        if self.bytes != bytes {
            self.bytes = bytes;
            tell(stream, bytes);
        }
    }
}

#[cfg(target_os = "linux")]
fn tell(stream: &TcpStream, bytes: u64) {
    use std::os::fd::AsRawFd;

    let Ok(bytes) = libc::c_int::try_from(bytes) else { return };
    let Ok(length) = libc::socklen_t::try_from(size_of_val(&bytes)) else { return };
    // SAFETY: the descriptor is open while `stream` is borrowed, and the pointer is to a number of this length, which
    // outlives the call.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            std::ptr::from_ref(&bytes).cast(),
            length,
        );
    }
}

/// Other systems wake readers for each packet.
#[cfg(not(target_os = "linux"))]
fn tell(_stream: &TcpStream, _bytes: u64) {}
