//! From a client's certificate to its principal.

use rustls::pki_types::CertificateDer;
use stoker_types::{Principal, PrincipalName, Role};
use webpki::EndEntityCert;

use crate::Result;

/// The attribute type "common name", 2.5.4.3: <https://www.rfc-editor.org/rfc/rfc5280#appendix-A.1>.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];

/// Names where a certificate has none that can be used.
const UNNAMED: &str = "certificate";

/// A certificate that a client showed, and whose authority was checked. An extension of the requests of its connection.
#[derive(Clone)]
pub(crate) struct ClientCertificate(pub CertificateDer<'static>);

impl ClientCertificate {
    /// Whom the certificate stands for: its common name, else its first DNS name.
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

/// The common name in a subject: a string of fewer than 128 bytes behind its attribute type.
fn common_name(subject: &[u8]) -> Option<String> {
    let at = subject.windows(COMMON_NAME.len()).position(|window| window == COMMON_NAME)?;
    let [_, length, text @ ..] = &subject[at + COMMON_NAME.len()..] else { return None };
    let text = text.get(..usize::from(*length)).filter(|_| *length < 128)?;
    String::from_utf8(text.to_vec()).ok()
}

/// A name in the letters that names have.
fn plain(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || "_-.".contains(letter) { letter } else { '_' };
    name.chars().map(letter).collect()
}
