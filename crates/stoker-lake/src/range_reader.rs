//! Byte ranges of one immutable file.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use lance_io::object_store::ObjectStore;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectStoreExt};
use stoker_store::{DirectStore, SocketBody, UncachedFile, is_outage};
use stoker_types::ErrorKind;

use crate::{Error, Result};

/// The body of a response with a range of bytes; the reader chooses the memory into which it is read.
pub type RangeBody = stoker_store::RangeBody<Error>;

/// Reads byte ranges of one immutable file; cheap to clone.
#[derive(Clone)]
pub struct RangeReader {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<ObjectStore>,
    /// The same store for requests whose bodies are read directly from their sockets; `None` for stores that do not
    /// support that.
    direct: Option<Arc<DirectStore>>,
    lake: Arc<str>,
    path: Path,
    place: String,
    size: u64,
    local: Option<Arc<File>>,
    /// The file, opened once more with `O_DIRECT` by the first call of `uncached`; `None` inside where that is not
    /// supported.
    uncached: OnceLock<Option<UncachedFile>>,
}

impl std::fmt::Debug for RangeReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RangeReader").field(&self.inner.place).finish()
    }
}

impl RangeReader {
    /// Makes a reader of a file whose size is known from the manifest. It keeps no file open.
    pub(crate) fn new(
        store: Arc<ObjectStore>,
        direct: Option<Arc<DirectStore>>,
        lake: Arc<str>,
        path: Path,
        place: String,
        size: u64,
    ) -> Self {
        Self {
            inner: Arc::new(Inner { store, direct, lake, path, place, size, local: None, uncached: OnceLock::new() }),
        }
    }

    /// Returns a reader that keeps the file open if the lake is local.
    ///
    /// # Errors
    /// `DataCorrupt` when a local file is missing or has another size; storage errors.
    pub fn open(&self) -> Result<Self> {
        let Inner { store, direct, lake, path, place, size, .. } = self.inner.as_ref();
        let local = if store.is_local() { Some(open_local(path, place, *size)?) } else { None };
        let (store, direct, lake) = (store.clone(), direct.clone(), lake.clone());
        let (path, place, uncached) = (path.clone(), place.clone(), OnceLock::new());
        Ok(Self { inner: Arc::new(Inner { store, direct, lake, path, place, size: *size, local, uncached }) })
    }

    /// Returns the open file if the lake is local, for positioned reads into the caller's memory.
    pub fn local(&self) -> Option<&Arc<File>> {
        self.inner.local.as_ref()
    }

    /// Returns the same file for reads that bypass the page cache, if the lake is local. The first call opens it, which
    /// blocks the thread; it stays open. `None` where the operating system or the file system does not support such
    /// reads.
    pub fn uncached(&self) -> Option<&UncachedFile> {
        self.inner.local.as_ref()?;
        let open = || UncachedFile::open(&local_path(&self.inner.path), &self.inner.place);
        self.inner.uncached.get_or_init(open).as_ref().filter(|file| !file.is_refused())
    }

    /// Returns the URI and the endpoint of the lake, without credentials. Together with the path they identify the file
    /// on any machine.
    pub fn lake(&self) -> &str {
        &self.inner.lake
    }

    /// The path of the file in its store.
    pub fn path(&self) -> &str {
        self.inner.path.as_ref()
    }

    /// Returns the table and the path, for error messages.
    pub fn place(&self) -> &str {
        &self.inner.place
    }

    /// The file's size in bytes.
    pub fn size(&self) -> u64 {
        self.inner.size
    }

    /// Reads a range into one buffer. One request.
    ///
    /// # Errors
    /// Storage errors; `DataCorrupt` when the file ends earlier.
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let attempted = self.attempted(&range);
        let store = self.inner.store.inner.as_ref();
        let asked = self.request(&attempted, &range, |options| store.get_opts(&self.inner.path, options)).await?;
        let Some(got) = asked else { return Ok(Bytes::new()) };
        self.check_size(&attempted, got.meta.size)?;
        let bytes = got.bytes().await.map_err(|source| Error::storage(attempted, source))?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(self.too_short(range, bytes.len() as u64));
        }
        Ok(bytes)
    }

    /// Requests a range and returns its bytes as they arrive. The caller must count them: see
    /// [`RangeReader::too_short`].
    ///
    /// # Errors
    /// Storage errors.
    pub async fn read_body(&self, range: Range<u64>) -> Result<RangeBody> {
        let attempted = self.attempted(&range);
        let get = async |options| match &self.inner.direct {
            Some(direct) => direct.get(&self.inner.path, options).await,
            None => Ok((self.inner.store.inner.get_opts(&self.inner.path, options).await?, None)),
        };
        let asked: Option<(GetResult, Option<SocketBody>)> = self.request(&attempted, &range, get).await?;
        let Some((got, body)) = asked else { return Ok(RangeBody::from_chunks(futures::stream::empty().boxed())) };
        self.check_size(&attempted, got.meta.size)?;
        if let Some(body) = body {
            return Ok(RangeBody::from_socket(body, attempted));
        }
        let chunks = got.into_stream().map_err(move |source| Error::storage(attempted.clone(), source));
        Ok(RangeBody::from_chunks(chunks.boxed()))
    }

    /// Returns the error for a range that ended early: a local file is damaged, a remote one has a broken connection.
    pub fn too_short(&self, range: Range<u64>, found: u64) -> Error {
        let attempted = self.attempted(&range);
        let reason = format!("only {found} bytes arrived; the file should have {}", self.inner.size);
        if self.inner.local.is_some() {
            return Error::DataCorrupt { attempted, reason };
        }
        Error::Storage { attempted, kind: ErrorKind::Unavailable, source: reason.into() }
    }

    /// Returns the error for a failed positioned read.
    pub fn read_failed(&self, range: Range<u64>, source: std::io::Error) -> Error {
        Error::storage(self.attempted(&range), source)
    }
}

impl RangeReader {
    fn attempted(&self, range: &Range<u64>) -> String {
        format!("reading bytes {}..{} of {}", range.start, range.end, self.inner.place)
    }

    /// Requests a range by `get`. An empty range makes no request and returns `None`.
    async fn request<T>(
        &self,
        attempted: &str,
        range: &Range<u64>,
        get: impl AsyncFnOnce(GetOptions) -> object_store::Result<T>,
    ) -> Result<Option<T>> {
        if range.end > self.inner.size {
            let (attempted, reason) = (attempted.to_string(), format!("the file has {} bytes", self.inner.size));
            return Err(Error::DataCorrupt { attempted, reason });
        }
        if range.is_empty() {
            return Ok(None);
        }
        let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        match get(options).await {
            Ok(got) => Ok(Some(got)),
            Err(source) => Err(self.request_failed(attempted.to_string(), source).await),
        }
    }

    /// Returns the error for a failed request. Stores report a range beyond the end of a truncated file differently, so
    /// the file's size is requested: a size other than the manifest's is damage.
    async fn request_failed(&self, attempted: String, source: object_store::Error) -> Error {
        if matches!(source, object_store::Error::NotFound { .. }) {
            return Error::DataCorrupt { attempted, reason: "the file is missing".into() };
        }
        if matches!(source, object_store::Error::Generic { .. })
            && !is_outage(&source)
            && let Ok(meta) = self.inner.store.inner.head(&self.inner.path).await
            && let Err(error) = self.check_size(&attempted, meta.size)
        {
            return error;
        }
        Error::storage(attempted, source)
    }

    /// Compares the size that the store reports with the size in the manifest. One HEAD request.
    pub(crate) async fn check_stored_size(&self) -> Result<()> {
        let attempted = format!("reading {}", self.inner.place);
        match self.inner.store.inner.head(&self.inner.path).await {
            Ok(meta) => self.check_size(&attempted, meta.size),
            Err(source) => Err(self.request_failed(attempted, source).await),
        }
    }

    fn check_size(&self, attempted: &str, found: u64) -> Result<()> {
        if found == self.inner.size {
            return Ok(());
        }
        let reason = format!("the manifest says {} bytes, the file has {found}", self.inner.size);
        Err(Error::DataCorrupt { attempted: attempted.to_string(), reason })
    }
}

fn open_local(path: &Path, place: &str, size: u64) -> Result<Arc<File>> {
    let attempted = || format!("opening {place}");
    let file = File::open(local_path(path)).map_err(|source| missing(attempted(), source))?;
    let found = file.metadata().map_err(|source| Error::storage(attempted(), source))?.len();
    if found != size {
        let reason = format!("the manifest says {size} bytes, the file has {found}");
        return Err(Error::DataCorrupt { attempted: attempted(), reason });
    }
    Ok(Arc::new(file))
}

fn local_path(path: &Path) -> PathBuf {
    PathBuf::from(format!("/{}", path.as_ref()))
}

/// A data file that the manifest names but that does not exist is damage, not a request for a wrong name.
fn missing(attempted: String, source: std::io::Error) -> Error {
    if source.kind() == std::io::ErrorKind::NotFound {
        return Error::DataCorrupt { attempted, reason: "the file is missing".into() };
    }
    Error::storage(attempted, source)
}
