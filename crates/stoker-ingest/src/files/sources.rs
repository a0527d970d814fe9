//! Lists the files of sources.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoker_formats::FolderFile;
use stoker_lake::StorageOptions;

use super::folder::{FileListing, StampedFolder};
use crate::place::{INPUT_NAME, NamedSource, NamedSources, SourceContents, SourcePlace};
use crate::stamp::Stamp;
use crate::walk::{Rules, Walk, walk};
use crate::{Error, OnError, Result, Skipped};

/// Files and folders whose names begin so belong to other tools.
const HIDDEN: &[u8] = b".";

/// The files of sources.
pub(super) struct SourceListing {
    pub folder: Arc<StampedFolder>,
    /// Links to nothing, and files whose names are not UTF-8, if such files are skipped.
    pub skipped: Vec<Skipped>,
}

/// A source, which is a file or a folder.
struct RootedSource {
    /// The absolute path, or the URI. A link to a file keeps its own name, which tells the kind of the file.
    path: PathBuf,
    named: NamedSource,
}

/// Lists the files that are named, and all files below the folders that are named, at any depth. Hidden files and
/// lakes are ignored. Links are followed, but rows name no files through links out of their source.
///
/// # Errors
/// [`Error::List`] for a source that does not exist or cannot be listed; [`Error::Layout`] for one that is neither a file
/// nor a folder; [`Error::InvalidOption`] for a file that is named twice, and for sources in several places;
/// [`Error::Unreadable`] for a link to nothing and for a name that is not UTF-8, unless such files are skipped.
pub(super) fn list(sources: &[PathBuf], on_error: OnError, options: &StorageOptions) -> Result<SourceListing> {
    let NamedSources { place, sources } = NamedSources::open(sources, options)?;
    if let SourcePlace::Input(input) = &place {
        let file = FolderFile { name: INPUT_NAME.into(), bytes: 0 };
        let stamp = Stamp::of_input(input.version.clone());
        let files = vec![(file, FileListing { stamp, source: 0, source_length: 0 })];
        let sources = sources.into_iter().map(|source| source.path).collect();
        let folder = StampedFolder::new(place, PathBuf::new(), sources, files, BTreeMap::new());
        return Ok(SourceListing { folder: Arc::new(folder), skipped: Vec::new() });
    }
    let sources: Vec<RootedSource> =
        sources.into_iter().map(|source| RootedSource::new(&place, source)).collect::<Result<_>>()?;
    let root = root(&place, &sources);
    let (mut files, mut skipped, mut unlisted) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (index, source) in sources.iter().enumerate() {
        let found = source.files(&place, on_error, &mut skipped, &mut unlisted)?;
        let folder = if source.named.is_folder() { Some(source.path.as_path()) } else { source.path.parent() };
        let source_length = folder.map_or(0, |folder| below(&root, folder).map_or(0, |name| name.len()));
        // A name that is not the root's goes on with a slash.
        let source_length = if source_length == 0 { 0 } else { source_length + 1 };
        for (path, stamp) in found {
            let Some(name) = below(&root, &path) else {
                let reason = "its name is not UTF-8";
                match on_error {
                    OnError::Skip => skipped.push(Skipped::file(&path, reason)),
                    OnError::Fail => return Err(Error::Unreadable { path, reason: reason.into() }),
                }
                continue;
            };
            let file = FolderFile { name, bytes: stamp.bytes };
            files.push((file, FileListing { stamp, source: index, source_length }));
        }
    }
    files.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    if let Some(twice) = files.windows(2).find(|pair| pair[0].0.name == pair[1].0.name) {
        let path = root.join(&twice[0].0.name);
        return Err(Error::option("SOURCE", format!("{} is named twice", path.display())));
    }
    let sources = sources.into_iter().map(|source| source.path).collect();
    Ok(SourceListing { folder: Arc::new(StampedFolder::new(place, root, sources, files, unlisted)), skipped })
}

impl RootedSource {
    fn new(place: &SourcePlace, named: NamedSource) -> Result<Self> {
        let path = match place.is_local() {
            true => absolute(&named.path, !named.is_folder()).map_err(|source| Error::list(&named.path, source))?,
            false => named.path.clone(),
        };
        Ok(Self { path, named })
    }

    /// Returns the paths and the stamps of the files, and adds up what is no file, or belongs to a lake.
    fn files(
        &self,
        place: &SourcePlace,
        on_error: OnError,
        skipped: &mut Vec<Skipped>,
        unlisted: &mut BTreeMap<String, u64>,
    ) -> Result<Vec<(PathBuf, Stamp)>> {
        if let SourceContents::File(stamp) = &self.named.contents {
            return Ok(vec![(self.path.clone(), stamp.clone())]);
        }
        let rules = Rules { extensions: &[], hidden: HIDDEN, on_error };
        let Walk { entries, skipped: links, left_out } = walk(place, &self.path, &self.named, &rules)?;
        skipped.extend(links);
        for (what, count) in left_out {
            *unlisted.entry(what).or_default() += count;
        }
        let files = entries.into_iter().filter(|entry| !entry.is_folder);
        Ok(files.map(|entry| (entry.path, entry.stamp)).collect())
    }
}

/// Returns the absolute path of a source, without links to folders.
fn absolute(path: &Path, is_file: bool) -> io::Result<PathBuf> {
    let (Some(folder), Some(name), true) = (path.parent(), path.file_name(), is_file) else {
        return path.canonicalize();
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    Ok(folder.canonicalize()?.join(name))
}

/// Returns the deepest folder that contains all sources: the source itself if it is one folder. Nothing is above a bucket.
fn root(place: &SourcePlace, sources: &[RootedSource]) -> PathBuf {
    let is_bucket = |path: &Path| match place {
        SourcePlace::Bucket(bucket) => path == Path::new(bucket.uri()),
        SourcePlace::Local | SourcePlace::Input(_) => false,
    };
    let folder = |source: &RootedSource| match source.path.parent() {
        Some(parent) if (sources.len() > 1 || !source.named.is_folder()) && !is_bucket(&source.path) => {
            parent.to_path_buf()
        }
        _ => source.path.clone(),
    };
    let mut root = sources.first().map(folder).unwrap_or_default();
    for source in sources {
        let folder = folder(source);
        while !folder.starts_with(&root) && root.pop() {}
    }
    root
}

/// Returns the path below a folder, with `/`; `None` if it is not UTF-8.
fn below(root: &Path, path: &Path) -> Option<String> {
    Some(path.strip_prefix(root).ok()?.to_str()?.replace(std::path::MAIN_SEPARATOR, "/"))
}
