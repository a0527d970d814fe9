//! The sources that a user named.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stoker_buckets::{Bucket, Found, ListedObject, SourceUri};
use stoker_lake::StorageOptions;
use tokio::runtime::Handle;

use super::{SourcePlace, StandardInput};
use crate::stamp::Stamp;
use crate::{Error, Result};

/// The option of the command line.
const OPTION: &str = "SOURCE";

/// The beginning of the names of environment variables with options of the store of sources.
const VARIABLES: &str = "STOKER_SOURCE_";

/// The source that is standard input.
const INPUT: &str = "-";

/// The sources of an ingest, which are all in one place.
#[derive(Debug)]
pub(crate) struct NamedSources {
    pub place: SourcePlace,
    pub sources: Vec<NamedSource>,
}

/// A source that was looked at.
#[derive(Debug)]
pub(crate) struct NamedSource {
    /// The path as the user named it, or the URI without a query.
    pub path: PathBuf,
    pub contents: SourceContents,
}

/// What a source has.
#[derive(Debug)]
pub(crate) enum SourceContents {
    /// One file.
    File(Stamp),
    /// A folder of this machine, which was not listed.
    Folder,
    /// The objects below a folder of a bucket, sorted by key.
    Objects(Vec<(String, ListedObject)>),
}

impl NamedSources {
    /// Looks at sources. Lists those in buckets. Blocks the thread, which must belong to a tokio runtime if a source is a URI.
    ///
    /// # Errors
    /// [`Error::List`] for a source that does not exist or cannot be listed; [`Error::Layout`] for one that is neither a file
    /// nor a folder; [`Error::InvalidOption`] for sources of several places, for URIs that no store has, and for options of
    /// stores without a source in one.
    pub fn open(sources: &[PathBuf], options: &StorageOptions) -> Result<Self> {
        if let [source] = sources
            && source.as_os_str() == INPUT
        {
            let source = NamedSource { path: INPUT.into(), contents: SourceContents::File(Stamp::default()) };
            return Ok(Self {
                place: SourcePlace::Input(Arc::new(StandardInput::of_process())),
                sources: vec![source],
            });
        }
        let uris: Vec<Option<&str>> = sources.iter().map(|source| as_uri(source)).collect();
        if uris.iter().all(Option::is_none) {
            if !options.is_empty() {
                let reason = "the sources are on this machine, and the option is for sources in buckets";
                return Err(Error::option("--source-option", reason));
            }
            let sources = sources.iter().map(|source| NamedSource::local(source)).collect::<Result<_>>()?;
            return Ok(Self { place: SourcePlace::Local, sources });
        }
        let mut parsed = Vec::with_capacity(sources.len());
        for (source, uri) in sources.iter().zip(uris) {
            let Some(uri) = uri else {
                let reason = format!("{} is on this machine, and other sources are not", source.display());
                return Err(Error::option(OPTION, format!("{reason}: write them one after the other")));
            };
            parsed.push(SourceUri::parse(uri).map_err(|error| invalid(source, &error))?);
        }
        Handle::current().block_on(Self::in_bucket(sources, &parsed, options))
    }

    async fn in_bucket(sources: &[PathBuf], uris: &[SourceUri], options: &StorageOptions) -> Result<Self> {
        let first = sources.first().map_or(Path::new(""), PathBuf::as_path);
        let options = options.clone().with_env_of(VARIABLES).with_env();
        let bucket = Bucket::open(uris, &options).await.map_err(|error| failed(first, error))?;
        let mut found = Vec::with_capacity(sources.len());
        for (source, uri) in sources.iter().zip(uris) {
            let path =
                PathBuf::from(if uri.key.is_empty() { uri.root.clone() } else { format!("{}/{}", uri.root, uri.key) });
            let contents = match bucket.find(uri).await.map_err(|error| failed(source, error))? {
                Found::File(object) => SourceContents::File(Stamp::of_object(&object)),
                Found::Folder(objects) => SourceContents::Objects(objects),
            };
            found.push(NamedSource { path, contents });
        }
        Ok(Self { place: SourcePlace::Bucket(bucket), sources: found })
    }
}

impl NamedSource {
    fn local(path: &Path) -> Result<Self> {
        let status = path.metadata().map_err(|source| Error::list(path, source))?;
        if !status.is_dir() && !status.is_file() {
            let reason = "a source should be a file or a folder".to_string();
            return Err(Error::Layout { path: path.to_path_buf(), reason });
        }
        let contents = if status.is_dir() { SourceContents::Folder } else { SourceContents::File(Stamp::of(&status)) };
        Ok(Self { path: path.to_path_buf(), contents })
    }

    pub fn is_folder(&self) -> bool {
        !matches!(self.contents, SourceContents::File(_))
    }
}

/// Returns a source as messages show it: a URI without its query, which may be a signature.
pub(crate) fn shown(source: &Path) -> PathBuf {
    match as_uri(source) {
        Some(uri) => stoker_buckets::without_secrets(uri).into(),
        None => source.to_path_buf(),
    }
}

/// Returns the URI that a source is; `None` for paths of this machine.
fn as_uri(source: &Path) -> Option<&str> {
    source.to_str().filter(|text| SourceUri::is_uri(text) && !source.exists())
}

fn invalid(source: &Path, error: &stoker_buckets::Error) -> Error {
    Error::option(OPTION, format!("{}: {error}", shown(source).display()))
}

fn failed(source: &Path, error: stoker_buckets::Error) -> Error {
    match error {
        stoker_buckets::Error::Invalid { .. } => invalid(source, &error),
        error => Error::list(&shown(source), error.into()),
    }
}
