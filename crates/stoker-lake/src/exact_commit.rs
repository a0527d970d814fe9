//! Commits that take effect at one version or not at all.

use std::sync::Arc;

use futures::stream::BoxStream;
use lance_io::object_store::ObjectStore;
use lance_table::format::{IndexMetadata, Manifest, Transaction};
use lance_table::io::commit::{CommitError, CommitHandler, ManifestLocation, ManifestNamingScheme, ManifestWriter};

use object_store::path::Path;

/// A commit handler that commits one version only. A commit that Lance rebased to a later version is a conflict.
///
/// Lance rebases an append over all commits that came in between. A writer that searched the versions up to one of
/// them for an idempotency key must not be rebased over another commit with the same key.
#[derive(Debug)]
pub(crate) struct ExactCommit {
    pub inner: Arc<dyn CommitHandler>,
    pub version: u64,
}

#[async_trait::async_trait]
impl CommitHandler for ExactCommit {
    fn is_version_not_found_definitive(&self) -> bool {
        self.inner.is_version_not_found_definitive()
    }

    fn propagate_commit_error_after_success(&self) -> bool {
        self.inner.propagate_commit_error_after_success()
    }

    async fn resolve_latest_location(&self, base: &Path, store: &ObjectStore) -> lance_core::Result<ManifestLocation> {
        self.inner.resolve_latest_location(base, store).await
    }

    async fn resolve_version_location(
        &self,
        base: &Path,
        version: u64,
        store: &dyn object_store::ObjectStore,
    ) -> lance_core::Result<ManifestLocation> {
        self.inner.resolve_version_location(base, version, store).await
    }

    async fn version_exists(
        &self,
        base: &Path,
        version: u64,
        store: &dyn object_store::ObjectStore,
        naming: ManifestNamingScheme,
    ) -> lance_core::Result<bool> {
        self.inner.version_exists(base, version, store, naming).await
    }

    fn list_manifest_locations<'a>(
        &self,
        base: &Path,
        store: &'a ObjectStore,
        sorted_descending: bool,
    ) -> BoxStream<'a, lance_core::Result<ManifestLocation>> {
        self.inner.list_manifest_locations(base, store, sorted_descending)
    }

    fn list_manifest_locations_since<'a>(
        &self,
        base: &Path,
        store: &'a ObjectStore,
        since_version: u64,
    ) -> BoxStream<'a, lance_core::Result<ManifestLocation>> {
        self.inner.list_manifest_locations_since(base, store, since_version)
    }

    async fn commit(
        &self,
        manifest: &mut Manifest,
        indices: Option<Vec<IndexMetadata>>,
        base: &Path,
        store: &ObjectStore,
        writer: ManifestWriter,
        naming: ManifestNamingScheme,
        transaction: Option<Transaction>,
    ) -> Result<ManifestLocation, CommitError> {
        if manifest.version != self.version {
            return Err(CommitError::CommitConflict);
        }
        self.inner.commit(manifest, indices, base, store, writer, naming, transaction).await
    }
}
