//! Finds the principal of a request.

use std::path::Path;

use parking_lot::RwLock;
use stoker_flight_sql::token_of;
use stoker_net::warn_of_readers;
use stoker_session::{Error, Result};
use stoker_types::{Principal, PrincipalName, Role};
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{HeaderMap, HeaderValue};

use crate::ServerConfig;
use crate::auth::ClientCertificate;
use crate::auth::token_set::TokenSet;

/// Authenticates requests by the tokens of a server and by client certificates.
pub(crate) struct Authenticator {
    /// The token of the administrator, from `token` or `token_file`.
    fixed: TokenSet,
    /// The tokens of `tokens_file`, which is read again when it changes.
    named: RwLock<TokenSet>,
    has_tokens: bool,
    /// The role of clients with a certificate, if an authority for them is configured.
    certificate_role: Option<Role>,
    /// The principal of all requests, if neither tokens nor certificates are configured.
    everybody: Option<Principal>,
}

impl Authenticator {
    /// Creates the authenticator of a server's settings. Without tokens and without an authority for client
    /// certificates, every client is an administrator.
    ///
    /// # Errors
    /// Tokens that are too short; a token file that cannot be read or parsed.
    pub fn try_new(config: &ServerConfig) -> Result<Self> {
        let fixed = config.admin_token()?.as_ref().map(TokenSet::of_admin).transpose()?.unwrap_or_default();
        let named = config.tokens_file.as_deref().map(read_tokens).transpose()?.unwrap_or_default();
        let everybody = match config.asks_who() {
            true => None,
            false => Some(Principal { name: PrincipalName::try_new("anonymous")?, role: Role::Admin }),
        };
        let (has_tokens, certificate_role) = (config.has_tokens(), config.certificate_role());
        Ok(Self { fixed, named: RwLock::new(named), has_tokens, certificate_role, everybody })
    }

    /// Returns the principal of a request: that of its token, or else that of its connection's certificate.
    ///
    /// # Errors
    /// A token that is missing, unknown or expired.
    pub fn principal(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
        now_unix_secs: u64,
    ) -> Result<Principal> {
        if let Some(everybody) = &self.everybody {
            return Ok(everybody.clone());
        }
        let given = headers.get(AUTHORIZATION).filter(|_| self.has_tokens);
        let given = match (given, certificate.zip(self.certificate_role)) {
            (Some(given), _) => given,
            (None, Some((certificate, role))) => return certificate.principal(role),
            (None, None) if self.certificate_role.is_none() => {
                return Err(Error::unauthenticated("a bearer token is needed"));
            }
            (None, None) => return Err(Error::unauthenticated("a bearer token or a client certificate is needed")),
        };
        // Drivers that know only a user and a password send a token as the password.
        let token = given.to_str().ok().and_then(token_of);
        let bearer = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok());
        let given = bearer.as_ref().unwrap_or(given);
        let fixed = self.fixed.principal(given, now_unix_secs)?;
        let named = self.named.read().principal(given, now_unix_secs)?;
        fixed.or(named).ok_or_else(|| Error::unauthenticated("the token is not valid"))
    }

    /// Uses the tokens of a changed file. If the file is not valid, logs an error and keeps the previous tokens.
    pub fn reload(&self, path: &Path, contents: &Result<Vec<u8>, String>) {
        match parse_tokens(path, contents) {
            Ok(tokens) => {
                let num_tokens = tokens.len();
                *self.named.write() = tokens;
                tracing::info!(num_tokens, "reloaded the tokens from {}", path.display());
            }
            Err(error) => tracing::error!("cannot reload the tokens, so the earlier ones stay valid: {error}"),
        }
    }
}

fn read_tokens(path: &Path) -> Result<TokenSet> {
    warn_of_readers(path);
    parse_tokens(path, &std::fs::read(path).map_err(|source| source.to_string()))
}

fn parse_tokens(path: &Path, contents: &Result<Vec<u8>, String>) -> Result<TokenSet> {
    let shown = path.display();
    let contents = contents.as_ref().map_err(|reason| Error::invalid(format!("cannot read {shown}: {reason}")))?;
    let text = std::str::from_utf8(contents);
    let text = text.map_err(|_| Error::invalid(format!("{shown} is not a file of tokens: it is not UTF-8")))?;
    TokenSet::parse(text).map_err(|error| Error::invalid(format!("{shown} is not a file of tokens: {error}")))
}
