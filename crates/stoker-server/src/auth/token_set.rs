//! Sets of bearer tokens, which are stored as digests.

use chrono::{DateTime, SecondsFormat};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use stoker_net::Secret;
use stoker_session::{Error, Result};
use stoker_types::{Principal, PrincipalName, Role};
use tonic::codegen::http::HeaderValue;

use crate::toml_file;

/// The maximum number of tokens in a file: each request is compared with all of them.
const TOKENS_MAX: usize = 1_000;

/// Tokens and their principals.
#[derive(Clone, Default)]
pub(crate) struct TokenSet(Vec<Token>);

#[derive(Clone)]
struct Token {
    /// The SHA-256 digest of the authorization header. Digests are compared, so that the time of a comparison tells
    /// nothing about the token.
    digest: [u8; 32],
    principal: Principal,
    expires_unix_secs: Option<i64>,
}

/// The content of a token file (TOML).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensFile {
    tokens: Vec<NamedToken>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedToken {
    name: String,
    role: Role,
    token: Secret,
    /// The expiry time, with its offset from UTC.
    expires: Option<toml::value::Datetime>,
}

impl TokenSet {
    /// Creates the set with the token of the administrator, which never expires.
    pub fn of_admin(token: &Secret) -> Result<Self> {
        let principal = Principal { name: PrincipalName::try_new("token")?, role: Role::Admin };
        Ok(Self(vec![Token::new(token, principal, None)]))
    }

    /// Parses the text of a token file.
    ///
    /// # Errors
    /// A text that does not parse or violates a rule. The message contains no token.
    pub fn parse(text: &str) -> Result<Self> {
        let file: TokensFile = toml_file::parse(text)?;
        if file.tokens.len() > TOKENS_MAX {
            return Err(Error::invalid(format!("{} tokens; the most is {TOKENS_MAX}", file.tokens.len())));
        }
        let mut tokens: Vec<Token> = Vec::new();
        for named in file.tokens {
            let name = PrincipalName::try_new(named.name)?;
            named.token.check(&format!("token '{name}'")).map_err(stoker_wire::Error::from)?;
            let expires_unix_secs = named.expires.map(|time| unix_secs(&name, &time)).transpose()?;
            let token = Token::new(&named.token, Principal { name, role: named.role }, expires_unix_secs);
            let name = &token.principal.name;
            if tokens.iter().any(|other| other.principal.name == *name) {
                return Err(Error::invalid(format!("there are two tokens '{name}'")));
            }
            if let Some(other) = tokens.iter().find(|other| other.digest == token.digest) {
                let other = &other.principal.name;
                return Err(Error::invalid(format!("'{name}' and '{other}' have the same token")));
            }
            tokens.push(token);
        }
        Ok(Self(tokens))
    }

    /// Returns the principal of an authorization header; `None` if the set does not have its token.
    ///
    /// # Errors
    /// A token that has expired.
    pub fn principal(&self, authorization: &HeaderValue, now_unix_secs: u64) -> Result<Option<Principal>> {
        let digest: [u8; 32] = Sha256::digest(authorization.as_bytes()).into();
        // The loop compares all tokens, so that its time does not tell which one matches.
        let found = self.0.iter().fold(None, |found, token| if token.digest == digest { Some(token) } else { found });
        let Some(token) = found else { return Ok(None) };
        match token.expires_unix_secs {
            Some(end) if end <= i64::try_from(now_unix_secs).unwrap_or(i64::MAX) => {
                let end = DateTime::from_timestamp_secs(end).unwrap_or_default();
                let end = end.to_rfc3339_opts(SecondsFormat::Secs, true);
                Err(Error::Unauthenticated { reason: format!("the token '{}' expired at {end}", token.principal.name) })
            }
            _ => Ok(Some(token.principal.clone())),
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Token {
    fn new(token: &Secret, principal: Principal, expires_unix_secs: Option<i64>) -> Self {
        let digest = Sha256::digest(format!("Bearer {}", token.reveal())).into();
        Self { digest, principal, expires_unix_secs }
    }
}

/// Converts a time to seconds since 1970 UTC.
fn unix_secs(name: &PrincipalName, time: &toml::value::Datetime) -> Result<i64> {
    let parsed = DateTime::parse_from_rfc3339(&time.to_string());
    let wrong = |_| {
        Error::invalid(format!(
            "token '{name}' expires at {time}, which is not a time with a UTC offset; write 2030-01-31T00:00:00Z"
        ))
    };
    Ok(parsed.map_err(wrong)?.timestamp())
}
