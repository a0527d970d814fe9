//! The client of a request.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{Extensions, HeaderMap};

use crate::edge::{Address, Peer};

/// One client, for sharing permits among clients: an address with a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    address: Address,
    /// The SHA-256 digest of the authorization header.
    authorization: Option<[u8; 32]>,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Caller {
    /// Returns the client that sent a request. A request without a connection (in tests, for example) counts as one
    /// from this host.
    pub fn of(extensions: &Extensions, headers: &HeaderMap) -> Self {
        let address = extensions.get::<Arc<Peer>>().map_or(Address::Unix, |peer| peer.address);
        let authorization = headers.get(AUTHORIZATION).map(|token| Sha256::digest(token.as_bytes()).into());
        Self { address, authorization }
    }
}
