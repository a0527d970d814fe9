//! Conversion of panics in the code that reads files to errors.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// A panic inside Lance or Arrow. They panic on bytes that no writer would have written, so a panic counts as damaged
/// data.
///
/// The default panic hook still prints its line to standard error.
#[derive(Debug, thiserror::Error)]
#[error("the reader of these bytes panicked: {message}")]
pub(crate) struct Panicked {
    message: String,
}

impl Panicked {
    /// Makes the error for a panic with this payload.
    pub fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&'static str>().copied());
        Self { message: text.unwrap_or("no message").to_string() }
    }
}

/// Runs a future that reads stored bytes through Lance. Converts a panic to an error of kind `DataCorrupt`.
///
/// # Errors
/// Those of `reading`; for a panic, an I/O error of Lance that wraps [`Panicked`].
pub(crate) async fn caught<T>(reading: impl Future<Output = lance_core::Result<T>>) -> lance_core::Result<T> {
    match AssertUnwindSafe(reading).catch_unwind().await {
        Ok(done) => done,
        Err(payload) => Err(lance_core::Error::io_source(Box::new(Panicked::new(payload.as_ref())))),
    }
}

#[cfg(test)]
mod tests {
    use stoker_types::ErrorKind;

    use super::caught;
    use crate::Error;

    #[tokio::test]
    async fn panics_are_damage_and_say_what_was_read() {
        for panics in [true, false] {
            let reading = async {
                assert!(!panics, "index {} is out of bounds", 7);
                Ok(3)
            };
            match caught(reading).await {
                Ok(value) => assert_eq!((value, panics), (3, false)),
                Err(source) => {
                    let error = Error::storage("reading a file", source);
                    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
                    assert!(error.to_string().contains("panicked: index 7 is out of bounds"), "{error}");
                }
            }
        }
    }
}
