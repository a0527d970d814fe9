//! Tests of datasets that are built here as `mosaicml-streaming` writes them.

mod bad_input;
mod fuzz;
mod shards;

use std::io::Write as _;

use serde_json::{Value, json};

use crate::memory_folder::{AllRows, MemoryFolder, plan, read_all};
use crate::{FormatOptions, Mds};

/// A column: name, encoding, and the size of its values if it has one.
type Column = (&'static str, &'static str, Option<usize>);

/// Makes a sample of encoded values.
fn sample(columns: &[Column], values: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (column, value) in columns.iter().zip(values) {
        match column.2 {
            Some(size) => assert_eq!(size, value.len(), "{}", column.0),
            None => bytes.extend_from_slice(&(value.len() as u32).to_le_bytes()),
        }
    }
    values.iter().for_each(|value| bytes.extend_from_slice(value));
    bytes
}

/// Makes a shard of samples.
fn shard(samples: &[Vec<u8>]) -> Vec<u8> {
    let about = b"{\"format\": \"mds\"}";
    let mut place = 4 + 4 * (samples.len() + 1) + about.len();
    let mut bytes = (samples.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&(place as u32).to_le_bytes());
    for sample in samples {
        place += sample.len();
        bytes.extend_from_slice(&(place as u32).to_le_bytes());
    }
    bytes.extend_from_slice(about);
    samples.iter().for_each(|sample| bytes.extend_from_slice(sample));
    bytes
}

/// Describes a shard as an index does.
fn entry(columns: &[Column], name: &str, bytes: usize, samples: usize) -> Value {
    json!({
        "column_encodings": columns.iter().map(|column| column.1).collect::<Vec<_>>(),
        "column_names": columns.iter().map(|column| column.0).collect::<Vec<_>>(),
        "column_sizes": columns.iter().map(|column| column.2).collect::<Vec<_>>(),
        "compression": null,
        "format": "mds",
        "hashes": [],
        "raw_data": {"basename": name, "bytes": bytes, "hashes": {}},
        "samples": samples,
        "size_limit": 67_108_864,
        "version": 2,
        "zip_data": null,
    })
}

fn index(shards: &[Value]) -> Vec<u8> {
    json!({"shards": shards, "version": 2}).to_string().into_bytes()
}

/// Makes a folder with one shard.
fn dataset(columns: &[Column], samples: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
    let bytes = shard(samples);
    let index = index(&[entry(columns, "shard.00000.mds", bytes.len(), samples.len())]);
    vec![("index.json".into(), index), ("shard.00000.mds".into(), bytes)]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Reads the only shard of a folder.
fn read(files: Vec<(String, Vec<u8>)>) -> Result<AllRows, String> {
    let folder = MemoryFolder::new(files);
    let files = plan(&Mds, &folder, &FormatOptions::default()).map_err(|error| error.to_string())?;
    Ok(read_all(&*files, 0, usize::MAX))
}
