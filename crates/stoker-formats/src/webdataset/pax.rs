//! The records of extended headers of tar archives (POSIX.1-2001, pax): `LENGTH KEY=VALUE\n`, where the length counts the
//! whole record.

/// What the records say that matters here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PaxRecords {
    /// The name of the member.
    pub path: Option<Vec<u8>>,
    /// The size of the member.
    pub size: Option<u64>,
    /// Whether the member is sparse.
    pub is_sparse: bool,
}

/// Reads all records. Of two records with one key, the last one holds.
///
/// # Errors
/// What is wrong with a record.
pub(super) fn parse(mut bytes: &[u8]) -> Result<PaxRecords, String> {
    let mut records = PaxRecords::default();
    while !bytes.is_empty() {
        let (key, value, rest) = record(bytes).ok_or("its extended header has a record that is none")?;
        match key {
            b"path" => records.path = Some(value.to_vec()),
            b"size" => records.size = Some(number(value).ok_or("its extended header has a size that is none")?),
            _ => records.is_sparse |= key.starts_with(b"GNU.sparse."),
        }
        bytes = rest;
    }
    Ok(records)
}

/// Splits the first record into key, value and what follows.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let digits = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length = usize::try_from(number(bytes.get(..digits)?)?).ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let pair = record.get(digits + 1..)?.strip_suffix(b"\n")?;
    let equals = pair.iter().position(|byte| *byte == b'=')?;
    Some((pair.get(..equals)?, pair.get(equals + 1..)?, rest))
}

/// Reads decimal digits, and nothing else.
fn number(digits: &[u8]) -> Option<u64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
