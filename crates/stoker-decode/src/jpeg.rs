//! Which library decodes JPEG files, and at which scale.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{BadValue, Decompressor, ImageFile, LoadError, Turbo};

/// How JPEG files are decoded. Each choice gives its own pixels, so that it is part of a transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jpeg {
    /// By zune-jpeg, at full size.
    #[default]
    Zune,
    /// By libjpeg-turbo, at full size: the pixels of Pillow. The process must have loaded the library.
    Turbo,
    /// By libjpeg-turbo, at 1/2, 1/4 or 1/8 of the size where the rest of the reduction is still at least
    /// [`Jpeg::REDUCTION_MIN`]. The inverse cosine transform gives the smaller image directly. The pixels differ a
    /// little from those of [`Jpeg::Turbo`].
    TurboScaled,
}

impl Jpeg {
    /// The least factor by which the filter still reduces an image that was decoded at a smaller scale.
    ///
    /// Measured on photographs of 1600 x 1200 and 3000 x 2000 pixels (quality 90, 4:2:0) with bilinear and bicubic
    /// filters, against the full size, in steps of 1/255: with 2, elements differ by 0.2 to 1.2 in the mean and by at
    /// most 14; with 1, as Pillow's `draft` does, by 0.3 to 2.5 and at most 81.
    pub const REDUCTION_MIN: f64 = 2.0;

    /// Tells whether this is the choice of transforms from before there was one, which do not name it.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(crate) fn is_zune(&self) -> bool {
        *self == Jpeg::Zune
    }
}

/// A loaded decoder of JPEG files, which threads share.
#[derive(Clone, Debug, Default)]
pub enum JpegDecoder {
    /// zune-jpeg.
    #[default]
    Zune,
    /// libjpeg-turbo.
    Turbo(Arc<Turbo>),
}

impl JpegDecoder {
    /// Loads the decoder that transforms with this option need; `search` is as for [`Turbo::load`].
    ///
    /// # Errors
    /// As [`Turbo::load`].
    pub fn load(jpeg: Jpeg, search: &[PathBuf]) -> Result<Self, LoadError> {
        match jpeg {
            Jpeg::Zune => Ok(JpegDecoder::Zune),
            Jpeg::Turbo | Jpeg::TurboScaled => Turbo::load(search).map(JpegDecoder::Turbo),
        }
    }

    /// Opens a file as [`ImageFile::open`] does. `decompressor` is the calling thread's, which is created on first use.
    ///
    /// # Errors
    /// As [`ImageFile::open`].
    pub fn open<'a>(
        &self,
        decompressor: &'a mut Option<Decompressor>,
        file: &'a [u8],
        bytes_max: u64,
    ) -> Result<ImageFile<'a>, BadValue> {
        let JpegDecoder::Turbo(turbo) = self else { return ImageFile::open(file, bytes_max) };
        let created = match decompressor.take() {
            Some(decompressor) => decompressor,
            None => Decompressor::new(turbo)?,
        };
        ImageFile::open_with(decompressor.insert(created), file, bytes_max)
    }
}
