//! Checksums in the names of deletion files.
//!
//! The name of a deletion file is `<fragment>-<version>-<number>`. Lance chooses a random number. Stoker's number has
//! `STKD` in its upper half, by which it is recognised, and in its lower half a checksum of the name's beginning
//! (`<fragment>-<version>`) and of the content. A file that is damaged or swapped with another one does not match its
//! name.

use object_store::path::Path;
use stoker_checksum::checksum;

/// The upper half of the numbers that contain a checksum: `STKD`.
const SEALED: u64 = 0x5354_4b44;

/// The folder of a table's deletion files.
const FOLDER: &str = "_deletions";

/// Whether the name of a file contains a checksum.
pub fn is_sealed(path: &Path) -> bool {
    sealed_name(path).is_some()
}

/// Whether this content matches the checksum in the name of its file.
pub fn has_seal(path: &Path, content: &[u8]) -> bool {
    sealed_name(path).is_some_and(|(stem, number)| number == seal(stem, content))
}

/// Splits a name with a checksum: the beginning up to the number, and the number. `None` for other names.
fn sealed_name(path: &Path) -> Option<(&str, u64)> {
    let mut parts = path.as_ref().rsplit('/');
    let (name, folder) = (parts.next()?, parts.next()?);
    let (stem, number) = name.split_once('.')?.0.rsplit_once('-')?;
    let number: u64 = number.parse().ok()?;
    (folder == FOLDER && number >> 32 == SEALED).then_some((stem, number))
}

/// Returns the number for the name of a file with this content. `stem` is the beginning of the name:
/// `<fragment>-<version>`.
pub fn seal(stem: &str, content: &[u8]) -> u64 {
    SEALED << 32 | u64::from(checksum(&[stem.as_bytes(), content].concat()))
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;

    use super::{has_seal, is_sealed, seal};

    #[test]
    fn names_have_the_checksum_of_what_is_in_the_file() {
        let number = seal("3-7", b"rows");
        let path = |name: &str| Path::from(format!("lake/t.lance/_deletions/{name}"));
        let written = path(&format!("3-7-{number}.bin"));
        assert!(is_sealed(&written) && has_seal(&written, b"rows"));
        assert!(!has_seal(&written, b"sows") && !has_seal(&path(&format!("4-7-{number}.bin")), b"rows"));
        assert!(!is_sealed(&path("3-7-12345678901234567890.arrow")), "the number of another writer");
        assert!(!is_sealed(&Path::from(format!("lake/t.lance/data/3-7-{number}.bin"))), "another folder");
    }
}
