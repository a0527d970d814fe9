//! What decoders of video and of sound have in common.
#![expect(unsafe_code, reason = "calls a C library")]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Arc;

use crate::frame::{field, set_field};
use crate::layout::{AGAIN, END, PADDING_BYTES, context, descriptor, packet, parameters};
use crate::{DecodeError, Libav};

/// What a decoder is opened for.
#[derive(Clone, Copy)]
pub(crate) struct DecoderSetup<'a> {
    /// The name of the codec in FFmpeg.
    pub codec: &'static CStr,
    /// The names of the decoders, the preferred one first.
    pub decoders: &'static [&'static CStr],
    /// The kind of data, a number of `layout::parameters`.
    pub media_type: i32,
    /// The configuration that the container keeps beside the packets.
    pub extradata: &'a [u8],
    /// Options that are set before the decoder is opened.
    pub options: &'a [(&'static CStr, i64)],
}

/// An open `AVCodecContext`, with a packet and a frame.
pub(crate) struct RawDecoder {
    libav: Arc<Libav>,
    codec: &'static CStr,
    context: *mut c_void,
    packet: *mut c_void,
    frame: *mut c_void,
}

// SAFETY: libavcodec allows to use a context, packet or frame from any thread, one after the other. All methods that use
// them need `&mut self`, and what is read from the frame borrows the decoder.
unsafe impl Send for RawDecoder {}

impl RawDecoder {
    /// Opens a decoder.
    ///
    /// # Errors
    /// [`DecodeError::NoDecoder`]; [`DecodeError::Open`] for damaged extradata.
    pub fn new(libav: &Arc<Libav>, setup: &DecoderSetup<'_>) -> Result<Self, DecodeError> {
        let codec = setup.codec;
        let found = libav.find_decoder(setup.decoders).ok_or(DecodeError::NoDecoder { codec: name(codec) })?;
        let functions = libav.functions();
        // SAFETY: `found` is an `AVCodec`. The allocated structures are freed when the decoder is dropped, also those
        // that are null.
        let (context, packet, frame) = unsafe {
            ((functions.avcodec_alloc_context3)(found), (functions.av_packet_alloc)(), (functions.av_frame_alloc)())
        };
        let decoder = Self { libav: Arc::clone(libav), codec, context, packet, frame };
        if context.is_null() || packet.is_null() || frame.is_null() {
            return Err(decoder.no_memory());
        }
        // Adds this number to the level of all messages about this decoder, which are then below every log level. FFmpeg
        // reads the higher bits of a level as a colour.
        // SAFETY: `context` is an `AVCodecContext`, see `layout.rs`.
        unsafe { set_field::<i32>(context, context::LOG_LEVEL_OFFSET, 128) };
        decoder.set_extradata(setup)?;
        for (option, value) in setup.options {
            decoder.set(option, *value)?;
        }
        // SAFETY: `context` was allocated for the codec `found` and is not open yet.
        decoder.opened(unsafe { (functions.avcodec_open2)(context, found, ptr::null_mut()) })?;
        Ok(decoder)
    }

    /// Gives the decoder the next packet in decoding order. `pts` returns with the packet's frame.
    ///
    /// # Errors
    /// [`DecodeError::Packet`] for damaged packets. [`DecodeError::Full`] when frames must be received first; the packet
    /// was not taken then.
    pub fn send(&mut self, bytes: &[u8], pts: i64, is_key: bool) -> Result<(), DecodeError> {
        let num_bytes = bytes.len();
        let bad = |reason: String| DecodeError::Packet { num_bytes, reason };
        if bytes.is_empty() {
            // An empty packet would end the stream.
            return Err(bad("it is empty".to_string()));
        }
        let size = i32::try_from(num_bytes).map_err(|_| bad("it is too large".to_string()))?;
        let functions = self.libav.functions();
        // SAFETY: `av_new_packet` allocates `size` bytes and zeroed padding, or fails. Offsets: see `layout.rs`. The
        // decoder takes its own reference to the bytes, which `av_packet_unref` does not touch.
        let result = unsafe {
            let allocated = (functions.av_new_packet)(self.packet, size);
            if allocated < 0 {
                return Err(bad(self.libav.text(allocated)));
            }
            let target = field::<*mut u8>(self.packet, packet::DATA);
            ptr::copy_nonoverlapping(bytes.as_ptr(), target, num_bytes);
            set_field::<i64>(self.packet, packet::PTS, pts);
            set_field::<i32>(self.packet, packet::FLAGS, if is_key { packet::FLAG_KEY } else { 0 });
            let result = (functions.avcodec_send_packet)(self.context, self.packet);
            (functions.av_packet_unref)(self.packet);
            result
        };
        match result {
            AGAIN => Err(DecodeError::Full),
            failed if failed < 0 => Err(bad(self.libav.text(failed))),
            _ => Ok(()),
        }
    }

    /// Tells the decoder that no packets follow.
    pub fn flush(&mut self) {
        // SAFETY: the context is open; null stands for the end of the stream. A second end gives an error, which has no
        // effect.
        unsafe { (self.libav.functions().avcodec_send_packet)(self.context, ptr::null()) };
    }

    /// Returns the next frame, an `AVFrame` that is unchanged until the next call; `None` when the decoder needs a packet
    /// or is at the end.
    ///
    /// # Errors
    /// [`DecodeError::Frame`] for damaged frames.
    pub fn receive(&mut self) -> Result<Option<*mut c_void>, DecodeError> {
        // SAFETY: context and frame are valid; the function frees what the frame held before.
        match unsafe { (self.libav.functions().avcodec_receive_frame)(self.context, self.frame) } {
            AGAIN | END => Ok(None),
            failed if failed < 0 => Err(DecodeError::Frame { reason: self.libav.text(failed) }),
            _ => Ok(Some(self.frame)),
        }
    }

    /// Drops all packets and frames.
    pub fn reset(&mut self) {
        // SAFETY: the context is open.
        unsafe { (self.libav.functions().avcodec_flush_buffers)(self.context) };
    }

    /// The library.
    pub fn libav(&self) -> &Libav {
        &self.libav
    }

    /// Sets an option to a text.
    ///
    /// # Errors
    /// [`DecodeError::Open`] if the library does not know the option.
    pub fn set_text(&mut self, option: &CStr, value: &CStr) -> Result<(), DecodeError> {
        let functions = self.libav.functions();
        // SAFETY: the context is an object with options; the name and the value end with zero bytes.
        self.opened(unsafe { (functions.av_opt_set)(self.context, option.as_ptr(), value.as_ptr(), 0) })
    }

    /// Returns the number of an option, or 0.
    pub fn get(&self, option: &CStr) -> i64 {
        let mut value = 0;
        // SAFETY: as for `set`; the function writes one number.
        let result =
            unsafe { (self.libav.functions().av_opt_get_int)(self.context, option.as_ptr(), 0, &raw mut value) };
        if result < 0 { 0 } else { value }
    }

    fn set(&self, option: &CStr, value: i64) -> Result<(), DecodeError> {
        // SAFETY: the context is an object with options; the name ends with a zero byte.
        self.opened(unsafe { (self.libav.functions().av_opt_set_int)(self.context, option.as_ptr(), value, 0) })
    }

    /// Hands the codec and its configuration to the context.
    fn set_extradata(&self, setup: &DecoderSetup<'_>) -> Result<(), DecodeError> {
        let (functions, extradata) = (self.libav.functions(), setup.extradata);
        let size = i32::try_from(extradata.len()).ok().filter(|size| *size < i32::MAX / 2);
        let size = size.ok_or_else(|| self.unopened("its extradata is too large".to_string()))?;
        // SAFETY: offsets: see `layout.rs`. The extradata is allocated as the structure demands, with its padding, and
        // freed with the structure. The context copies what it needs.
        let result = unsafe {
            let name = (functions.avcodec_descriptor_get_by_name)(self.codec.as_ptr());
            let mut raw = (functions.avcodec_parameters_alloc)();
            if name.is_null() || raw.is_null() {
                return Err(self.no_memory());
            }
            set_field::<i32>(raw, parameters::CODEC_TYPE, setup.media_type);
            set_field::<i32>(raw, parameters::CODEC_ID, field::<i32>(name, descriptor::ID));
            if size > 0 {
                let bytes = (functions.av_mallocz)(extradata.len() + PADDING_BYTES).cast::<u8>();
                if bytes.is_null() {
                    (functions.avcodec_parameters_free)(&raw mut raw);
                    return Err(self.no_memory());
                }
                ptr::copy_nonoverlapping(extradata.as_ptr(), bytes, extradata.len());
                set_field::<*mut u8>(raw, parameters::EXTRADATA, bytes);
                set_field::<i32>(raw, parameters::EXTRADATA_SIZE, size);
            }
            let result = (functions.avcodec_parameters_to_context)(self.context, raw);
            (functions.avcodec_parameters_free)(&raw mut raw);
            result
        };
        self.opened(result)
    }

    fn opened(&self, result: i32) -> Result<(), DecodeError> {
        if result < 0 { Err(self.unopened(self.libav.text(result))) } else { Ok(()) }
    }

    fn unopened(&self, reason: String) -> DecodeError {
        DecodeError::Open { codec: name(self.codec), reason }
    }

    fn no_memory(&self) -> DecodeError {
        self.unopened("memory is short".to_string())
    }
}

impl Drop for RawDecoder {
    fn drop(&mut self) {
        let functions = self.libav.functions();
        // SAFETY: nobody uses the structures any more; the functions accept null.
        unsafe {
            (functions.av_frame_free)(&raw mut self.frame);
            (functions.av_packet_free)(&raw mut self.packet);
            (functions.avcodec_free_context)(&raw mut self.context);
        }
    }
}

fn name(codec: &'static CStr) -> &'static str {
    codec.to_str().unwrap_or_default()
}
