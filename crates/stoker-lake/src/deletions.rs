//! Deletion files, which name the rows of a fragment that a version has deleted.
//!
//! The names of the files that Stoker writes have a checksum ([`seal`](stoker_store::seal)): a file that is damaged or
//! swapped with another one does not match its name. Files of other writers can only be compared with the manifest, which
//! has the number of deleted rows.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lance::dataset::fragment::FileFragment;
use lance_core::utils::deletion::DeletionVector;
use lance_table::format::{DeletionFile, DeletionFileType, Fragment};
use lance_table::io::deletion::deletion_file_path;
use object_store::path::Path;
use roaring::RoaringBitmap;
use stoker_store::seal::seal;
use stoker_types::to_usize;

use crate::damage::{caught, decode_error};
use crate::{Error, Result, Table};

/// The maximum number of deletion files that are read at the same time.
const FILES_IN_FLIGHT: usize = 16;

impl Table {
    /// Marks more rows of a fragment as deleted, and writes the deletion file. Returns the metadata of the fragment,
    /// or `None`, without a file, when no row would remain.
    pub(crate) async fn with_deletions(
        &self,
        fragment: &FileFragment,
        offsets: RoaringBitmap,
    ) -> lance_core::Result<Option<Fragment>> {
        let mut metadata = fragment.metadata().clone();
        let before = fragment.get_deletion_vector().await?;
        let mut deleted = before.map_or_else(RoaringBitmap::new, |before| RoaringBitmap::from(before.as_ref()));
        deleted |= offsets;
        if deleted.len() >= fragment.physical_rows().await? as u64 {
            return Ok(None);
        }
        let mut content = Vec::with_capacity(deleted.serialized_size());
        deleted.serialize_into(&mut content)?;
        let read_version = self.version();
        let file = DeletionFile {
            read_version,
            id: seal(&format!("{}-{read_version}", metadata.id), &content),
            file_type: DeletionFileType::Bitmap,
            num_deleted_rows: Some(to_usize(deleted.len())),
            base_id: None,
        };
        let path = deletion_file_path(&self.lake().table_path(self.name()), metadata.id, &file);
        self.create_deletions(&path, content).await?;
        metadata.deletion_file = Some(file);
        Ok(Some(metadata))
    }

    /// Writes a deletion file unless it exists. Its name follows from its content, so two writers may write the same
    /// file.
    async fn create_deletions(&self, path: &Path, content: Vec<u8>) -> lance_core::Result<()> {
        let store = &self.lake().inner.store;
        match store.put_if_absent(path, content.clone().into()).await {
            Ok(()) => Ok(()),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                match store.read_one_all(path).await? == content {
                    true => Ok(()),
                    false => Err(lance_core::Error::internal(format!("{path} does not match the hash in its name"))),
                }
            }
            Err(source) => Err(source.into()),
        }
    }

    /// Compares the deletion files of these fragments with the manifest, each file once per lake. Lance caches what
    /// the check reads, so the read that follows does not fetch it again.
    ///
    /// # Errors
    /// `DataCorrupt`, which names the first file whose rows contradict the manifest; storage errors.
    pub(crate) async fn check_deletions(&self, fragments: &[&Fragment]) -> Result<()> {
        let mut unchecked = Vec::new();
        for fragment in fragments {
            let Some(file) = &fragment.deletion_file else { continue };
            let Some(folder) = self.files_of_base(file.base_id) else { continue };
            let path = deletion_file_path(&folder, fragment.id, file);
            let key = format!("{path}#{:?}", file.num_deleted_rows);
            if !self.lake().inner.checked.contains(&key) {
                unchecked.push((to_usize(fragment.id), path, key));
            }
        }
        let mut checks = stream::iter(unchecked)
            .map(|(id, path, key)| async move {
                let Some(fragment) = self.dataset().get_fragment(id) else { return Ok(key) };
                let attempted = || format!("reading the deletions of {}", self.snapshot());
                let deleted = caught(fragment.get_deletion_vector()).await;
                let deleted = deleted.map_err(|source| decode_error(attempted(), source))?;
                match deleted.and_then(|deleted| flaw(&deleted, fragment.metadata())) {
                    None => Ok(key),
                    Some(reason) => {
                        let reason = format!("deletion file {}: {reason}", path.filename().unwrap_or_default());
                        Err(Error::DataCorrupt { attempted: attempted(), reason })
                    }
                }
            })
            .buffer_unordered(FILES_IN_FLIGHT);
        while let Some(key) = checks.try_next().await? {
            self.lake().inner.checked.insert(key);
        }
        Ok(())
    }
}

/// Describes how a fragment's deleted rows contradict the manifest. `None` when they agree.
fn flaw(deleted: &Arc<DeletionVector>, fragment: &Fragment) -> Option<String> {
    let expected = fragment.deletion_file.as_ref().and_then(|file| file.num_deleted_rows);
    if let Some(expected) = expected.filter(|expected| *expected != deleted.len()) {
        return Some(format!("the manifest says that {expected} rows are deleted, the file has {}", deleted.len()));
    }
    let rows = fragment.physical_rows? as u64;
    let beyond = deleted.iter().map(u64::from).find(|row| *row >= rows)?;
    Some(format!("it has row {beyond} of a fragment of {rows} rows"))
}
