//! Decoders of compressed video.
#![expect(unsafe_code, reason = "calls a C library")]

use std::marker::PhantomData;
use std::sync::Arc;

use crate::frame::Colors;
use crate::layout::parameters;
use crate::raw_decoder::{DecoderSetup, RawDecoder};
use crate::{Codec, DecodeError, FrameRef, Libav};

/// The options of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderOptions {
    /// The number of threads that decode; at least one.
    pub num_threads: usize,
    /// The most pixels of a frame. Larger frames are refused before memory is taken for them.
    pub pixels_max: u64,
}

impl Default for DecoderOptions {
    /// One thread, and frames of at most 8,192 x 8,192 pixels.
    fn default() -> Self {
        Self { num_threads: 1, pixels_max: 1 << 26 }
    }
}

/// What a decoder does with packets that are damaged, or that depend on frames which it did not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It refuses them with an error.
    Refused,
    /// It decodes what it can, and conceals the rest. H.264 needs this for streams that begin with a key frame of an open
    /// group of pictures, which may name frames before it.
    Concealed,
}

/// A decoder of one stream. After [`VideoDecoder::reset`] it decodes from another key frame, or another stream with the
/// same extradata.
///
/// A new decoder refuses damage, see [`VideoDecoder::set_damage`].
pub struct VideoDecoder {
    codec: Codec,
    raw: RawDecoder,
}

impl VideoDecoder {
    /// Opens a decoder. `extradata` is the configuration that the container keeps beside the frames, in the form of MP4:
    /// the content of `avcC`, `hvcC` or `av1C`; empty for codecs without one.
    ///
    /// # Errors
    /// [`DecodeError::NoDecoder`]; [`DecodeError::Open`] for damaged extradata.
    pub fn new(
        libav: &Arc<Libav>,
        codec: Codec,
        extradata: &[u8],
        options: DecoderOptions,
    ) -> Result<Self, DecodeError> {
        let num_threads = i64::try_from(options.num_threads.max(1)).unwrap_or(1);
        let pixels_max = i64::try_from(options.pixels_max).unwrap_or(i64::MAX);
        let setup = DecoderSetup {
            codec: codec.c_name(),
            decoders: codec.decoders(),
            media_type: parameters::TYPE_VIDEO,
            extradata,
            options: &[(c"threads", num_threads), (c"max_pixels", pixels_max)],
        };
        let mut decoder = Self { codec, raw: RawDecoder::new(libav, &setup)? };
        decoder.set_damage(Damage::Refused)?;
        Ok(decoder)
    }

    /// The codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Gives the decoder the next packet in decoding order. `pts` returns with the packet's frame.
    ///
    /// # Errors
    /// [`DecodeError::Packet`] for damaged packets. [`DecodeError::Full`] when frames must be received first; the packet
    /// was not taken then.
    pub fn send(&mut self, bytes: &[u8], pts: i64, is_key: bool) -> Result<(), DecodeError> {
        self.raw.send(bytes, pts, is_key)
    }

    /// Tells the decoder that no packets follow, so that it returns the frames that it holds back for reordering. After
    /// the last frame, only [`VideoDecoder::reset`] makes the decoder useful again.
    pub fn flush(&mut self) {
        self.raw.flush();
    }

    /// Returns the next frame in presentation order, or `None` when the decoder needs a packet or is at the end.
    ///
    /// # Errors
    /// [`DecodeError::Frame`] for damaged frames; [`DecodeError::PixelFormat`].
    pub fn receive(&mut self) -> Result<Option<FrameRef<'_>>, DecodeError> {
        let Some(frame) = self.raw.receive()? else { return Ok(None) };
        let colors = Colors {
            range: self.raw.get(c"color_range"),
            matrix: self.raw.get(c"colorspace"),
            location: self.raw.get(c"chroma_sample_location"),
        };
        // SAFETY: the frame stays unchanged until the next call, which needs `&mut self`.
        unsafe { FrameRef::read(self.raw.libav(), frame, colors, PhantomData) }.map(Some)
    }

    /// Drops all packets and frames, so that the next packet may be any key frame. This is much cheaper than a new
    /// decoder.
    pub fn reset(&mut self) {
        self.raw.reset();
    }

    /// Sets what the decoder does with damage, from the next packet on.
    ///
    /// # Errors
    /// [`DecodeError::Open`] if the library does not know the option.
    pub fn set_damage(&mut self, damage: Damage) -> Result<(), DecodeError> {
        let value = match damage {
            Damage::Refused => c"explode",
            Damage::Concealed => c"crccheck",
        };
        self.raw.set_text(c"err_detect", value)
    }
}
