//! Changed features and descriptions of folders give columns or errors.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType, Field, Schema};
use serde_json::json;
use stoker_fuzz::Target;

use super::super::{HuggingFace, feature_columns};
use super::{info, state, stream};
use crate::FormatOptions;
use crate::read_files::{MemoryFolder, plan, read_files};

#[test]
fn features() {
    let features = json!({
        "i": { "_type": "Image" },
        "c": { "names": ["a", "b"], "_type": "ClassLabel" },
        "t": { "shape": [2, 3], "dtype": "float32", "_type": "Array2D" },
        "s": { "feature": { "dtype": "int64", "_type": "Value" }, "length": -1, "_type": "Sequence" },
    });
    let lists = DataType::new_list(DataType::new_list(DataType::Float32, true), true);
    let file = vec![Field::new("bytes", DataType::Binary, true), Field::new("path", DataType::Utf8, true)];
    let schema = Schema::new(vec![
        Field::new("i", DataType::Struct(file.into()), true),
        Field::new("c", DataType::Int64, true),
        Field::new("t", lists, true),
        Field::new("s", DataType::new_list(DataType::Int64, true), true),
    ]);
    let seed = json!({ "info": { "features": features } }).to_string();
    let tokens = ["\"_type\":", "Array5D", "Video", "null", "[", "-1", "1e300", "\"names\":"];
    let target = Target::new("features").seeds([seed.into_bytes()]).tokens(tokens);
    target.run(|input| match feature_columns(&String::from_utf8_lossy(input), &schema) {
        Ok(columns) => columns.len() >= schema.fields().len(),
        Err(error) => error.to_string().is_empty(),
    });
}

#[test]
fn saved_folders() {
    let data = stream(vec![("n", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef)]);
    let seed = state(&["a.arrow"]);
    let target = Target::new("saved_folder").seeds([seed]).tokens(["../", "_data_files", "filename", "\"a.arrow\""]);
    target.run(|input| {
        let info = info(&json!({ "n": { "dtype": "int64", "_type": "Value" } }));
        let files = [("state.json", input.to_vec()), ("a.arrow", data.clone()), ("dataset_info.json", info)];
        let folder = MemoryFolder::new(files);
        // Damaged descriptions are recognised, and refused when they are planned.
        if crate::FileFormat::recognise(&HuggingFace, &folder).is_none() {
            return false;
        }
        let Ok(files) = plan(&HuggingFace, &folder, &FormatOptions::default()) else { return false };
        read_files(files.as_ref(), 1 << 20).unwrap().rows.num_rows() >= 2
    });
}
