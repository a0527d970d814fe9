//! Basic authentication: drivers that know only a user and a password send a token as the password.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Some drivers leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the token that a basic authorization header has as its password; `None` for other headers. The name of the
/// user is not used: a token names its principal.
pub fn token_of(authorization: &str) -> Option<String> {
    let (scheme, encoded) = authorization.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(encoded.trim()).ok()?).ok()?;
    let (_, password) = decoded.split_once(':')?;
    Some(password.to_string())
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;

    #[test]
    fn the_password_is_the_token() {
        let encoded = |pair: &str| format!("Basic {}", BASE64_STANDARD.encode(pair));
        assert_eq!(token_of(&encoded("anna:a:secret")), Some("a:secret".into()));
        assert_eq!(token_of(&encoded(":secret").replace("Basic", "basic")), Some("secret".into()));
        let padded = encoded("anna:secret");
        assert!(padded.ends_with('='));
        assert_eq!(token_of(padded.trim_end_matches('=')), token_of(&padded));
        for other in ["Bearer secret", "Basic", "Basic ???", &encoded("anna"), ""] {
            assert_eq!(token_of(other), None, "{other:?}");
        }
    }
}
