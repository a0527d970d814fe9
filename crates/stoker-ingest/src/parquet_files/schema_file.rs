//! Reads column declarations from a JSON file.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Error, ParquetOptions, Result, TensorColumn, VectorColumn};

/// The content of the JSON file: see [`ParquetOptions::schema`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SchemaFile {
    #[serde(default)]
    columns: Vec<String>,
    #[serde(default)]
    drop: Vec<String>,
    #[serde(default)]
    tensors: BTreeMap<String, String>,
    #[serde(default)]
    vectors: BTreeMap<String, usize>,
    #[serde(default)]
    images: Vec<String>,
    #[serde(default)]
    videos: Vec<String>,
}

/// Replaces the path of the schema file in the options by the declarations of that file.
pub(super) fn merge(mut options: ParquetOptions) -> Result<ParquetOptions> {
    let Some(path) = options.schema.take() else { return Ok(options) };
    let text = std::fs::read(&path).map_err(|source| Error::list(&path, source))?;
    let file: SchemaFile = serde_json::from_slice(&text)
        .map_err(|error| Error::option("--schema", format!("{}: {error}", path.display())))?;
    options.columns.extend(file.columns);
    options.drop.extend(file.drop);
    options.images.extend(file.images);
    options.videos.extend(file.videos);
    for (column, tensor) in file.tensors {
        options.tensors.push(TensorColumn::try_new(&column, &tensor)?);
    }
    for (column, length) in file.vectors {
        let spec: VectorColumn = format!("{column}={length}").parse()?;
        options.vectors.push(spec);
    }
    Ok(options)
}
