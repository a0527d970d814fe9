//! Finds the principal of a client certificate.

use rustls::pki_types::CertificateDer;
use stoker_session::Result;
use stoker_types::{Principal, PrincipalName, Role};
use webpki::EndEntityCert;

/// The attribute type "common name", 2.5.4.3: <https://www.rfc-editor.org/rfc/rfc5280#appendix-A.1>.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];

/// The name of principals whose certificate has no name that can be used.
const UNNAMED: &str = "certificate";

/// A client certificate that its authority signed. All requests of the connection carry it as an extension.
#[derive(Clone)]
pub(crate) struct ClientCertificate(pub CertificateDer<'static>);

impl ClientCertificate {
    /// Returns the principal of the certificate. Its name is the common name of the certificate, or else its first DNS
    /// name.
    pub fn principal(&self, role: Role) -> Result<Principal> {
        let Ok(certificate) = EndEntityCert::try_from(&self.0) else { return Self::unnamed(role) };
        let first_dns_name = certificate.valid_dns_names().next().map(str::to_string);
        let names = common_name(certificate.subject()).into_iter().chain(first_dns_name);
        match names.filter_map(|name| PrincipalName::try_new(plain(&name)).ok()).next() {
            Some(name) => Ok(Principal { name, role }),
            None => Self::unnamed(role),
        }
    }

    fn unnamed(role: Role) -> Result<Principal> {
        Ok(Principal { name: PrincipalName::try_new(UNNAMED)?, role })
    }
}

/// Returns the common name in a subject: a string of fewer than 128 bytes behind its attribute type.
fn common_name(subject: &[u8]) -> Option<String> {
    let at = subject.windows(COMMON_NAME.len()).position(|window| window == COMMON_NAME)?;
    let [_, length, text @ ..] = &subject[at + COMMON_NAME.len()..] else { return None };
    let text = text.get(..usize::from(*length)).filter(|_| *length < 128)?;
    String::from_utf8(text.to_vec()).ok()
}

/// Replaces the characters that names of principals may not have by `_`.
fn plain(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || "_-.".contains(letter) { letter } else { '_' };
    name.chars().map(letter).collect()
}
