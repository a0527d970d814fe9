//! The tables of a local lake at their newest versions, and the files that tell whether these are still the newest.
//!
//! Lance opens a table by several requests, each on another thread, which together take longer than a small query. On a
//! file system, three calls on one thread tell that the version which was opened last is still the newest: the file with
//! the hint of the newest version is as it was, the manifest is the same file, and the next version has no manifest.
//! Lance looks at the same files and comes to the same version.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use arrow_schema::SchemaRef;
use lance::Dataset;
use lance_io::local::to_local_path;
use object_store::path::Path;
use parking_lot::Mutex;
use stoker_types::TableName;

/// The most tables that are kept.
const TABLES_MAX: usize = 64;

/// The file in which Lance notes the newest version.
const HINT_FILE: &str = "latest_version_hint.json";

/// The newest versions of tables, as they were opened last.
#[derive(Default)]
pub(crate) struct NewestTables(Mutex<HashMap<TableName, Newest>>);

#[derive(Clone)]
struct Newest {
    dataset: Dataset,
    schema: SchemaRef,
    signs: Signs,
}

/// What is the same as long as a version is the newest one.
#[derive(Clone)]
struct Signs {
    hint: Vec<u8>,
    manifest: PathBuf,
    /// The ETag of the manifest, as the store made it of the file's metadata.
    e_tag: String,
    /// The manifest of the next version, which does not exist.
    next: PathBuf,
}

/// What was found of a table.
pub(crate) enum Found {
    /// The newest version.
    Newest(Box<Dataset>, SchemaRef),
    /// The hint of the newest version, which must be opened.
    Hint(Option<Vec<u8>>),
}

impl NewestTables {
    /// Returns the newest version of a table if it is known, or else the hint, which is to be read before the table is
    /// opened. `folder` is the table's.
    pub async fn find(&self, name: &TableName, folder: &Path) -> Found {
        let known = self.0.lock().get(name).cloned();
        let hint = PathBuf::from(to_local_path(&folder.clone().join("_versions").join(HINT_FILE)));
        let looking = tokio::task::spawn_blocking(move || {
            let hint = fs::read(hint).ok();
            match known {
                Some(known) if known.signs.are_seen(hint.as_deref()) => {
                    Found::Newest(Box::new(known.dataset), known.schema)
                }
                _ => Found::Hint(hint),
            }
        });
        looking.await.unwrap_or(Found::Hint(None))
    }

    /// Keeps a table that was opened after the hint was read.
    pub fn put(&self, name: &TableName, folder: &Path, hint: Vec<u8>, dataset: &Dataset, schema: &SchemaRef) {
        let location = dataset.manifest_location();
        let (Some(e_tag), Some(next)) = (&location.e_tag, location.version.checked_add(1)) else { return };
        if location.path != location.naming_scheme.manifest_path(folder, location.version) {
            return;
        }
        let local = |path: &Path| PathBuf::from(to_local_path(path));
        let next = local(&location.naming_scheme.manifest_path(folder, next));
        let signs = Signs { hint, manifest: local(&location.path), e_tag: e_tag.clone(), next };
        let mut kept = self.0.lock();
        if kept.len() >= TABLES_MAX && !kept.contains_key(name) {
            kept.clear();
        }
        kept.insert(name.clone(), Newest { dataset: dataset.clone(), schema: schema.clone(), signs });
    }
}

impl Signs {
    fn are_seen(&self, hint: Option<&[u8]>) -> bool {
        let is_same = |file: io::Result<Metadata>| file.is_ok_and(|metadata| e_tag(&metadata) == self.e_tag);
        let is_missing = |file: io::Result<Metadata>| file.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        hint == Some(&self.hint) && is_same(fs::metadata(&self.manifest)) && is_missing(fs::metadata(&self.next))
    }
}

/// The ETag of a file, as the object store of the local file system makes it.
fn e_tag(metadata: &Metadata) -> String {
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{:x}-{:x}-{:x}", metadata.ino(), modified.as_micros(), metadata.len())
}
