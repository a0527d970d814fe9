//! Columns of files, as structs of bytes and paths.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field};
use stoker_columns::{Conversion, Ingest, Mismatch};

use crate::table_columns::{SourceColumn, mismatch};

/// Refuses rows with a path and without bytes, then converts as `ingest` does.
pub(super) fn media(ingest: Ingest) -> Ingest {
    Ingest { field: ingest.field, conversion: Arc::new(FromMedia(ingest.conversion)) }
}

/// Structs with the field `bytes`, or binary values, become the bytes of files. Only a row without a path is null.
#[derive(Debug)]
struct FromMedia(Arc<dyn Conversion>);

impl Conversion for FromMedia {
    fn accepts(&self, field: &Field, found: &DataType) -> bool {
        self.0.accepts(field, found)
    }

    fn expected(&self, field: &Field) -> String {
        self.0.expected(field)
    }

    fn keeps_nulls(&self) -> bool {
        self.0.keeps_nulls()
    }

    fn convert(&self, field: &Field, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let structs = array.as_struct_opt();
        let bytes = structs.and_then(|structs| structs.column_by_name("bytes"));
        let path = structs.and_then(|structs| structs.column_by_name("path"));
        if let (Some(structs), Some(bytes), Some(path)) = (structs, bytes, path) {
            let names_file = |row: &usize| structs.is_valid(*row) && bytes.is_null(*row) && path.is_valid(*row);
            if let Some(row) = (0..structs.len()).find(names_file) {
                return Err(mismatch(Some(row), "the bytes of a file", "only its path"));
            }
        }
        self.0.convert(field, array)
    }
}

impl SourceColumn {
    /// Whether rows of the column can have the path of a file instead of its bytes.
    pub(crate) fn may_name_files(&self) -> bool {
        let structs = ["bytes", "path"].map(|name| Field::new(name, DataType::LargeBinary, true));
        let [bytes, path] = structs;
        let path = path.with_data_type(DataType::Utf8);
        let structs = DataType::Struct(vec![bytes, path].into());
        *self.ingest.field.data_type() == DataType::LargeBinary
            && self.ingest.conversion.accepts(&self.ingest.field, &structs)
    }
}
