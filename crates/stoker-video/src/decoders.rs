//! Decoders that stay open between clips.

use std::sync::Arc;

use stoker_libav::{Codec, Damage, DecodeError, DecoderOptions, FrameRef, Libav, VideoDecoder};

use crate::h264;
use crate::packets::PacketRun;
use crate::scratch::Scratch;
use crate::{BadVideo, ByteSource, ClipFrames, VideoIndex};

/// The decoders and buffers of one thread. Opening a decoder takes memory and time; a decoder decodes any video with the
/// same codec and the same configuration.
pub struct Decoders {
    libav: Arc<Libav>,
    options: DecoderOptions,
    /// The decoder that was used last is the last one.
    open: Vec<Open>,
    num_open_max: usize,
    pub(crate) scratch: Scratch,
}

struct Open {
    codec: Codec,
    extradata: Vec<u8>,
    decoder: VideoDecoder,
    is_used: bool,
}

/// The number of decoders that stay open, unless another one is set.
const NUM_OPEN_MAX: usize = 4;

impl Decoders {
    /// Creates decoders with one thread each, of which four stay open.
    pub fn new(libav: Arc<Libav>) -> Self {
        Self {
            libav,
            options: DecoderOptions::default(),
            open: Vec::new(),
            num_open_max: NUM_OPEN_MAX,
            scratch: Scratch::default(),
        }
    }

    /// Sets how many decoders stay open; at least one.
    pub fn with_num_open_max(mut self, num_open_max: usize) -> Self {
        self.num_open_max = num_open_max.max(1);
        self
    }

    /// Sets the number of threads of each decoder that is opened from now on.
    pub fn with_num_threads(mut self, num_threads: usize) -> Self {
        self.options.num_threads = num_threads;
        self
    }

    /// The number of decoders that are open.
    pub fn num_open(&self) -> usize {
        self.open.len()
    }

    /// Decodes frames of a video, and calls `visit` once for each of them in decoding order, with its position in
    /// presentation order. The frames are not converted.
    ///
    /// # Errors
    /// [`BadVideo`] for damaged frames, bytes that the source does not have, and the errors of `visit`.
    pub fn decode_frames<S: ByteSource + ?Sized>(
        &mut self,
        index: &VideoIndex,
        source: &S,
        frames: &ClipFrames,
        mut visit: impl FnMut(usize, &FrameRef<'_>) -> Result<(), BadVideo>,
    ) -> Result<(), BadVideo> {
        let positions = by_decoding_order(index, frames);
        let mut open = self.take(index)?;
        for run in frames.packets(index).runs() {
            let mut visit = |frame: usize, pixels: &FrameRef<'_>| {
                let found = positions.binary_search_by_key(&frame, |(frame, _)| *frame);
                found.ok().and_then(|at| positions.get(at)).map_or(Ok(()), |(_, position)| visit(*position, pixels))
            };
            // A decoder that failed is closed.
            open.decode(index, source, run, &mut visit)?;
        }
        self.open.push(open);
        Ok(())
    }

    /// Sets the most pixels of a frame. Open decoders with another limit are closed.
    pub(crate) fn limit_pixels(&mut self, pixels_max: u64) {
        if self.options.pixels_max != pixels_max {
            self.options.pixels_max = pixels_max;
            self.open.clear();
        }
    }

    /// Takes a decoder out of those that are open, or opens one. Closes the one that was not used for longest.
    fn take(&mut self, index: &VideoIndex) -> Result<Open, BadVideo> {
        let fits = |open: &Open| open.codec == index.codec() && open.extradata == index.extradata();
        if let Some(at) = self.open.iter().rposition(fits) {
            return Ok(self.open.remove(at));
        }
        if self.open.len() >= self.num_open_max {
            self.open.remove(0);
        }
        let decoder = VideoDecoder::new(&self.libav, index.codec(), index.extradata(), self.options)?;
        Ok(Open { codec: index.codec(), extradata: index.extradata().to_vec(), decoder, is_used: false })
    }
}

impl Open {
    /// Decodes the frames of a run. Times of packets are their positions in decoding order, which are unique.
    fn decode<S: ByteSource + ?Sized>(
        &mut self,
        index: &VideoIndex,
        source: &S,
        run: &PacketRun,
        visit: &mut impl FnMut(usize, &FrameRef<'_>) -> Result<(), BadVideo>,
    ) -> Result<(), BadVideo> {
        if self.is_used {
            self.decoder.reset();
        }
        self.is_used = true;
        let mut missing = run.wanted.clone();
        let mut joined = Vec::new();
        for position in run.range.start..run.tail.end {
            let Some(frame) = index.frames().get(position) else { continue };
            let bytes = source.bytes(frame.offset, frame.size as usize);
            let mut bytes = bytes.ok_or_else(|| {
                BadVideo::new(format!("the {} bytes at offset {} were not read", frame.size, frame.offset))
            })?;
            if !index.prefix().is_empty() {
                joined.clear();
                joined.extend_from_slice(index.prefix());
                joined.extend_from_slice(bytes);
                bytes = &joined;
            }
            if position == run.range.start {
                let is_refresh = index.codec() != Codec::H264 || h264::is_refresh(index.extradata(), bytes);
                self.decoder.set_damage(if is_refresh { Damage::Refused } else { Damage::Concealed })?;
            }
            let time = i64::try_from(position).unwrap_or(i64::MAX);
            let named = |error: DecodeError| BadVideo::new(format!("frame {position} in decoding order: {error}"));
            let mut sent = self.decoder.send(bytes, time, frame.is_key);
            if sent == Err(DecodeError::Full) {
                self.receive(&mut missing, visit)?;
                sent = self.decoder.send(bytes, time, frame.is_key);
            }
            match sent {
                // The decoder misses the frames on which this one depends.
                Err(_) if run.leading.contains(&position) => {}
                sent => sent.map_err(named)?,
            }
            self.receive(&mut missing, visit)?;
            if missing.is_empty() {
                return Ok(());
            }
        }
        self.decoder.flush();
        self.receive(&mut missing, visit)?;
        match missing.first() {
            Some(frame) => {
                let reason = format!("frame {frame} in decoding order did not come out of the decoder");
                Err(BadVideo::new(format!("{reason}; frame {} may be no key frame", run.range.start)))
            }
            None => Ok(()),
        }
    }

    /// Passes the frames that are ready and wanted to `visit`.
    fn receive(
        &mut self,
        missing: &mut Vec<usize>,
        visit: &mut impl FnMut(usize, &FrameRef<'_>) -> Result<(), BadVideo>,
    ) -> Result<(), BadVideo> {
        while let Some(frame) = self.decoder.receive()? {
            let position = frame.pts.and_then(|pts| usize::try_from(pts).ok());
            let Some(at) = missing.iter().position(|wanted| Some(*wanted) == position) else { continue };
            visit(missing.remove(at), &frame)?;
        }
        Ok(())
    }
}

/// Returns the wanted frames by their position in decoding order, with that in presentation order.
fn by_decoding_order(index: &VideoIndex, frames: &ClipFrames) -> Vec<(usize, usize)> {
    let shown = index.shown();
    let place = |position: &usize| Some((*shown.get(*position)? as usize, *position));
    let mut positions: Vec<(usize, usize)> = frames.positions().iter().filter_map(place).collect();
    positions.sort_unstable();
    positions.dedup();
    positions
}
