//! Answers as bytes.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An answer as the body of an action's result: JSON, unless it is [`IpcBytes`].
pub trait Answer: Sized + Send + 'static {
    /// The answer as bytes.
    ///
    /// # Errors
    /// Why it has no JSON.
    fn encode(self) -> Result<Vec<u8>, String>;

    /// Reads the answer.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    fn decode(body: Vec<u8>) -> Result<Self, String>;
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Answer for T {
    fn encode(self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(&self).map_err(|source| source.to_string())
    }

    fn decode(body: Vec<u8>) -> Result<Self, String> {
        serde_json::from_slice(&body).map_err(|source| source.to_string())
    }
}

/// The answer of a call that changes something and tells nothing: `{}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// Rows as a stream of Arrow's IPC format, which travels as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpcBytes(pub Vec<u8>);

impl Answer for IpcBytes {
    fn encode(self) -> Result<Vec<u8>, String> {
        Ok(self.0)
    }

    fn decode(body: Vec<u8>) -> Result<Self, String> {
        Ok(Self(body))
    }
}
