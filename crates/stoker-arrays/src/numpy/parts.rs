//! Which files are columns, and which are rows after one another.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::npz::npz_blocks;
use super::open::npy_block;
use crate::array_rows::{ArrayParts, ArrayReader};
use crate::{Error, Result};
use stoker_files::Folder;
use stoker_files::file_names::{base, ending, without_ending};

/// The column of files whose names have digits only, and that lie in no folder.
const NO_NAME: &str = "array";

/// Files whose rows lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NumpyPart {
    /// The columns, each with its file.
    Npy(Vec<NpyColumn>),
    /// A file with all columns.
    Npz(String),
}

/// A column, and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NpyColumn {
    pub column: String,
    pub file: String,
}

/// Parts whose rows come after one another.
#[derive(Debug)]
pub(super) struct NumpyParts {
    folder: Arc<dyn Folder>,
    parts: Vec<NumpyPart>,
    names: Vec<String>,
}

impl NumpyParts {
    /// Decides which files are columns. The name of a part is that of its first file.
    ///
    /// # Errors
    /// [`Error::Malformed`] for names that do not tell, with what to do; [`Error::Column`] for two files of one column.
    pub fn try_new(folder: Arc<dyn Folder>, files: Vec<String>) -> Result<Self> {
        let parts = parts(files)?;
        let name = |part: &NumpyPart| match part {
            NumpyPart::Npy(columns) => columns.first().map(|column| column.file.clone()).unwrap_or_default(),
            NumpyPart::Npz(file) => file.clone(),
        };
        Ok(Self { folder, names: parts.iter().map(name).collect(), parts })
    }
}

impl ArrayParts for NumpyParts {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn open(&self, part: usize) -> Result<ArrayReader> {
        let folder = self.folder.as_ref();
        match self.parts.get(part) {
            Some(NumpyPart::Npy(columns)) => {
                let blocks: Result<Vec<_>> = columns.iter().map(|column| npy_block(folder, column)).collect();
                ArrayReader::try_new(columns.first().map_or("", |column| &column.file), blocks?)
            }
            Some(NumpyPart::Npz(file)) => ArrayReader::try_new(file, npz_blocks(folder, file)?),
            None => Err(Error::malformed("the folder", format!("it has no part {part} of .npy or .npz files"))),
        }
    }
}

/// Returns the parts of files that are sorted by name.
pub(super) fn parts(files: Vec<String>) -> Result<Vec<NumpyPart>> {
    let (npz, npy): (Vec<String>, Vec<String>) =
        files.into_iter().partition(|file| ending(file).is_some_and(|ending| ending == "npz"));
    match (npy.first(), npz.first()) {
        (Some(npy), Some(npz)) => {
            let reason = format!("both .npy and .npz files are here, such as {npz}; ingest them on their own");
            Err(Error::malformed(npy, reason))
        }
        (None, _) => Ok(npz.into_iter().map(NumpyPart::Npz).collect()),
        (Some(_), None) => npy_parts(&npy),
    }
}

fn npy_parts(files: &[String]) -> Result<Vec<NumpyPart>> {
    let (mut plain, mut numbered): (Vec<NpyColumn>, BTreeMap<&str, Vec<Numbered<'_>>>) = Default::default();
    for file in files {
        match Numbered::of(file) {
            Some(found) => numbered.entry(found.prefix).or_default().push(found),
            None => plain.push(NpyColumn { column: base(without_ending(file)).into(), file: file.clone() }),
        }
    }
    if let (Some(one), Some(other)) = (plain.first(), numbered.values().flatten().next()) {
        let reason = format!(
            "it has no number, and {} has one: files could be columns side by side, or rows after one another; rename the \
             files so that all have numbers behind _ or none has, or ingest them on their own",
            other.file
        );
        return Err(Error::malformed(&one.file, reason));
    }
    if numbered.is_empty() {
        check_columns(&plain)?;
        return Ok(vec![NumpyPart::Npy(plain)]);
    }
    numbered_parts(numbered)
}

/// A file with a number in its name.
struct Numbered<'a> {
    file: &'a str,
    /// The path before the number, and before its `_` or `-`.
    prefix: &'a str,
    /// The number without zeros before it.
    digits: &'a str,
}

impl<'a> Numbered<'a> {
    fn of(file: &'a str) -> Option<Self> {
        let stem = without_ending(file);
        let before = stem.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = stem.get(before.len()..).filter(|digits| !digits.is_empty())?.trim_start_matches('0');
        let is_number_only = before.is_empty() || before.ends_with('/');
        let prefix = before.strip_suffix(['_', '-']).or(is_number_only.then_some(before))?;
        Some(Self { file, prefix, digits })
    }

    /// Returns what sorts numbers by their value.
    fn order(&self) -> (usize, &'a str) {
        (self.digits.len(), self.digits)
    }

    fn column(&self) -> String {
        let name = base(self.prefix.trim_end_matches('/'));
        if name.is_empty() { NO_NAME.into() } else { name.into() }
    }
}

/// Returns a part for each number.
fn numbered_parts(mut numbered: BTreeMap<&str, Vec<Numbered<'_>>>) -> Result<Vec<NumpyPart>> {
    numbered.values_mut().for_each(|files| files.sort_by_key(|file| (file.order(), file.file)));
    let mut parts: Vec<Vec<NpyColumn>> = Vec::new();
    let mut first: Option<&[Numbered<'_>]> = None;
    for files in numbered.values().map(Vec::as_slice) {
        if let Some([one, other]) = files.windows(2).find(|pair| matches!(pair, [a, b] if a.order() == b.order())) {
            return Err(Error::malformed(
                other.file,
                format!("it has the same number as {}; rename one of them", one.file),
            ));
        }
        let first = *first.get_or_insert(files);
        let other = files.iter().zip(first).find(|(file, first)| file.order() != first.order()).map(|(file, _)| file);
        let longer = if files.len() > first.len() { files } else { first };
        let other = other.or_else(|| longer.get(files.len().min(first.len())));
        if let Some(other) = other {
            let columns: Vec<String> =
                [first, files].iter().filter_map(|files| Some(files.first()?.column())).collect();
            let reason = format!(
                "the files of columns {} have different numbers, so that rows cannot lie side by side; ingest each column on \
                 its own, or add the files that are missing",
                columns.join(" and ")
            );
            return Err(Error::malformed(other.file, reason));
        }
        parts.resize_with(files.len(), Vec::new);
        for (part, file) in parts.iter_mut().zip(files) {
            part.push(NpyColumn { column: file.column(), file: file.file.into() });
        }
    }
    if let Some(part) = parts.first() {
        check_columns(part)?;
    }
    Ok(parts.into_iter().map(NumpyPart::Npy).collect())
}

/// Checks that no two files are one column.
fn check_columns(columns: &[NpyColumn]) -> Result<()> {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for NpyColumn { column, file } in columns {
        if let Some(other) = known.insert(column, file) {
            let reason =
                format!("{other} has this column, too; ingest each folder on its own, or rename one of the files");
            return Err(Error::Column { file: file.clone(), column: column.clone(), reason });
        }
    }
    Ok(())
}
