//! Bearer tokens, by their digests.

use chrono::{DateTime, SecondsFormat};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use stoker_types::{Principal, PrincipalName, Role};
use tonic::codegen::http::HeaderValue;

use crate::secret::Secret;
use crate::{Error, Result, toml_file};

/// Tokens of a file at most: each request is compared with all of them.
const TOKENS_MAX: usize = 1_000;

/// Tokens with the principals that they stand for.
#[derive(Clone, Default)]
pub(crate) struct TokenSet(Vec<Token>);

#[derive(Clone)]
struct Token {
    /// The digest of the authorization header; digests are compared, so that the time does not depend on the token.
    digest: [u8; 32],
    principal: Principal,
    expires_unix_secs: Option<i64>,
}

/// A file of tokens (TOML).
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
    /// A time with its offset from UTC.
    expires: Option<toml::value::Datetime>,
}

impl TokenSet {
    /// The token of the administrator, without an end.
    pub fn of_admin(token: &Secret) -> Result<Self> {
        let principal = Principal { name: PrincipalName::try_new("token")?, role: Role::Admin };
        Ok(Self(vec![Token::new(token, principal, None)]))
    }

    /// The tokens in the text of a file.
    ///
    /// # Errors
    /// A text that is no such file, or breaks a rule; the message has no token.
    pub fn parse(text: &str) -> Result<Self> {
        let file: TokensFile = toml_file::parse(text)?;
        if file.tokens.len() > TOKENS_MAX {
            return Err(Error::invalid(format!("{} tokens; the most is {TOKENS_MAX}", file.tokens.len())));
        }
        let mut tokens: Vec<Token> = Vec::new();
        for named in file.tokens {
            let name = PrincipalName::try_new(named.name)?;
            named.token.check(&format!("token '{name}'"))?;
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

    /// The principal of an authorization header, if it carries one of the tokens.
    ///
    /// # Errors
    /// A token that has expired.
    pub fn principal(&self, authorization: &HeaderValue, now_unix_secs: u64) -> Result<Option<Principal>> {
        let digest: [u8; 32] = Sha256::digest(authorization.as_bytes()).into();
        // All of them are looked at, whichever fits.
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

/// A time in seconds since 1970 UTC.
fn unix_secs(name: &PrincipalName, time: &toml::value::Datetime) -> Result<i64> {
    let parsed = DateTime::parse_from_rfc3339(&time.to_string());
    let wrong = |_| {
        Error::invalid(format!(
            "token '{name}' expires at {time}, which is no time with an offset; write 2030-01-31T00:00:00Z"
        ))
    };
    Ok(parsed.map_err(wrong)?.timestamp())
}
