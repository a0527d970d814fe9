//! Groups of consecutive files.

use std::sync::Arc;

/// The most files of a group, and the most bytes, unless one file alone has more.
pub(super) const GROUP_FILES_MAX: usize = 512;
pub(super) const GROUP_BYTES_MAX: u64 = 64 << 20;

/// A file that is a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MediaFile {
    pub name: String,
    /// The size when the folder was listed.
    pub bytes: u64,
}

/// Splits files into groups. The groups depend on nothing but the names and the sizes.
pub(super) fn groups(files: Vec<MediaFile>) -> Vec<Arc<[MediaFile]>> {
    let (mut groups, mut group, mut bytes) = (Vec::new(), Vec::new(), 0u64);
    for file in files {
        let more = bytes.saturating_add(file.bytes);
        if !group.is_empty() && (group.len() >= GROUP_FILES_MAX || more > GROUP_BYTES_MAX) {
            groups.push(std::mem::take(&mut group).into());
            bytes = 0;
        }
        bytes = bytes.saturating_add(file.bytes);
        group.push(file);
    }
    if !group.is_empty() {
        groups.push(group.into());
    }
    groups
}
