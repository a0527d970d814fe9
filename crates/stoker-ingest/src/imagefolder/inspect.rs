//! Tells what an ingest of a folder of images would write.

use std::path::Path;

use super::plan;
use crate::compress::written_schema;
use crate::inspection::ROWS_MAX;
use crate::job::blocking;
use crate::{ImageFolderOptions, Images, Inspection, Result};

/// Tells what [`crate::ingest_imagefolder`] would write: lists the folder, and decodes the first images.
///
/// # Errors
/// Those of [`crate::ingest_imagefolder`] about the folder, the options and the first images.
pub async fn inspect_imagefolder(dir: &Path, options: &ImageFolderOptions) -> Result<Inspection> {
    let (dir, options) = (dir.to_path_buf(), options.clone());
    blocking("looking at images", move || {
        let builder = plan(&dir, &options)?;
        let files = &builder.listing.files;
        let rows = builder.rows(0..files.len().min(ROWS_MAX))?;
        let bytes: u64 = files.iter().map(|file| file.stamp.bytes).sum();
        let tensor_bytes = builder.target.map_or(0, |target| target.row_bytes() as u64) * files.len() as u64;
        let table_bytes = match options.images {
            Images::Tensor => tensor_bytes,
            Images::Encoded => bytes,
            Images::Both => tensor_bytes + bytes,
        };
        let mut skipped = builder.listing.skipped.clone();
        skipped.extend(rows.skipped);
        Ok(Inspection {
            kind: "imagefolder".into(),
            files: files.len() as u64,
            bytes,
            schema: written_schema(&builder.schema(), &options.compress, None)?,
            rows: rows.batch,
            skipped,
            left_out: builder.listing.left_out.clone(),
            table_bytes,
        })
    })
    .await
}
