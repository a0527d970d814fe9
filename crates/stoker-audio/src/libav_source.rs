//! Where libavcodec comes from.

use std::fmt;
use std::sync::Arc;

use stoker_libav::Libav;

use crate::BadSound;

/// Loads libavcodec, or returns the text of the reason why that is not possible.
type LoadLibav = dyn Fn() -> Result<Arc<Libav>, String> + Send + Sync;

/// Gives libavcodec to decoders of codecs that this crate does not know. It is asked when a file first needs one.
#[derive(Clone, Default)]
pub struct LibavSource {
    load: Option<Arc<LoadLibav>>,
}

impl LibavSource {
    /// Returns a source that calls a function for each decoder. The default source has no library.
    pub fn new(load: impl Fn() -> Result<Arc<Libav>, String> + Send + Sync + 'static) -> Self {
        Self { load: Some(Arc::new(load)) }
    }

    /// Returns the library for a codec.
    ///
    /// # Errors
    /// [`BadSound`], a fatal one: the file may be good.
    pub(crate) fn get(&self, codec: &str) -> Result<Arc<Libav>, BadSound> {
        let missing =
            |reason: &str| BadSound::fatal(format!("the file has {codec}, which libavcodec decodes: {reason}"));
        match &self.load {
            Some(load) => load().map_err(|reason| missing(&reason)),
            None => Err(missing("no library was given")),
        }
    }
}

impl fmt::Debug for LibavSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LibavSource").field("has_library", &self.load.is_some()).finish()
    }
}
