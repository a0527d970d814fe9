//! Names of files.

/// Returns the ending of a file's name in lower case, without the dot.
pub fn ending(name: &str) -> Option<String> {
    let (stem, ending) = base(name).rsplit_once('.')?;
    (!stem.is_empty()).then(|| ending.to_lowercase())
}

/// Returns a path without the ending of the file's name.
pub fn without_ending(name: &str) -> &str {
    match base(name).rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => name.get(..name.len() - ending.len() - 1).unwrap_or(name),
        _ => name,
    }
}

/// Returns the last part of a path.
pub fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Whether a file, or a folder above it, is hidden: its name begins with a dot.
pub fn is_hidden(name: &str) -> bool {
    name.split('/').any(|part| part.starts_with('.'))
}
