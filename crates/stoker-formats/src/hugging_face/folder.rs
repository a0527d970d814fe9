//! The files that describe a saved dataset.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stoker_files::path_inside;

use crate::{Error, FileBytes, Folder, Result};

/// The file of a folder with splits.
pub(super) const DATASET_DICT: &str = "dataset_dict.json";
/// The file that names the data files of a dataset.
pub(super) const STATE: &str = "state.json";
/// The file with the features of a dataset.
const DATASET_INFO: &str = "dataset_info.json";

/// The key in [`STATE`] of the names of data files.
const DATA_FILES: &[u8] = b"\"_data_files\"";

/// The most bytes of a file that describes a dataset.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// The datasets of a folder.
#[derive(Debug)]
pub(super) struct SavedFolder {
    pub datasets: Vec<SavedDataset>,
}

/// A dataset, or a split of one.
#[derive(Debug)]
pub(super) struct SavedDataset {
    /// The name of the split, if the folder has splits.
    pub split: Option<String>,
    /// The names of the files with rows, in their order.
    pub files: Vec<String>,
    /// The features, as JSON under the key `info`.
    pub features: Option<String>,
}

#[derive(Deserialize)]
struct DatasetDict {
    splits: Vec<String>,
}

#[derive(Deserialize)]
struct DatasetState {
    #[serde(rename = "_data_files")]
    data_files: Vec<StateFile>,
    /// Files of row numbers, which old versions wrote for datasets that were filtered or shuffled.
    #[serde(rename = "_indices_data_files", default)]
    indices: Option<Value>,
}

#[derive(Deserialize)]
struct StateFile {
    filename: String,
}

#[derive(Deserialize)]
struct DatasetInfo {
    features: Option<Value>,
}

impl SavedFolder {
    /// # Errors
    /// `Read` and `Malformed` of the files that describe the datasets.
    pub fn read(folder: &dyn Folder) -> Result<Self> {
        if folder.file(DATASET_DICT).is_none() {
            return Ok(Self { datasets: vec![SavedDataset::read(folder, None)?] });
        }
        let DatasetDict { splits } = json(folder, DATASET_DICT)?;
        if let Some(split) = splits.iter().find(|split| !is_file_name(split)) {
            return Err(Error::malformed(DATASET_DICT, format!("\"{}\" is no name of a split", split.escape_debug())));
        }
        let datasets: Result<Vec<SavedDataset>> =
            splits.into_iter().map(|split| SavedDataset::read(folder, Some(split))).collect();
        Ok(Self { datasets: datasets? })
    }

    /// Returns the files that name the data files of datasets, which may be damaged. A folder of another program has none.
    pub fn states(folder: &dyn Folder) -> Vec<String> {
        let has_splits = folder.file(DATASET_DICT).is_some();
        let is_state = |name: &&str| match name.split_once('/') {
            None => *name == STATE,
            Some((_, name)) => has_splits && name == STATE,
        };
        let names = folder.files().iter().map(|file| file.name.as_str()).filter(is_state);
        names.filter(|name| is_of_dataset(folder, name)).map(str::to_string).collect()
    }
}

impl SavedDataset {
    fn read(folder: &dyn Folder, split: Option<String>) -> Result<Self> {
        let within = |name: &str| split.as_ref().map_or_else(|| name.to_string(), |split| format!("{split}/{name}"));
        let state = within(STATE);
        let DatasetState { data_files, indices } = json(folder, &state)?;
        let has_indices = indices.is_some_and(|indices| indices.as_array().is_some_and(|files| !files.is_empty()));
        if has_indices {
            let reason = "the dataset has a file of row numbers; save it again with a newer version of datasets";
            return Err(Error::malformed(&state, reason));
        }
        let mut files = Vec::with_capacity(data_files.len());
        for StateFile { filename } in data_files {
            let name = within(&filename);
            if !is_file_name(&filename) || folder.file(&name).is_none() {
                return Err(Error::malformed(&state, format!("the folder has no file \"{}\"", name.escape_debug())));
            }
            files.push(name);
        }
        let info = within(DATASET_INFO);
        let features = match folder.file(&info) {
            Some(_) => json::<DatasetInfo>(folder, &info)?.features,
            None => None,
        };
        let features = features.map(|features| serde_json::json!({ "info": { "features": features } }).to_string());
        Ok(Self { split, files, features })
    }
}

/// Whether a file with the name [`STATE`] is that of a dataset, damaged or not: it has the key of data files, or a file with
/// features lies beside it.
fn is_of_dataset(folder: &dyn Folder, state: &str) -> bool {
    let info = format!("{}{DATASET_INFO}", state.strip_suffix(STATE).unwrap_or_default());
    folder.file(&info).is_some() || read(folder, state).is_ok_and(|bytes| names_data_files(&bytes))
}

fn names_data_files(state: &[u8]) -> bool {
    state.windows(DATA_FILES.len()).any(|window| window == DATA_FILES)
}

/// Whether a name is that of a file or folder in a folder.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0']) && path_inside(name).is_ok_and(|path| path == name)
}

fn json<T: DeserializeOwned>(folder: &dyn Folder, name: &str) -> Result<T> {
    serde_json::from_slice(&read(folder, name)?).map_err(|error| Error::malformed(name, error))
}

fn read(folder: &dyn Folder, name: &str) -> Result<Vec<u8>> {
    let file: Arc<dyn FileBytes> = folder.open(name).map_err(|source| Error::read(name, source))?;
    if file.size() > JSON_BYTES_MAX {
        return Err(Error::malformed(name, format!("the file has more than {JSON_BYTES_MAX} bytes")));
    }
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap_or(0)];
    file.read_at(0, &mut bytes).map_err(|source| Error::read(name, source))?;
    Ok(bytes)
}
