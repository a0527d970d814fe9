//! Decodes clips into tensors.

use stoker_decode::{Channels, Orientation, Pixels, Samples, resize};
use stoker_libav::FrameRef;
use stoker_types::catch_panic;

use crate::convert::to_rgb;
use crate::rotate::rotate;
use crate::scratch::Scratch;
use crate::{BadVideo, ByteSource, ClipFrames, Decoders, Layout, Position, Rotation, VideoClip, VideoIndex};

/// What is decoded: a video, and where its bytes are.
#[derive(Debug)]
pub struct Video<'a, S: ?Sized> {
    /// The index of the video.
    pub index: &'a VideoIndex,
    /// The bytes of the file.
    pub source: &'a S,
}

impl VideoClip {
    /// Chooses frames as [`VideoClip::frames_of`] does, and decodes them into `tensor`, which must have
    /// [`VideoClip::row_bytes_of`] bytes. Returns the number of frames that lie in the video.
    ///
    /// # Errors
    /// [`BadVideo`] for starts outside of the video, damaged frames, frames with another size than the index says (if
    /// the clip has no size), formats of pixels that are not supported, and bytes that the source does not have.
    pub fn decode<S: ByteSource + ?Sized>(
        &self,
        decoders: &mut Decoders,
        video: &Video<'_, S>,
        column: Option<Position>,
        draw: u64,
        tensor: &mut [u8],
    ) -> Result<usize, BadVideo> {
        let frames = self.frames_of(video.index, column, draw)?;
        self.decode_frames(decoders, video, &frames, tensor)?;
        Ok(frames.num_valid())
    }

    /// Decodes frames that were chosen before.
    ///
    /// # Errors
    /// As [`VideoClip::decode`].
    pub fn decode_frames<S: ByteSource + ?Sized>(
        &self,
        decoders: &mut Decoders,
        video: &Video<'_, S>,
        frames: &ClipFrames,
        tensor: &mut [u8],
    ) -> Result<(), BadVideo> {
        let expected = self.row_bytes_of(video.index);
        if tensor.len() != expected || frames.positions().len() != self.frames {
            let found = format!("{} frames into {} bytes", frames.positions().len(), tensor.len());
            return Err(BadVideo::new(format!("decoding {found}, but the clip has {expected} bytes")));
        }
        decoders.limit_pixels(self.pixels_max);
        let mut scratch = std::mem::take(&mut decoders.scratch);
        let mut target = Target { clip: self, index: video.index, size: self.size_of(video.index), tensor };
        let decode = || {
            decoders.decode_frames(video.index, video.source, frames, |position, frame| {
                let mut places = frames.positions().iter().enumerate().filter(|(_, wanted)| **wanted == position);
                let Some((first, _)) = places.next() else { return Ok(()) };
                target.write(frame, first, &mut scratch)?;
                places.for_each(|(place, _)| target.repeat(first, place));
                Ok(())
            })
        };
        let result = catch_panic(decode, BadVideo::new);
        decoders.scratch = scratch;
        result
    }
}

/// The tensor of a clip.
struct Target<'a> {
    clip: &'a VideoClip,
    index: &'a VideoIndex,
    /// Height and width.
    size: (u32, u32),
    tensor: &'a mut [u8],
}

impl Target<'_> {
    /// Converts a frame and writes it as the clip's frame with number `place`.
    fn write(&mut self, frame: &FrameRef<'_>, place: usize, scratch: &mut Scratch) -> Result<(), BadVideo> {
        let colors = (
            frame.range.or(self.index.range()).unwrap_or_default(),
            frame.matrix.or(self.index.matrix()).unwrap_or_default(),
        );
        let Scratch { rgb, rotated, resized, rows, resizer } = scratch;
        to_rgb(frame, colors, rgb, rows)?;
        let mut size = (frame.height, frame.width);
        let rotation = match self.clip.orientation {
            Orientation::Apply => self.index.rotation(),
            Orientation::Ignore => Rotation::None,
        };
        if rotation != Rotation::None {
            for plane in &mut *rgb {
                rotate(plane, (size.0 as usize, size.1 as usize), rotation, rotated);
                std::mem::swap(plane, rotated);
            }
            if rotation.is_quarter() {
                size = (size.1, size.0);
            }
        }
        if self.clip.size.is_none() && size != self.size {
            let ((height, width), (stated_height, stated_width)) = (size, self.size);
            let reason =
                format!("a frame has {width} x {height} pixels, the file states {stated_width} x {stated_height}");
            return Err(BadVideo::new(reason));
        }
        let is_resized = size != self.size;
        for (channel, plane) in rgb.iter().enumerate() {
            let (channels, samples) = (Channels::Gray, Samples::UInt8);
            let source = Pixels { bytes: plane, height: size.0, width: size.1, channels, samples };
            let to_size = self.size;
            let interpolation = self.clip.interpolation;
            let mut scale = |target: &mut [u8]| {
                let scaled = resize(resizer, &source, &source.region(), interpolation, to_size, target);
                scaled.map_err(|bad| BadVideo::new(bad.reason))
            };
            match (self.plane(place, channel), is_resized) {
                (Some(target), true) => scale(target)?,
                (Some(target), false) => target.copy_from_slice(plane),
                (None, true) => {
                    let Some(target) = resized.get_mut(channel) else { continue };
                    target.resize(to_size.0 as usize * to_size.1 as usize, 0);
                    scale(target)?;
                }
                (None, false) => {}
            }
        }
        if self.clip.layout == Layout::Thwc {
            self.interleave(place, if is_resized { resized } else { rgb });
        }
        Ok(())
    }

    fn pixels(&self) -> usize {
        self.size.0 as usize * self.size.1 as usize
    }

    /// Returns a plane of the tensor, if the layout has planes.
    fn plane(&mut self, place: usize, channel: usize) -> Option<&mut [u8]> {
        let number = match self.clip.layout {
            Layout::Tchw => place * 3 + channel,
            Layout::Cthw => channel * self.clip.frames + place,
            Layout::Thwc => return None,
        };
        let pixels = self.pixels();
        self.tensor.get_mut(number * pixels..(number + 1) * pixels)
    }

    fn interleave(&mut self, place: usize, [reds, greens, blues]: &[Vec<u8>; 3]) {
        let bytes = self.pixels() * 3;
        let target = self.tensor.get_mut(place * bytes..(place + 1) * bytes).unwrap_or_default();
        let pixels = target.as_chunks_mut::<3>().0.iter_mut();
        for (((pixel, red), green), blue) in pixels.zip(reds).zip(greens).zip(blues) {
            *pixel = [*red, *green, *blue];
        }
    }

    /// Copies the clip's frame `from` to `to`.
    fn repeat(&mut self, from: usize, to: usize) {
        let pixels = self.pixels();
        let (num_parts, length, step) = match self.clip.layout {
            Layout::Tchw | Layout::Thwc => (1, pixels * 3, 0),
            Layout::Cthw => (3, pixels, self.clip.frames * pixels),
        };
        for part in 0..num_parts {
            let start = part * step;
            let source = start + from * length..start + (from + 1) * length;
            if source.end <= self.tensor.len() && start + (to + 1) * length <= self.tensor.len() {
                self.tensor.copy_within(source, start + to * length);
            }
        }
    }
}
