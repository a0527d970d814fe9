//! Finds the files that may be libavcodec.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::layout::MAJORS;

/// A file to load, or a name that the system's loader looks up; or a place without one, and the reason.
pub(crate) type Candidate = Result<OsString, (String, String)>;

/// Returns the candidates of a folder or file, then those of the next one, then the system's names, the newest version
/// first. Lists each folder once.
pub(crate) fn candidates(search: &[PathBuf]) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = search.iter().flat_map(|place| at(place)).collect();
    found.extend(MAJORS.rev().map(|major| Ok(system_name(major))));
    found
}

fn at(place: &Path) -> Vec<Candidate> {
    if !place.is_dir() {
        return vec![Ok(place.as_os_str().to_owned())];
    }
    let none = |reason: String| vec![Err((place.display().to_string(), reason))];
    let entries = match place.read_dir() {
        Ok(entries) => entries,
        Err(error) => return none(error.to_string()),
    };
    let mut files: Vec<(u32, PathBuf)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((major(entry.file_name().to_str()?)?, entry.path())))
        .collect();
    files.sort_by(|one, other| other.cmp(one));
    if files.is_empty() {
        return none("has no libavcodec".to_string());
    }
    files.into_iter().map(|(_, file)| Ok(file.into_os_string())).collect()
}

/// Returns the major version in a file name such as `libavcodec.so.59`, `libavcodec-5e6b81c2.so.62.28.102`,
/// `libavcodec.62.28.102.dylib` or `avcodec-62.dll`; 0 where the name has none.
pub(crate) fn major(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("lib").unwrap_or(name).strip_prefix("avcodec")?;
    let (before, after) = if let Some((before, after)) = rest.split_once(".so") {
        (before, after)
    } else {
        let before = rest.strip_suffix(".dylib").or_else(|| rest.strip_suffix(".dll"))?;
        (before, before)
    };
    let is_name = before.is_empty() || before.starts_with(['-', '.']);
    let number = after.trim_start_matches(['.', '-']).split(['.', '-']).next().unwrap_or_default();
    is_name.then(|| number.parse().unwrap_or(0))
}

fn system_name(major: u32) -> OsString {
    if cfg!(target_os = "macos") {
        format!("libavcodec.{major}.dylib").into()
    } else if cfg!(windows) {
        format!("avcodec-{major}.dll").into()
    } else {
        format!("libavcodec.so.{major}").into()
    }
}
