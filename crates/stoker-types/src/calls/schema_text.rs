//! Schemas in JSON answers: an IPC message in base 64.

use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::{ArrowError, SchemaRef};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::encapsulated_schema;

/// A schema, whose JSON is its IPC message in base 64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaText(pub SchemaRef);

impl Serialize for SchemaText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = to_message(self).map_err(ser::Error::custom)?;
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for SchemaText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = BASE64_STANDARD.decode(String::deserialize(deserializer)?).map_err(de::Error::custom)?;
        Ok(Self(encapsulated_schema(&bytes).map_err(de::Error::custom)?.into()))
    }
}

fn to_message(SchemaText(schema): &SchemaText) -> Result<Vec<u8>, ArrowError> {
    let (options, mut message) = (IpcWriteOptions::default(), Vec::new());
    let mut tracker = DictionaryTracker::new(false);
    let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options);
    write_message(&mut message, encoded, &options)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn schemas_survive_json_and_damage_is_an_error() {
        let field = Field::new("id", DataType::Int64, false).with_metadata([("a".into(), "b".into())].into());
        let schema = SchemaText(Arc::new(Schema::new(vec![field])));
        let text = serde_json::to_string(&schema).expect("JSON");
        assert_eq!(serde_json::from_str::<SchemaText>(&text).expect("a schema"), schema);
        for damaged in ["\"\"", "\"AAAA\"", "\"!\"", "\"/////wgAAAAAAAAA\"", "3"] {
            assert!(serde_json::from_str::<SchemaText>(damaged).is_err(), "{damaged}");
        }
    }
}
