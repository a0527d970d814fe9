//! What servers and clients need before they speak TLS.

use rustls::crypto::aws_lc_rs;

/// Chooses the implementation of ciphers for this process, unless the program has chosen: several are linked in, and rustls
/// panics rather than take one of them.
pub(crate) fn choose_ciphers() {
    // An error means that there is a choice already.
    aws_lc_rs::default_provider().install_default().ok();
}
