//! Decoders from outside of this workspace, such as functions of Python.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow_schema::Field;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use stoker_decode::{BadValue, ListSpec, OutputSpec, Row, Takes, ValueDecoder};

use crate::Result;

/// A decoder that can be saved and loaded, so that a session with it can be sent to another process.
pub trait SavedDecoder: ValueDecoder {
    /// Returns the decoder as bytes.
    ///
    /// # Errors
    /// Why that is not possible, as text for users.
    fn save(&self) -> Result<Vec<u8>, String>;
}

/// Loads a decoder from what [`SavedDecoder::save`] returned.
pub type LoadDecoder = fn(&[u8]) -> Result<Arc<dyn SavedDecoder>, String>;

static LOAD: OnceLock<LoadDecoder> = OnceLock::new();

/// A decoder of a column that this workspace does not know.
#[derive(Clone)]
pub struct CustomDecoder(Arc<dyn SavedDecoder>);

impl CustomDecoder {
    /// Wraps a decoder.
    pub fn new(decoder: Arc<dyn SavedDecoder>) -> Self {
        Self(decoder)
    }

    /// Sets the function that loads decoders in this process. Only the first call has an effect.
    pub fn set_loader(load: LoadDecoder) {
        LOAD.get_or_init(|| load);
    }

    pub(super) fn build(&self) -> Result<Box<dyn ValueDecoder>> {
        self.0.validate()?;
        Ok(Box::new(Shared(self.0.clone())))
    }
}

impl fmt::Debug for CustomDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CustomDecoder({:?})", self.0.outputs())
    }
}

impl Serialize for CustomDecoder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.save().map_err(ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for CustomDecoder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let saved = Vec::deserialize(deserializer)?;
        let Some(load) = LOAD.get() else { return Err(de::Error::custom("this process cannot load decoders")) };
        load(&saved).map(Self).map_err(de::Error::custom)
    }
}

/// A decoder that several streams use.
struct Shared(Arc<dyn SavedDecoder>);

impl ValueDecoder for Shared {
    fn noun(&self) -> &'static str {
        self.0.noun()
    }

    fn validate(&self) -> stoker_decode::Result<()> {
        self.0.validate()
    }

    fn outputs(&self) -> Vec<OutputSpec> {
        self.0.outputs()
    }

    fn field(&self, column: &str) -> Option<Field> {
        self.0.field(column)
    }

    fn rows_at_once(&self) -> usize {
        self.0.rows_at_once()
    }

    fn list(&self) -> Option<ListSpec> {
        self.0.list()
    }

    fn takes(&self) -> Takes {
        self.0.takes()
    }

    fn parameters(&self) -> Vec<&str> {
        self.0.parameters()
    }

    fn draws_of(&self) -> Option<&str> {
        self.0.draws_of()
    }

    fn decode(&self, row: &Row<'_>, outputs: &mut [&mut [u8]]) -> Result<(), BadValue> {
        self.0.decode(row, outputs)
    }

    fn decode_list(&self, row: &Row<'_>) -> Result<Vec<u8>, BadValue> {
        self.0.decode_list(row)
    }
}
