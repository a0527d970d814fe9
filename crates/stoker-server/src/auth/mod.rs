//! Authentication (the principal of a request) and authorization (what its role allows).
//!
//! ```text
//! request ─► Authenticator ─► Principal (name, role) ─► role_of_method, the role of each action
//!               ▲
//!          TokenSet ◄── files, read again when they change
//!          ClientCertificate ◄── TLS
//! ```

mod authenticator;
mod certificate;
mod permission;
mod token_set;

pub(crate) use authenticator::Authenticator;
pub(crate) use certificate::ClientCertificate;
pub(crate) use permission::{check_role, role_of_method};
