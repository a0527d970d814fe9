//! The files that a table contains. Each ingest writes a list of its files with their digests before its commit.
//!
//! ```text
//! _stoker/ingest/files/<table>/<run>.files.json   FileList: name, path, length, mtime and digest of each file
//! _stoker/ingest/files/<table>/<run>.json         ListHead: the commit that added the rows of these files
//! ```
//!
//! A list is valid if the history of the table includes the commit of its run. A list without a commit means nothing.
//! Every commit has a list, except those of versions of Stoker that kept none.

use std::collections::{HashMap, HashSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stoker_lake::{Objects, Table};
use stoker_types::{Digest, ErrorKind, MAIN_BRANCH, SnapshotRef, TableName};

use crate::source_file::SourceFile;
use crate::stamp::{Stamp, StampError};
use crate::{Error, Result};

/// The most lists that are read at the same time.
const LISTS_IN_FLIGHT: usize = 16;

/// Returns the version at which a branch began; `None` for the main branch.
///
/// # Errors
/// [`Error::NoFileList`] if that version was cleaned up; errors of the lake.
async fn origin(table: &Table) -> Result<Option<Table>> {
    let Some(branch) = table.name().branch() else { return Ok(None) };
    let branches = table.branches().await?;
    let Some(info) = branches.into_iter().find(|info| info.name == branch) else { return Ok(None) };
    let parent = table.name().with_branch(info.parent_branch.as_deref().unwrap_or(MAIN_BRANCH));
    let parent = parent.map_err(|source| Error::internal("finding the table of a branch", source))?;
    match table.lake().table(&parent, &SnapshotRef::Version(info.parent_version)).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let version = "a version that was cleaned up".to_string();
            Err(Error::NoFileList { table: table.name().to_string(), version })
        }
        opened => Ok(Some(opened?)),
    }
}

/// The ingest to which a list belongs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ListHead {
    /// The key of the commit.
    pub run: String,
    /// A version of the table before the commit.
    pub since_version: u64,
    /// The version that was committed; `None` until it is known.
    pub version: Option<u64>,
    pub rows: u64,
    /// Whether all earlier ingests of the table kept lists, too.
    pub is_complete: bool,
}

/// The files of an ingest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FileList {
    /// The absolute folder of the files that have no path of their own.
    root: String,
    files: Vec<ListedFile>,
}

/// Name; absolute path or URI, unless it is the name below the root; length; modification time in nanoseconds since 1970;
/// digest of the content or, for a file that was not on this machine, of its version; that version, which is its ETag.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ListedFile(
    String,
    Option<String>,
    u64,
    u64,
    Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<String>,
);

impl ListedFile {
    /// Whether the stamp of a file, whose path or name this one has, says that it is this one.
    fn has_stamp(&self, stamp: &Stamp) -> bool {
        let is_version = match (stamp.version(), &self.5) {
            (None, None) => self.3 == stamp.modified_nanos(),
            (now, listed) => now == listed.as_deref(),
        };
        self.2 == stamp.bytes && is_version
    }
}

impl FileList {
    /// Builds the list of some files with their digests.
    pub fn new(files: &[(&SourceFile, Digest)]) -> Self {
        let root = files.first().and_then(|(file, _)| file.absolute.strip_suffix(&file.name));
        let root = root.unwrap_or_default().to_string();
        let listed = |(file, digest): &(&SourceFile, Digest)| {
            let is_below = file.absolute.strip_prefix(&root).is_some_and(|below| below == file.name);
            let path = (!is_below).then(|| file.absolute.clone());
            let version = file.stamp.version().map(str::to_string);
            ListedFile(file.name.clone(), path, file.stamp.bytes, file.stamp.modified_nanos(), *digest, version)
        };
        Self { files: files.iter().map(listed).collect(), root }
    }
}

/// The lists of a table in the lake.
pub(crate) struct FileLists {
    objects: Objects,
    folder: String,
}

impl FileLists {
    pub fn new(objects: Objects, table: &TableName) -> Self {
        Self { objects, folder: format!("ingest/files/{table}") }
    }

    /// Writes a list. The caller must do so before the commit.
    pub async fn put(&self, head: &ListHead, list: &FileList) -> Result<()> {
        self.put_json(&format!("{}/{}.files.json", self.folder, head.run), list).await?;
        self.put_head(head).await
    }

    pub async fn put_head(&self, head: &ListHead) -> Result<()> {
        self.put_json(&format!("{}/{}.json", self.folder, head.run), head).await
    }

    /// Removes all lists.
    pub async fn remove(&self) -> stoker_lake::Result<()> {
        // A head goes before its list.
        let mut paths = self.objects.list(&self.folder).await?;
        paths.sort_by_key(|path| path.ends_with(".files.json"));
        for path in paths {
            self.objects.delete(&path).await?;
        }
        Ok(())
    }

    /// Reads the lists of all files that the table contains. They are read after the table, so that the lists of all
    /// its commits exist. A branch contains the files that its table had when it began.
    ///
    /// # Errors
    /// [`Error::NoFileList`] when an earlier ingest kept no list; [`Error::Journal`] for a damaged list; errors of the
    /// lake.
    pub async fn known(&self, table: &Table) -> Result<KnownFiles> {
        let mut lists = self.known_since_branch(table).await?;
        let mut before = origin(table).await?;
        while let Some(origin_table) = before {
            let inherited = Self::new(self.objects.clone(), origin_table.name());
            lists.extend(inherited.known_since_branch(&origin_table).await?);
            before = origin(&origin_table).await?;
        }
        Ok(KnownFiles { table: table.name().clone(), lists })
    }

    /// Reads the lists of files that were added since the branch of a table began.
    async fn known_since_branch(&self, table: &Table) -> Result<Vec<KnownList>> {
        let (mut runs, mut included) = (HashSet::new(), Vec::new());
        let mut history = table.history();
        for mut head in self.heads().await? {
            runs.insert(head.run.clone());
            let version = match head.version {
                Some(version) => Some(version),
                None => history.find_commit(&head.run, head.since_version).await?,
            };
            let Some(version) = version else { continue };
            if !history.includes_commit(&head.run, version).await? {
                continue;
            }
            if head.version.replace(version).is_none() {
                // The process of that run ended between its commit and this update.
                self.put_head(&head).await?;
                self.forget_units(&head.run).await?;
            }
            included.push((head, version));
        }
        let read = stream::iter(included).map(|(head, version)| async move {
            let list = self.get_json(&format!("{}/{}.files.json", self.folder, head.run)).await?;
            Ok::<_, Error>(KnownList { version, rows: head.rows, is_complete: head.is_complete, list })
        });
        let lists: Vec<KnownList> = read.buffered(LISTS_IN_FLIGHT).try_collect().await?;
        self.check_complete(table, &lists, &runs).await?;
        Ok(lists)
    }

    /// Reads the heads of all lists.
    async fn heads(&self) -> Result<Vec<ListHead>> {
        let paths = self.objects.list(&self.folder).await?;
        let heads = paths.into_iter().filter(|path| path.ends_with(".json") && !path.ends_with(".files.json"));
        let read = stream::iter(heads).map(|path| async move { self.get_json(&path).await });
        read.buffered(LISTS_IN_FLIGHT).try_collect().await
    }

    /// Returns the newest version after whose commit all files of the table were listed; 0 when there is no such
    /// version, and `None` when there are no lists.
    pub async fn last_complete(&self, table: &Table) -> Result<Option<u64>> {
        let (mut history, mut last) = (table.history(), None);
        for head in self.heads().await? {
            let version = match head.version {
                Some(version) => Some(version),
                None => history.find_commit(&head.run, head.since_version).await?,
            };
            let listed = version.filter(|_| head.is_complete).unwrap_or(0);
            last = last.max(Some(listed));
        }
        Ok(last)
    }

    /// Deletes the journal of a committed run.
    async fn forget_units(&self, run: &str) -> Result<()> {
        let noted = self.objects.list(&format!("ingest/{run}")).await?;
        for path in noted.into_iter().filter(|path| path.ends_with(".json")) {
            self.objects.delete(&path).await?;
        }
        Ok(())
    }

    /// Refuses a table if one of its ingests kept no list.
    async fn check_complete(&self, table: &Table, lists: &[KnownList], runs: &HashSet<String>) -> Result<()> {
        let since = lists.iter().filter(|list| list.is_complete).map(|list| list.version).max().unwrap_or(0);
        let commits = table.keyed_commits(since).await?;
        let without_list = commits.found.iter().find(|(_, run)| !runs.contains(run)).map(|(version, _)| *version);
        let version = match without_list {
            Some(version) => format!("version {version}"),
            None if !commits.is_complete => "a version that was cleaned up".to_string(),
            None => return Ok(()),
        };
        Err(Error::NoFileList { table: table.name().to_string(), version })
    }

    async fn put_json(&self, path: &str, value: &impl Serialize) -> Result<()> {
        let json = serde_json::to_vec(value).map_err(|source| Error::internal("writing a list of files", source))?;
        Ok(self.objects.put(path, json.into()).await?)
    }

    async fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let damaged = |reason: String| Error::Journal { path: format!("_stoker/{path}"), reason };
        let bytes = self.objects.get(path).await?.ok_or_else(|| damaged("it does not exist any more".into()))?;
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))
    }
}

/// The valid lists of a table.
pub(crate) struct KnownFiles {
    table: TableName,
    lists: Vec<KnownList>,
}

struct KnownList {
    version: u64,
    rows: u64,
    is_complete: bool,
    list: FileList,
}

/// The files that an ingest writes.
pub(crate) struct Choice {
    /// The indices of the files to write, ascending.
    pub files: Vec<usize>,
    /// The number of files that the table already has.
    pub known: u64,
    /// The newest version that wrote one of the known files.
    pub version: u64,
    /// The number of rows of all ingests that wrote one of the known files.
    pub rows: u64,
}

impl Choice {
    /// Chooses all files.
    pub fn all(num_files: usize) -> Self {
        Self { files: (0..num_files).collect(), known: 0, version: 0, rows: 0 }
    }
}

/// The relation of a source file to the table.
enum Standing {
    New,
    /// The table contains the file; the list with this index names it.
    Known(usize),
    /// This version wrote other content under the file's path.
    Other(u64),
}

impl KnownFiles {
    /// Chooses the files that the table does not have. Computes, on all cores, the digests of files that were touched,
    /// and of files with the name and length of a known file.
    ///
    /// # Errors
    /// [`Error::OtherContent`], which names the first file whose content changed; [`Error::Changed`].
    pub fn choose(&self, files: &[SourceFile]) -> Result<Choice> {
        let (mut by_path, mut by_name) = (HashMap::<String, Vec<_>>::new(), HashMap::<&str, Vec<_>>::new());
        for (index, known) in self.lists.iter().enumerate() {
            for file in &known.list.files {
                let path = file.1.clone().unwrap_or_else(|| format!("{}{}", known.list.root, file.0));
                by_path.entry(path).or_default().push((index, file));
                by_name.entry(&file.0).or_default().push((index, file));
            }
        }
        let standing = |file: &SourceFile| {
            let same_path = by_path.get(&file.absolute).map_or(&[] as &[_], Vec::as_slice);
            let same_name = by_name.get(file.name.as_str()).map_or(&[] as &[_], Vec::as_slice);
            self.standing(file, same_path, same_name)
        };
        let standings: Vec<Standing> = files.par_iter().map(standing).collect::<Result<_>>()?;
        self.check(files, &standings)?;
        let mut lists: Vec<usize> = standings.iter().filter_map(Standing::list).collect();
        let known = lists.len() as u64;
        lists.sort_unstable();
        lists.dedup();
        Ok(Choice {
            files: (0..files.len()).filter(|index| matches!(standings[*index], Standing::New)).collect(),
            known,
            version: lists.iter().map(|list| self.lists[*list].version).max().unwrap_or(0),
            rows: lists.iter().map(|list| self.lists[*list].rows).sum(),
        })
    }

    fn standing(
        &self,
        file: &SourceFile,
        same_path: &[(usize, &ListedFile)],
        same_name: &[(usize, &ListedFile)],
    ) -> Result<Standing> {
        if let Some((list, _)) = same_path.iter().find(|(_, known)| known.has_stamp(&file.stamp)) {
            return Ok(Standing::Known(*list));
        }
        let candidates = if same_path.is_empty() { same_name } else { same_path };
        if file.stamp.version().is_some()
            && let Some((list, _)) = candidates.iter().find(|(_, known)| known.has_stamp(&file.stamp))
        {
            return Ok(Standing::Known(*list));
        }
        // Of files that were in buckets, the content is not known.
        let same_length = || candidates.iter().filter(|(_, known)| known.2 == file.stamp.bytes && known.5.is_none());
        if same_length().next().is_some() {
            match file.content_digest() {
                Ok(digest) => {
                    if let Some((list, _)) = same_length().find(|(_, known)| known.4 == digest) {
                        return Ok(Standing::Known(*list));
                    }
                }
                // The ingest reads the file later, and then reports or skips it.
                Err(StampError::Io(_)) => return Ok(Standing::New),
                Err(error) => return Err(file.error(error)),
            }
        }
        let other = same_path.iter().map(|(list, _)| self.lists[*list].version).max();
        Ok(other.map_or(Standing::New, Standing::Other))
    }

    fn check(&self, files: &[SourceFile], standings: &[Standing]) -> Result<()> {
        let mut others = files.iter().zip(standings).filter_map(|(file, standing)| match standing {
            Standing::Other(version) => Some((file, *version)),
            Standing::New | Standing::Known(_) => None,
        });
        let Some((file, version)) = others.next() else { return Ok(()) };
        let (path, table) = (file.path.clone(), self.table.to_string());
        Err(Error::OtherContent { path, table, version, num_more: others.count() })
    }
}

impl Standing {
    fn list(&self) -> Option<usize> {
        match self {
            Standing::Known(list) => Some(*list),
            Standing::New | Standing::Other(_) => None,
        }
    }
}
