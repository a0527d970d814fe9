//! Folders that `save_to_disk` of Hugging Face's library `datasets` writes.
//!
//! ```text
//! DatasetDict: dataset_dict.json {"splits": ["train", …]}
//!   └─ train/  state.json {"_data_files": [{"filename": "data-00000-of-00002.arrow"}, …]}
//!              dataset_info.json {"features": {…}}
//!              data-00000-of-00002.arrow, an Arrow IPC stream
//! ```
//!
//! The features decide the columns. A folder whose descriptions are damaged, or that has a file of row numbers, is recognised,
//! and refused when it is planned. Folders with splits have an additional column `split`. Snapshots of the hub with
//! Parquet files are read as Parquet, and folders of the library's cache as Arrow: the features are in the schema of their
//! files.

mod features;
mod folder;

use std::sync::Arc;

pub use features::{FeatureMismatch, HUGGING_FACE_KEY, feature_columns};

use self::folder::{SavedDataset, SavedFolder};
use crate::arrow_files::{ArrowFile, ArrowFiles};
use crate::{Error, FileFormat, Folder, FormatOptions, Result, RowFiles};

/// The format of folders of Hugging Face's library `datasets`.
#[derive(Clone, Copy, Debug)]
pub struct HuggingFace;

impl FileFormat for HuggingFace {
    fn name(&self) -> &'static str {
        "huggingface"
    }

    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
        if folder.file(folder::DATASET_DICT).is_none() && folder.file(folder::STATE).is_none() {
            return None;
        }
        let files: Vec<String> = match SavedFolder::read(folder) {
            Ok(saved) => saved.datasets.into_iter().flat_map(|dataset| dataset.files).collect(),
            // Planning says what is wrong. As plain Arrow files, the folder would have other rows, in another order.
            Err(_) => SavedFolder::states(folder),
        };
        (!files.is_empty()).then_some(files)
    }

    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        let saved = SavedFolder::read(folder.as_ref())?;
        let dataset_of = |name: &String| saved.datasets.iter().find(|dataset| dataset.files.contains(name));
        let mut planned = Vec::with_capacity(files.len());
        for name in files {
            let Some(SavedDataset { split, .. }) = dataset_of(&name) else {
                return Err(Error::malformed(&name, "no state.json of the folder names this file"));
            };
            planned.push(ArrowFile { split: split.clone(), name });
        }
        let features = planned.first().and_then(|file| dataset_of(&file.name)).and_then(|first| first.features.clone());
        Ok(Box::new(ArrowFiles::plan(folder, planned, features.as_deref(), options)?))
    }
}

#[cfg(test)]
mod tests;
