//! A lake: a root URI that holds tables.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{FieldRef, Fields, Schema, SchemaRef};
use futures::{FutureExt, StreamExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::session::Session;
use lance_io::object_store::{ObjectStore, ObjectStoreParams, ObjectStoreRegistry, StorageOptionsAccessor};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use stoker_columns::{blob_as_binary, is_blob};
use stoker_store::again;
use stoker_store::{
    AtomicCreate, Breaker, DirectStore, StoreRequests, first_line, is_remote, normalised_uri, without_secrets,
};
use stoker_types::{ErrorKind, MAIN_BRANCH, Snapshot, SnapshotRef, TableName, TagName};

use crate::checksums::ChecksumCache;
use crate::damage::{caught, opening_error};
use crate::dense::{ColumnCache, DenseProbe};
use crate::error::interpret;
use crate::footer::Checked;
use crate::holds::Holds;
use crate::lance_stores::{checked_registry, direct_store, wrapper};
use crate::lists::ListColumn;
use crate::newest::{Found, NewestTables};
use crate::objects::FOLDER;
use crate::probes::MeasuredIndexes;
use crate::{Error, Objects, Result, StorageOptions, Table, WriteAllowance};

/// The maximum number of listings in flight at once.
const LISTINGS_AT_ONCE: usize = 16;

/// The folder of a table in which its branches have their folders.
pub(crate) const BRANCHES_FOLDER: &str = "tree";

/// The size of a lake's index cache in bytes.
const INDEX_CACHE_BYTES: usize = 256 << 20;
/// The size of a lake's cache of manifests, footers and page tables, in bytes.
const METADATA_CACHE_BYTES: usize = 256 << 20;

/// A root URI that holds tables; cheap to clone.
#[derive(Clone)]
pub struct LakeStore {
    pub(crate) inner: Arc<LakeInner>,
    /// The limit on what this handle may write beside the tables; `None` for no limit.
    allowance: Option<Arc<WriteAllowance>>,
}

pub(crate) struct LakeInner {
    pub uri: String,
    pub params: ObjectStoreParams,
    pub session: Arc<Session>,
    pub store: Arc<ObjectStore>,
    /// The store that Lance's decoder uses. It verifies the checksums of what it reads of light columns.
    pub checked_store: Arc<ObjectStore>,
    /// The store for response bodies that are read directly from their sockets; `None` where that is not possible.
    pub direct: Option<Arc<DirectStore>>,
    /// The circuit breaker that all requests to a remote store pass.
    pub breaker: Arc<Breaker>,
    pub base: Path,
    pub dense: ColumnCache<DenseProbe>,
    /// The columns of lists. A column that Lance decodes has `None`.
    pub lists: ColumnCache<Option<Arc<ListColumn>>>,
    pub checksums: ChecksumCache,
    /// The average sizes of the values of blob columns.
    pub blob_sizes: ColumnCache<Option<u64>>,
    pub checked: Checked,
    pub atomic_create: AtomicCreate,
    /// Held while a commit of this process searches for its idempotency key and commits.
    pub committing: tokio::sync::Mutex<()>,
    /// The URI and the endpoint, without credentials.
    pub place: Arc<str>,
    /// How long a write request of a commit may take, with its retries.
    pub commit_deadline: Duration,
    /// How long opening a table may take, with all attempts; `None` for local lakes.
    pub opening_deadline: Option<Duration>,
    pub holds: Holds,
    pub newest: NewestTables,
    pub measured: MeasuredIndexes,
}

impl LakeInner {
    /// Checks that the lake's store creates objects atomically. The check runs once for each [`LakeStore`] that is opened, and
    /// takes 20 requests on an atomic store. Local folders and lakes in memory need no check.
    ///
    /// # Errors
    /// [`Error::UnsafeStore`] when the store is not atomic; `PermissionDenied` when objects under `_stoker/` cannot
    /// be written; storage errors.
    pub(crate) async fn check_atomic_create(&self) -> Result<()> {
        if !is_remote(&self.uri) {
            return Ok(());
        }
        let folder = self.base.clone().join(FOLDER).join("probes");
        Ok(self.atomic_create.check(self.store.inner.as_ref(), &folder, &self.place).await?)
    }
}

impl std::fmt::Debug for LakeStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LakeStore").field(&self.inner.uri).finish()
    }
}

impl LakeStore {
    /// Opens a lake at a local path, `file://`, `s3://`, `gs://`, `az://` or `memory://`. No object is read or
    /// created yet.
    ///
    /// A `memory://` lake lives as long as its `LakeStore` values.
    ///
    /// # Errors
    /// [`Error::InvalidUri`] for other schemes, and for URIs or options that the store refuses.
    pub async fn open(uri: &str, options: &StorageOptions) -> Result<LakeStore> {
        let uri = normalised_uri(uri)?;
        let accessor = StorageOptionsAccessor::with_static_options(options.resolved());
        let breaker = Arc::new(Breaker::new(interpret));
        let mut params =
            ObjectStoreParams { storage_options_accessor: Some(Arc::new(accessor)), ..ObjectStoreParams::default() };
        let registry = checked_registry();
        params.object_store_wrapper = Some(wrapper(&uri, &breaker, &registry, &params));
        let (checked_store, base) = open_store(&registry, &uri, &params).await?;
        // Lance's default store reads local files directly; that of `registry` would read them through its wrapper.
        let store = match checked_store.is_local() {
            true => open_store(&Arc::default(), &uri, &params).await?.0,
            false => checked_store.clone(),
        };
        let session = Arc::new(Session::new(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES, registry));
        let place = match options.get("aws_endpoint") {
            Some(endpoint) if uri.starts_with("s3://") => format!("{uri} at {}", without_secrets(endpoint)).into(),
            _ => uri.as_str().into(),
        };
        let (dense, checksums, checked) = (ColumnCache::default(), ChecksumCache::default(), Checked::default());
        let committing = tokio::sync::Mutex::default();
        let direct = direct_store(&uri, &params, breaker.clone()).await;
        let opening_deadline = options.opening_deadline().filter(|_| is_remote(&uri));
        let inner = LakeInner {
            uri,
            params,
            session,
            store,
            checked_store,
            direct,
            breaker,
            base,
            dense,
            lists: ColumnCache::default(),
            checksums,
            blob_sizes: ColumnCache::default(),
            checked,
            atomic_create: AtomicCreate::new(interpret),
            committing,
            place,
            commit_deadline: options.commit_deadline(),
            opening_deadline,
            holds: Holds::default(),
            newest: NewestTables::default(),
            measured: MeasuredIndexes::default(),
        };
        Ok(LakeStore { inner: Arc::new(inner), allowance: None })
    }

    /// Makes all requests to the object store on this runtime from now on, also those of callers on other runtimes.
    /// Callers share connections, and a connection whose runtime is busy with computing would delay all of them. The
    /// first call decides.
    pub fn keep_requests_on(&self, threads: tokio::runtime::Handle) {
        self.inner.breaker.keep_requests_on(threads);
    }

    /// Returns the same lake for a client whose new objects beside the tables count against an allowance.
    #[must_use]
    pub fn within(&self, allowance: Arc<WriteAllowance>) -> LakeStore {
        LakeStore { allowance: Some(allowance), ..self.clone() }
    }

    /// Returns the same lake for writes that count against no allowance.
    #[must_use]
    pub fn unlimited(&self) -> LakeStore {
        LakeStore { allowance: None, ..self.clone() }
    }

    /// The root URI.
    pub fn uri(&self) -> &str {
        &self.inner.uri
    }

    /// The root URI and, when the options name one, the endpoint of the store, without credentials.
    pub fn place(&self) -> &str {
        &self.inner.place
    }

    /// Whether the lake is in a folder of this machine.
    pub fn is_local(&self) -> bool {
        self.inner.store.is_local()
    }

    /// The number of requests to the object store by outcome; all are 0 for a local lake.
    pub fn store_requests(&self) -> StoreRequests {
        self.inner.breaker.requests()
    }

    /// Checks that the store answers, with one HEAD request.
    ///
    /// # Errors
    /// Storage errors; kind `PermissionDenied` for a store that refuses the credentials.
    pub async fn check_reachable(&self) -> Result<()> {
        let object = self.inner.base.clone().join("_stoker").join("reachable");
        match self.inner.store.inner.head(&object).await {
            Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(Error::storage(format!("asking {}", self.inner.place), source)),
        }
    }

    /// Lists the names of all tables, sorted. Takes one listing for the lake, and one for each table.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the folder does not exist; [`Error::InvalidRequest`] when the URI is that of a table
    /// or a file; storage errors, which name the lake and its endpoint.
    pub async fn tables(&self) -> Result<Vec<TableName>> {
        let found = self.found_tables().await?;
        if found.is_empty()
            && let Some(error) = self.place_without_tables().await?.error()
        {
            return Err(error);
        }
        Ok(found)
    }

    /// Whether the lake has a table of this name.
    ///
    /// # Errors
    /// `DataCorrupt` for a damaged manifest; storage errors.
    pub async fn has_table(&self, name: &TableName) -> Result<bool> {
        Ok(self.try_latest(name).await?.is_some())
    }

    /// Lists the names of all tables, sorted; none when the lake does not exist.
    async fn found_tables(&self) -> Result<Vec<TableName>> {
        let attempted = || format!("listing the tables of {}", self.inner.place);
        let entries = self.list(&self.inner.base, attempted).await?;
        let names = entries.iter().filter_map(|entry| entry.trim_end_matches('/').strip_suffix(".lance"));
        let mut names: Vec<_> = names.filter_map(|name| TableName::try_new(name).ok()).collect();
        names.sort();
        names.dedup();
        // A table folder without a version is left over from a write that was not completed.
        let committed = futures::stream::iter(names).map(|name| async {
            let attempted = || format!("listing the versions of table {name}");
            let versions = self.list(&self.table_path(&name).join("_versions"), attempted).await?;
            Ok(versions.iter().any(|entry| entry.ends_with(".manifest")).then_some(name))
        });
        committed.buffered(LISTINGS_AT_ONCE).try_filter_map(|name| std::future::ready(Ok(name))).try_collect().await
    }

    /// Lists the entries of a folder; none when it does not exist.
    pub(crate) async fn list(&self, folder: &Path, attempted: impl Fn() -> String) -> Result<Vec<String>> {
        let list = async || {
            let listed = self.inner.store.read_dir(folder.clone()).await;
            listed.map_err(|source| Error::storage(attempted(), source))
        };
        match again(list).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Opens a table and pins it at a version.
    ///
    /// # Errors
    /// [`Error::NotFound`], which names the missing table, branch, version or tag, and those that exist; storage errors.
    pub async fn table(&self, name: &TableName, at: &SnapshotRef) -> Result<Table> {
        let Some(newest) = self.try_latest(name).await? else { return Err(self.no_table(name).await?) };
        match at {
            SnapshotRef::Latest => Ok(newest),
            SnapshotRef::Version(version) => self.at_version(&newest, *version, at).await,
            SnapshotRef::Tag(tag) => {
                let tags = newest.tags_of_branches().await?;
                let found = TagName::try_new(tag.as_str()).ok().and_then(|tag| tags.get(tag.as_str()));
                let Some(found) = found else {
                    let list = tags.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                    let hint =
                        if list.is_empty() { "; the table has no tags".to_string() } else { format!("; tags: {list}") };
                    return Err(Error::NotFound { what: format!("tag '{tag}' of table {name}"), hint });
                };
                if found.branch.as_deref() != name.branch() {
                    let (branch, root) = (found.branch.as_deref().unwrap_or(MAIN_BRANCH), name.root());
                    return Err(Error::InvalidRequest {
                        attempted: format!("opening tag '{tag}' of table {name}"),
                        reason: format!(
                            "it names a version of branch '{branch}': write {root} AT (BRANCH => '{branch}', TAG => \
                             '{tag}')"
                        ),
                    });
                }
                self.at_version(&newest, found.version, at).await
            }
        }
    }

    /// The error of a table, or of a branch, that does not exist.
    pub(crate) async fn no_table(&self, name: &TableName) -> Result<Error> {
        let root = name.root();
        if let Some(branch) = name.branch()
            && let Some(table) = self.try_latest(&root).boxed().await?
        {
            let branches = table.branches().await?;
            let list = branches.iter().take(20).map(|branch| branch.name.as_str()).collect::<Vec<_>>().join(", ");
            let hint = match list.is_empty() {
                true => "; the table has no branches".to_string(),
                false => format!("; branches: {list}"),
            };
            return Ok(Error::NotFound { what: format!("branch '{branch}' of table {root}"), hint });
        }
        let names = self.found_tables().await?;
        let list = names.iter().take(20).map(TableName::as_str).collect::<Vec<_>>().join(", ");
        let hint = match list.is_empty() {
            true => format!("; {}", self.place_without_tables().await?),
            false => format!("; tables: {list}"),
        };
        Ok(Error::NotFound { what: format!("table {root} in {}", self.inner.uri), hint })
    }

    /// Whether a cleanup of old versions removed a snapshot: its table has a newer version, but not this one.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn is_removed(&self, snapshot: &Snapshot) -> Result<bool> {
        match self.try_latest(&snapshot.table).await? {
            None => Ok(false),
            Some(newest) => newest.is_gone(snapshot.version).await,
        }
    }

    /// The immutable objects that Stoker keeps beside the tables.
    pub fn objects(&self) -> Objects {
        Objects::new(self.inner.clone(), self.allowance.clone())
    }

    pub(crate) fn table_uri(&self, name: &TableName) -> String {
        let root = format!("{}/{}.lance", self.inner.uri.trim_end_matches('/'), name.root());
        match name.branch() {
            Some(branch) => format!("{root}/{BRANCHES_FOLDER}/{branch}"),
            None => root,
        }
    }

    /// The folder of a table, or of a branch, which lies in the folder of its table.
    pub(crate) fn table_path(&self, name: &TableName) -> Path {
        let root = self.root_path(name);
        match name.branch() {
            Some(branch) => root.join(BRANCHES_FOLDER).join(branch),
            None => root,
        }
    }

    /// The folder of a table, which holds the tags and the names of all of its branches.
    pub(crate) fn root_path(&self, name: &TableName) -> Path {
        self.inner.base.clone().join(format!("{}.lance", name.root()))
    }

    /// Opens the newest version of a table, or returns `None` when there is no such table. A damaged manifest is an
    /// error of kind `DataCorrupt`.
    pub(crate) async fn try_latest(&self, name: &TableName) -> Result<Option<Table>> {
        if !self.has_branch(name).await? {
            return Ok(None);
        }
        let folder = self.table_path(name);
        let hint = match self.is_local() {
            true => match self.inner.newest.find(name, &folder).await {
                Found::Newest(dataset, schema) => {
                    return Table::try_new(self.clone(), name.clone(), *dataset, schema).map(Some);
                }
                Found::Hint(hint) => hint,
            },
            false => None,
        };
        let attempted = || format!("opening table {name} in {}", self.inner.place);
        let load = async || {
            let builder = DatasetBuilder::from_uri(self.table_uri(name))
                .with_session(self.inner.session.clone())
                .with_store_params(self.inner.params.clone());
            let loaded = with_schema(builder.load().boxed()).await;
            loaded.map_err(|source| opening_error(attempted(), source))
        };
        match self.in_time(again(load), attempted).await {
            Ok((dataset, schema)) => {
                if let Some(hint) = hint {
                    self.inner.newest.put(name, &folder, hint, &dataset, &schema);
                }
                Table::try_new(self.clone(), name.clone(), dataset, schema).map(Some)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs the opening of a table, with all its attempts, until the deadline for that.
    async fn in_time<T>(&self, opening: impl Future<Output = Result<T>>, attempted: impl Fn() -> String) -> Result<T> {
        let Some(limit) = self.inner.opening_deadline else { return opening.await };
        tokio::time::timeout(limit, opening).await.unwrap_or_else(|_| {
            let reason = format!(
                "it took longer than {} s, twice the storage option 'timeout': raise it if the store is slow",
                limit.as_secs_f64()
            );
            Err(Error::Storage { attempted: attempted(), kind: ErrorKind::Unavailable, source: reason.into() })
        })
    }

    pub(crate) async fn at_version(&self, newest: &Table, version: u64, at: &SnapshotRef) -> Result<Table> {
        if version == newest.version() {
            return Ok(newest.clone());
        }
        let attempted = || format!("opening {at} of table {}", newest.name());
        let open = async || {
            let opened = with_schema(newest.dataset().checkout_version(version).boxed()).await;
            opened.map_err(|source| opening_error(attempted(), source))
        };
        match self.in_time(again(open), attempted).await {
            Ok((dataset, schema)) => Table::try_new(self.clone(), newest.name().clone(), dataset, schema),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let hint = nearest_versions(newest, version).await?;
                Err(Error::NotFound { what: format!("{at} of table {}", newest.name()), hint })
            }
            Err(error) => Err(error),
        }
    }
}

/// Opens the store of a lake. Returns it with the path of the lake's root in it.
async fn open_store(
    registry: &Arc<ObjectStoreRegistry>,
    uri: &str,
    params: &ObjectStoreParams,
) -> Result<(Arc<ObjectStore>, Path)> {
    let opened = ObjectStore::from_uri_and_params(registry.clone(), uri, params).await;
    opened.map_err(|source| match Error::storage(format!("opening a lake at {uri}"), source) {
        Error::Storage { kind: ErrorKind::InvalidRequest | ErrorKind::Internal, source, .. } => {
            Error::InvalidUri { uri: uri.to_string(), reason: first_line(&source) }
        }
        error => error,
    })
}

/// Returns a dataset with its Arrow schema. Panics while the manifest is read and converted become errors.
async fn with_schema(
    opening: impl Future<Output = lance_core::Result<Dataset>>,
) -> lance_core::Result<(Dataset, SchemaRef)> {
    let opened = caught(async move {
        let dataset = opening.await?;
        let schema = Arc::new(read_schema(&Schema::from(dataset.schema())));
        Ok::<_, lance_core::Error>((dataset, schema))
    });
    opened.await
}

/// Returns the schema with which a table is read: the values of blobs are binary.
fn read_schema(schema: &Schema) -> Schema {
    let field = |field: &FieldRef| if is_blob(field) { Arc::new(blob_as_binary(field)) } else { field.clone() };
    Schema::new_with_metadata(schema.fields().iter().map(field).collect::<Fields>(), schema.metadata().clone())
}

/// Describes the up to ten versions nearest to one that does not exist, as a hint for an error.
async fn nearest_versions(newest: &Table, version: u64) -> Result<String> {
    let mut versions = newest.version_numbers().await?;
    versions.sort_by_key(|found| found.abs_diff(version));
    versions.truncate(10);
    versions.sort_unstable();
    let list = versions.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let removed = match version > 0 && version < newest.version() {
        true => "; a cleanup of old versions removed it; cleanups keep versions with a tag",
        false => "",
    };
    Ok(format!("{removed}; nearest versions: {list}"))
}
