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
mod principal;
mod role;
mod token_set;

pub(crate) use authenticator::Authenticator;
pub(crate) use certificate::ClientCertificate;
pub(crate) use permission::role_of_method;
pub(crate) use principal::Principal;
pub use role::Role;
