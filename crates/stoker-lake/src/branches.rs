//! Branches: lines of versions beside that of a table, which share its files.
//!
//! One process at a time makes or drops a branch: the one that created the object `_stoker/branches/<table>/<branch>`, its
//! claim. It removes the claim at the end. A claim that is left over from a process that was interrupted is removed by the
//! one process that creates an object with the name of the claim and the token in it.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{FutureExt as _, TryStreamExt as _};
use lance::dataset::refs::{BranchContents, branch_contents_path};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use stoker_store::again;
use stoker_types::{BranchInfo, ErrorKind, TableName};
use uuid::Uuid;

use crate::damage::caught;
use crate::{Error, HeldVersions, LakeStore, Objects, PutOutcome, Result, Table};

/// The time after which files of a branch without a name are left over: whoever made or dropped it was interrupted.
const LEFT_OVER_AFTER: Duration = Duration::from_secs(600);

/// The folder of objects by which processes take branches that they make or drop, relative to `_stoker`:
/// `<table>/<branch>`.
const CLAIMS: &str = "branches";

/// The object by which this process took a branch.
struct Claim {
    path: String,
    token: Bytes,
}

impl LakeStore {
    /// Whether a table has the branch of a name; `true` for the main branch of any table. The folder of a branch says
    /// nothing: one that was made or dropped in part has files.
    pub(crate) async fn has_branch(&self, name: &TableName) -> Result<bool> {
        let Some(branch) = name.branch() else { return Ok(true) };
        let path = self.branch_file(name);
        let attempted = || format!("looking for branch '{branch}' of table {}", name.root());
        let find = async || match self.inner.store.inner.head(&path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(Error::storage(attempted(), source)),
        };
        again(find).await
    }

    /// Returns names of tables, each after the names of its branches. Cleaned in this order, a branch lets go of files of its
    /// table first. Branches stay as they are, and so do tables that do not exist.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn with_branches(&self, tables: Vec<TableName>) -> Result<Vec<TableName>> {
        let mut names = Vec::with_capacity(tables.len());
        for table in tables {
            if table.branch().is_none()
                && let Some(opened) = self.try_latest(&table).await?
            {
                // Another tool may have made a branch with a name that cannot be written here.
                let branches = opened.branches().await?;
                names.extend(branches.iter().filter_map(|branch| table.with_branch(&branch.name).ok()));
            }
            names.push(table);
        }
        Ok(names)
    }

    /// Makes a branch of a table that begins at a version of it: a line of versions of its own, which has the rows of that
    /// version and shares its files. Cleanups keep these files as long as the branch needs them.
    ///
    /// `forget` removes what others keep of an earlier branch of the same name. It runs before the branch exists, while no
    /// other process makes or drops it.
    ///
    /// # Errors
    /// Those of `forget`; [`Error::UnsafeStore`]; [`Error::BranchExists`]; [`Error::InvalidRequest`] for a name that cannot
    /// be that of a new branch; kind `Unavailable` if another process makes or drops the branch, or a cleanup may have
    /// removed the version meanwhile; storage errors.
    pub async fn create_branch(
        &self,
        from: &Table,
        branch: &str,
        forget: impl AsyncFnOnce(&TableName) -> Result<()>,
    ) -> Result<Table> {
        let name = from.name().with_branch(branch).map_err(|error| invalid_name(from.name(), branch, &error))?;
        if name.branch().is_none() {
            let attempted = format!("creating branch '{branch}' of table {name}");
            let reason = "the main branch is the table itself; choose another name".to_string();
            return Err(Error::InvalidRequest { attempted, reason });
        }
        let claim = self.claim_branch(&name).await?;
        let created = self.create_claimed(from, &name, branch, forget).await;
        self.release(&claim).await;
        created
    }

    async fn create_claimed(
        &self,
        from: &Table,
        name: &TableName,
        branch: &str,
        forget: impl AsyncFnOnce(&TableName) -> Result<()>,
    ) -> Result<Table> {
        let exists = || Error::BranchExists { table: name.root().to_string(), branch: branch.to_string() };
        if self.has_branch(name).await? {
            return Err(exists());
        }
        let attempted = || format!("creating branch '{branch}' of {}", from.snapshot());
        check_nested(&from.branches().await?, branch, attempted)?;
        self.remove_left_over(name).await?;
        forget(name).await?;
        let mut dataset = from.dataset().as_ref().clone();
        let params = Some(self.inner.params.clone());
        if let Err(source) = caught(dataset.create_branch(branch, from.version(), params).boxed()).await {
            return match self.has_branch(name).await {
                // Another tool made it meanwhile.
                Ok(true) => Err(exists()),
                _ => Err(Error::storage(attempted(), source)),
            };
        }
        let created = self.try_latest(name).await?.filter(|created| created.version() == from.version());
        let obstacle = match created {
            // Another tool made the same branch at the same time, of another version.
            None => Some("another process makes it, too: try again"),
            Some(_) if !self.has_branch(from.name()).await? => Some("the branch at which it begins was dropped"),
            Some(_) if !self.is_safe(from).await? => {
                Some("a cleanup runs, which may remove this version: try again when it is done")
            }
            Some(created) => return Ok(created),
        };
        self.remove_branch(name).await?;
        let source = obstacle.unwrap_or_default().into();
        Err(Error::Storage { attempted: attempted(), kind: ErrorKind::Unavailable, source })
    }

    /// Whether no cleanup removes a version that a branch has just begun at. One that began before may not know of it.
    async fn is_safe(&self, from: &Table) -> Result<bool> {
        let Some(newest) = self.try_latest(from.name()).await? else { return Ok(false) };
        if newest.version() == from.version() {
            return Ok(true);
        }
        Ok(!newest.is_gone(from.version()).await? && self.cleaning_up().await?.is_none())
    }

    /// Removes a branch with its versions, its indexes, and the files that only they name.
    ///
    /// `forget` removes what others keep of the branch. It runs when the branch is gone, also before this call, while no
    /// other process makes it again.
    ///
    /// # Errors
    /// Those of `forget`; [`Error::UnsafeStore`]; [`Error::NotFound`] for a branch that does not exist;
    /// [`Error::InvalidRequest`] for the main branch, if branches began at this one, if tags name its versions, or if
    /// streams hold versions of it and `held` refuses that; kind `Unavailable` if another process makes or drops it;
    /// storage errors, after which the call may be repeated.
    pub async fn drop_branch(
        &self,
        name: &TableName,
        held: HeldVersions,
        forget: impl AsyncFnOnce(&TableName) -> Result<()>,
    ) -> Result<()> {
        if name.branch().is_none() {
            let reason = format!("the main branch is the table itself; write DROP TABLE {name}");
            return Err(Error::InvalidRequest { attempted: format!("dropping branch 'main' of table {name}"), reason });
        }
        let claim = self.claim_branch(name).await?;
        let dropped = self.drop_claimed(name, held).await;
        // An earlier call that failed may have removed the branch, and no more.
        let is_gone = dropped.as_ref().map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true);
        let forgotten = if is_gone { forget(name).await } else { Ok(()) };
        self.release(&claim).await;
        dropped.and(forgotten)
    }

    async fn drop_claimed(&self, name: &TableName, held: HeldVersions) -> Result<()> {
        let _committing = self.inner.committing.lock().await;
        let root = self.try_latest(&name.root()).await?;
        let Some(root) = root.filter(|_| name.branch().is_some()) else { return Err(self.no_table(name).await?) };
        if !self.has_branch(name).await? {
            return Err(self.no_table(name).await?);
        }
        if held == HeldVersions::Refuse {
            self.check_not_held(name).await?;
        }
        root.check_not_needed(name).await?;
        let path = self.branch_file(name);
        let attempted = || format!("dropping {name} in {}", self.inner.place);
        let content = self.inner.store.read_one_all(&path).await;
        let content = content.map_err(|source| Error::storage(attempted(), source))?;
        self.remove_branch_name(name).await?;
        // A branch or a tag of it that another process makes now finds that its name is gone.
        if let Err(needed) = root.check_not_needed(name).await {
            let put = self.inner.store.inner.put(&path, content.into()).await;
            put.map_err(|source| Error::storage(attempted(), source))?;
            return Err(needed);
        }
        let mut holds = self.holds_of(name).await?;
        holds.retain(|hold| hold.branch.as_deref() == name.branch());
        root.delete_holds(&holds).await?;
        self.remove_all_files(name).await
    }

    /// The file that makes a branch of a folder.
    fn branch_file(&self, name: &TableName) -> Path {
        branch_contents_path(&self.root_path(name), name.branch().unwrap_or_default())
    }

    /// Removes the name of a branch, and then its files.
    async fn remove_branch(&self, name: &TableName) -> Result<()> {
        self.remove_branch_name(name).await?;
        self.remove_all_files(name).await
    }

    async fn remove_branch_name(&self, name: &TableName) -> Result<()> {
        match self.inner.store.inner.delete(&self.branch_file(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(Error::storage(format!("dropping {name} in {}", self.inner.place), source)),
        }
    }

    /// Removes the files of a branch that has no name, if they are old enough to be left over.
    async fn remove_left_over(&self, name: &TableName) -> Result<()> {
        let folder = self.table_path(name);
        let list = async || {
            let listed =
                self.inner.store.inner.list(Some(&folder)).map_ok(|meta| meta.last_modified).try_collect().await;
            listed.map_err(|source| Error::storage(format!("listing the files of {name}"), source))
        };
        let written: Vec<_> = match again(list).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            listed => listed?,
        };
        let Some(last) = written.into_iter().max() else { return Ok(()) };
        match SystemTime::now().duration_since(last.into()).is_ok_and(|age| age > self.left_over_after()) {
            true => self.remove_all_files(name).await,
            false => Err(self.busy(name)),
        }
    }

    /// Takes a branch, so that no other process makes or drops it meanwhile.
    async fn claim_branch(&self, name: &TableName) -> Result<Claim> {
        let objects = self.unlimited().objects();
        let path = format!("{CLAIMS}/{}/{}", name.root(), name.branch().unwrap_or_default());
        let token = Bytes::from(Uuid::new_v4().to_string());
        for _ in 0..2 {
            if objects.claim(&path, token.clone()).await? == PutOutcome::Created {
                return Ok(Claim { path, token });
            }
            let Some((found, entry)) = objects.get_with_entry(&path).await? else { continue };
            if found == token {
                // The answer to the request that created it was lost.
                return Ok(Claim { path, token });
            }
            if !entry.is_older_than(self.left_over_after()) || !self.remove_claim(&objects, &path, &found).await? {
                return Err(self.busy(name));
            }
        }
        Err(self.busy(name))
    }

    /// Removes a claim that is left over, unless another process removes it. Returns whether it is gone.
    ///
    /// Whoever creates the object of the claim's token may remove the claim. One that comes later, and creates that object
    /// again, finds another token in the claim.
    async fn remove_claim(&self, objects: &Objects, path: &str, token: &Bytes) -> Result<bool> {
        let removal = format!("{path}.{}", String::from_utf8_lossy(token));
        if objects.claim(&removal, Bytes::new()).await? == PutOutcome::Exists {
            // A process that was interrupted while it removed the claim has left this object.
            let entry = objects.entry(&removal).await?;
            if entry.is_some_and(|entry| entry.is_older_than(self.left_over_after())) {
                objects.delete(&removal).await?;
            }
            return Ok(false);
        }
        let is_same = objects.get(path).await?.is_some_and(|found| found == *token);
        if is_same {
            objects.delete(path).await?;
        }
        objects.delete(&removal).await?;
        Ok(is_same)
    }

    /// Removes a claim, unless another process took the branch because this one took very long.
    async fn release(&self, Claim { path, token }: &Claim) {
        let objects = self.unlimited().objects();
        let released = async {
            match objects.get(path).await? {
                Some(found) if found == *token => objects.delete(path).await,
                _ => Ok(()),
            }
        };
        if let Err(error) = released.await {
            tracing::warn!(%error, "nobody can make or drop the branch of _stoker/{path} for some minutes");
        }
    }

    /// The time after which what a process left of making or dropping a branch is taken for left over.
    fn left_over_after(&self) -> Duration {
        LEFT_OVER_AFTER.max(self.inner.commit_deadline.saturating_mul(4))
    }

    fn busy(&self, name: &TableName) -> Error {
        let source = format!(
            "another process makes or drops this branch, or was interrupted at that: try again, at the latest in {} s",
            self.left_over_after().as_secs()
        );
        let attempted = format!("changing branch {name} in {}", self.inner.place);
        Error::Storage { attempted, kind: ErrorKind::Unavailable, source: source.into() }
    }
}

/// Refuses the name of a branch in whose folder another tool made other branches, such as `dev` beside `dev/x`.
fn check_nested(branches: &[BranchInfo], branch: &str, attempted: impl Fn() -> String) -> Result<()> {
    let nested =
        branches.iter().find(|other| other.name.strip_prefix(branch).is_some_and(|rest| rest.starts_with('/')));
    match nested {
        Some(nested) => {
            let reason = format!("branch '{}' lies in the folder of that name; choose another name", nested.name);
            Err(Error::InvalidRequest { attempted: attempted(), reason })
        }
        None => Ok(()),
    }
}

impl Table {
    /// Returns all branches but the main one, by name.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn branches(&self) -> Result<Vec<BranchInfo>> {
        let attempted = || format!("listing the branches of table {}", self.name());
        let list = async || {
            let listed = self.dataset().branches().list().await;
            listed.map_err(|source| Error::storage(attempted(), source))
        };
        let info = |(name, branch): (String, BranchContents)| BranchInfo {
            name,
            parent_branch: branch.parent_branch,
            parent_version: branch.parent_version,
            created_millis: i64::try_from(branch.create_at).unwrap_or_default().saturating_mul(1_000),
        };
        let mut branches: Vec<_> = again(list).await?.into_iter().map(info).collect();
        branches.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(branches)
    }

    /// Refuses to drop a branch that tags or other branches need.
    async fn check_not_needed(&self, name: &TableName) -> Result<()> {
        let branch = name.branch().unwrap_or_default();
        let attempted = || format!("dropping branch '{branch}' of table {}", name.root());
        let refuse = |reason| Err(Error::InvalidRequest { attempted: attempted(), reason });
        let tags = self.tags_of_branches().await?.into_iter();
        let tags: Vec<String> =
            tags.filter(|(_, tagged)| tagged.branch.as_deref() == Some(branch)).map(|(tag, _)| tag).collect();
        if !tags.is_empty() {
            return refuse(format!("tags name versions of it: {}; drop them first", tags.join(", ")));
        }
        let branches = self.branches().await?;
        check_nested(&branches, branch, attempted)?;
        let children = branches.into_iter().filter(|other| other.parent_branch.as_deref() == Some(branch));
        let children: Vec<String> = children.map(|branch| branch.name).collect();
        match children.is_empty() {
            true => Ok(()),
            false => refuse(format!("branches began at it: {}; drop them first", children.join(", "))),
        }
    }
}

fn invalid_name(table: &TableName, branch: &str, error: &stoker_types::Error) -> Error {
    Error::InvalidRequest { attempted: format!("naming branch {branch:?} of table {table}"), reason: error.to_string() }
}
