//! The names of classes.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, StringArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use serde_json::Value;
use stoker_columns::{Conversion, Ingest, Mismatch};

use crate::table_columns::mismatch;

/// The label of rows without one.
const NO_LABEL: i64 = -1;

/// How a column of class numbers becomes a column with the names of the classes; `None` if the feature has no names.
///
/// # Errors
/// The reason, for names that are no text.
pub(super) fn class_names(feature: &Value, field: &Field) -> Result<Option<Ingest>, String> {
    let names = match feature.get("names") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(names)) => names,
        Some(_) => return Err("ClassLabel: the names are no list".into()),
    };
    let names: Option<Vec<String>> = names.iter().map(|name| name.as_str().map(str::to_string)).collect();
    let names = names.ok_or("ClassLabel: a name is no text")?;
    let field = Field::new(format!("{}_name", field.name()), DataType::Utf8, true);
    Ok(Some(Ingest { field, conversion: Arc::new(FromLabels(names)) }))
}

/// Numbers of classes become their names.
#[derive(Debug)]
struct FromLabels(Vec<String>);

impl Conversion for FromLabels {
    fn accepts(&self, _field: &Field, found: &DataType) -> bool {
        found.is_integer()
    }

    fn expected(&self, _field: &Field) -> String {
        "numbers of classes".into()
    }

    fn keeps_nulls(&self) -> bool {
        true
    }

    fn convert(&self, _field: &Field, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let labels = cast(array, &DataType::Int64).map_err(|error| mismatch(None, "int64", &error.to_string()))?;
        let labels = labels.as_primitive::<Int64Type>();
        let mut names: Vec<Option<&str>> = Vec::with_capacity(labels.len());
        for (row, label) in labels.iter().enumerate() {
            let Some(label) = label.filter(|label| *label != NO_LABEL) else {
                names.push(None);
                continue;
            };
            let name = usize::try_from(label).ok().and_then(|label| self.0.get(label));
            let Some(name) = name else {
                let expected = format!("a class below {}", self.0.len());
                return Err(mismatch(Some(row), &expected, &label.to_string()));
            };
            names.push(Some(name));
        }
        Ok(Arc::new(StringArray::from(names)))
    }
}
