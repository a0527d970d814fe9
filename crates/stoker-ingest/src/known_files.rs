//! Which files a table holds: of each ingest a list of its files with their digests, written before its commit.
//!
//! ```text
//! _stoker/ingest/files/<table>/<run>.files.json   FileList: name, path, length, time of modification and digest of each file
//! _stoker/ingest/files/<table>/<run>.json         ListHead: by which commit the rows of these files came into the table
//! ```
//!
//! A list counts when the table includes the commit of its run. So a list without a commit means nothing, and there is no
//! commit without a list, except those of versions of Stoker that kept none.

use std::collections::{HashMap, HashSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stoker_lake::{Objects, Table};
use stoker_types::{Digest, TableName};

use crate::source_file::SourceFile;
use crate::stamp::StampError;
use crate::{Error, Result};

/// Lists that are read at a time.
const LISTS_IN_FLIGHT: usize = 16;

/// Which ingest a list is of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ListHead {
    /// The key of its commit.
    pub run: String,
    /// A version of the table before the commit.
    pub since_version: u64,
    /// The version that was committed; `None` until that is known.
    pub version: Option<u64>,
    pub rows: u64,
    /// Whether all ingests before it kept lists, too.
    pub is_complete: bool,
}

/// The files of an ingest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FileList {
    /// The absolute folder of the files without a path.
    root: String,
    files: Vec<ListedFile>,
}

/// Name, absolute path if it is not the name below the root, length, nanoseconds since 1970, and digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ListedFile(String, Option<String>, u64, u64, Digest);

impl FileList {
    /// The list of files whose digests are known.
    pub fn new(files: &[(&SourceFile, Digest)]) -> Self {
        let root = files.first().and_then(|(file, _)| file.absolute.strip_suffix(&file.name));
        let root = root.unwrap_or_default().to_string();
        let listed = |(file, digest): &(&SourceFile, Digest)| {
            let is_below = file.absolute.strip_prefix(&root).is_some_and(|below| below == file.name);
            let path = (!is_below).then(|| file.absolute.clone());
            ListedFile(file.name.clone(), path, file.stamp.bytes, file.stamp.modified_nanos(), *digest)
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

    /// Writes a list; it must be there before the commit.
    pub async fn put(&self, head: &ListHead, list: &FileList) -> Result<()> {
        self.put_json(&format!("{}/{}.files.json", self.folder, head.run), list).await?;
        self.put_head(head).await
    }

    pub async fn put_head(&self, head: &ListHead) -> Result<()> {
        self.put_json(&format!("{}/{}.json", self.folder, head.run), head).await
    }

    /// What the table holds. The lists are read after the table: those of all its commits are there.
    ///
    /// # Errors
    /// [`Error::NoFileList`] when an earlier ingest kept none, [`Error::Journal`] for a damaged list, errors of the lake.
    pub async fn known(&self, table: &Table) -> Result<KnownFiles> {
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
                // Its process ended after the commit.
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
        Ok(KnownFiles { table: table.name().clone(), lists })
    }

    /// The heads of all lists.
    async fn heads(&self) -> Result<Vec<ListHead>> {
        let paths = self.objects.list(&self.folder).await?;
        let heads = paths.into_iter().filter(|path| path.ends_with(".json") && !path.ends_with(".files.json"));
        let read = stream::iter(heads).map(|path| async move { self.get_json(&path).await });
        read.buffered(LISTS_IN_FLIGHT).try_collect().await
    }

    /// The newest version after whose commit all files of the table were listed; 0 when there is none, `None` without any list.
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

    /// Deletes what the journal of a committed run holds.
    async fn forget_units(&self, run: &str) -> Result<()> {
        let noted = self.objects.list(&format!("ingest/{run}")).await?;
        for path in noted.into_iter().filter(|path| path.ends_with(".json")) {
            self.objects.delete(&path).await?;
        }
        Ok(())
    }

    /// Refuses a table of which some ingest kept no list.
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
        let bytes = self.objects.get(path).await?.ok_or_else(|| damaged("it is gone".into()))?;
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))
    }
}

/// The lists that count for a table.
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

/// Which files are to be written.
pub(crate) struct Choice {
    /// By index, ascending.
    pub files: Vec<usize>,
    /// How many files the table has.
    pub known: u64,
    /// The newest version that wrote one of these.
    pub version: u64,
    /// The rows of all ingests that wrote one of these.
    pub rows: u64,
}

impl Choice {
    /// All files.
    pub fn all(num_files: usize) -> Self {
        Self { files: (0..num_files).collect(), known: 0, version: 0, rows: 0 }
    }
}

/// What a table knows of a file.
enum Standing {
    New,
    /// It is in the list of this index.
    Known(usize),
    /// This version wrote other content under its path.
    Other(u64),
}

impl KnownFiles {
    /// The files that the table does not have. Reads files that were touched, and those that have name and length of a
    /// known one; on all cores.
    ///
    /// # Errors
    /// [`Error::OtherContent`] naming the first file that is not what it was, [`Error::Changed`].
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
        let stamp = (file.stamp.bytes, file.stamp.modified_nanos());
        if let Some((list, _)) = same_path.iter().find(|(_, known)| (known.2, known.3) == stamp) {
            return Ok(Standing::Known(*list));
        }
        let candidates = if same_path.is_empty() { same_name } else { same_path };
        let same_length = || candidates.iter().filter(|(_, known)| known.2 == file.stamp.bytes);
        if same_length().next().is_some() {
            match file.digest() {
                Ok(digest) => {
                    if let Some((list, _)) = same_length().find(|(_, known)| known.4 == digest) {
                        return Ok(Standing::Known(*list));
                    }
                }
                // Who reads it will say so, or leave it out.
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
