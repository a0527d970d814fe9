//! The names of members: the key of a sample, and the field.

/// The column of the keys.
pub(super) const KEY: &str = "__key__";
/// The most bytes of a name, as on Linux.
const NAME_BYTES_MAX: usize = 4096;

/// What the name of a member says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MemberName<'a> {
    /// A field of a sample.
    Field {
        /// The path up to the first dot of the base name.
        key: &'a [u8],
        /// What follows the dot, in small letters.
        field: String,
    },
    /// Nothing that belongs to a sample.
    Skipped,
    /// A name that cannot be, of a member of the sample `key`.
    Bad { key: &'a [u8], reason: &'static str },
}

/// Splits a name as the library `webdataset` does. It takes no part in samples if the base name begins with a dot, as in
/// `._a.jpg` of macOS, or if the first folder, or the name, is like `__meta__`.
pub(super) fn parse(name: &[u8]) -> MemberName<'_> {
    let base_start = name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let base = name.get(base_start..).unwrap_or_default();
    let dot = base.iter().position(|byte| *byte == b'.');
    let key = name.get(..base_start + dot.unwrap_or(base.len())).unwrap_or(name);
    let bad = |reason| MemberName::Bad { key, reason };
    if name.len() > NAME_BYTES_MAX {
        return bad("the name has more than 4096 bytes");
    }
    if name.starts_with(b"/") {
        return bad("the path is absolute");
    }
    let mut folders = name.split(|byte| *byte == b'/');
    if folders.clone().any(|folder| folder == b"..") {
        return bad("the path has the folder ..");
    }
    let top = folders.next().unwrap_or_default();
    if (top.len() >= 4 && top.starts_with(b"__") && top.ends_with(b"__")) || base.starts_with(b".") {
        return MemberName::Skipped;
    }
    if name.contains(&0) {
        return bad("the name has a zero byte");
    }
    let Ok(text) = std::str::from_utf8(name) else { return bad("the name is not UTF-8") };
    match text.get(key.len() + 1..).map(str::to_lowercase) {
        Some(field) if field == KEY => bad("the field has the name of the keys"),
        Some(field) if !field.is_empty() => MemberName::Field { key, field },
        _ => bad("the name has no ending, which would be the name of its field"),
    }
}
