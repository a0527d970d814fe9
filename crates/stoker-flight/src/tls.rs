//! Process-wide set-up that servers and clients need before they use TLS.

use rustls::crypto::aws_lc_rs;

/// Installs aws-lc-rs as the cryptography provider of this process, unless the program has installed one. Several
/// providers are linked in, and rustls panics where none is chosen.
pub(crate) fn choose_ciphers() {
    // An error means that a provider is installed already.
    aws_lc_rs::default_provider().install_default().ok();
}
