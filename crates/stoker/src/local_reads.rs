//! The way in which the streams of a connection or a server read local files.

use stoker_chunks::LocalReads;

/// Returns the way of reading that the option `direct_io` stands for.
pub fn local_reads(direct_io: bool) -> LocalReads {
    if direct_io { LocalReads::Direct } else { LocalReads::Buffered }
}
