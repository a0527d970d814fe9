//! Opus (RFC 6716), in Ogg, Matroska and MP4. libavcodec decodes it.

use std::ops::Range;

use crate::BadSound;
use crate::blocks::{Blocks, SoundBlock};
use crate::opus_decoder::OpusDecoder;
use crate::opus_head::{OPUS_RATE, packet_samples};

/// How many samples before a sample are decoded: two seconds.
///
/// A decoder predicts from what it decoded before, and forgets it with time. RFC 7845 (section 4.6) recommends 80 ms,
/// after which samples still differ by some percent from those of a decoder that began earlier. After two seconds they
/// were equal in all streams that were measured, or differed by 1e-6.
const PREROLL_SAMPLES: i64 = 2 * OPUS_RATE as i64;

/// The packets of a stream. Positions count samples from the beginning of the first packet.
pub(crate) trait OpusPackets {
    /// Moves to a packet that begins at or before a position, if that is after the beginning. Returns where it begins.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files.
    fn seek(&mut self, position: i64) -> Result<i64, BadSound>;

    /// Returns the next packet, or `None` after the last one.
    ///
    /// # Errors
    /// [`BadSound`] for damaged and missing parts of the file.
    fn next(&mut self) -> Result<Option<&[u8]>, BadSound>;
}

/// A stream of Opus whose packets were found.
pub(crate) struct Opus<'a> {
    packets: Box<dyn OpusPackets + 'a>,
    decoder: OpusDecoder,
    /// Where the sound begins and ends.
    begin: i64,
    end: i64,
    /// The position after the last packet that was read.
    read: i64,
    /// The position of the next sample that the decoder returns, which holds some back.
    next: i64,
    /// Packets that end before this position are not decoded.
    decoded_from: i64,
    is_flushed: bool,
}

impl<'a> Opus<'a> {
    /// The sound of a range of positions.
    pub fn new(packets: Box<dyn OpusPackets + 'a>, decoder: OpusDecoder, span: Range<i64>) -> Self {
        Self {
            packets,
            decoder,
            begin: span.start,
            end: span.end,
            read: 0,
            next: 0,
            decoded_from: 0,
            is_flushed: false,
        }
    }

    /// Decodes until there are samples. Returns their number; zero at the end of the stream.
    fn decode(&mut self) -> Result<usize, BadSound> {
        loop {
            let num_samples = self.decoder.receive()?;
            if num_samples > 0 || self.is_flushed {
                return Ok(num_samples);
            }
            let Some(packet) = self.packets.next()? else {
                self.decoder.flush();
                self.is_flushed = true;
                continue;
            };
            let length = i64::try_from(packet_samples(packet)?).unwrap_or(0);
            self.read = self.read.saturating_add(length);
            if self.read <= self.decoded_from {
                self.next = self.read;
            } else {
                self.decoder.send(packet)?;
            }
        }
    }
}

impl Blocks for Opus<'_> {
    fn seek(&mut self, position: u64) -> Result<(), BadSound> {
        let position = self.begin.saturating_add_unsigned(position);
        self.decoded_from = position.saturating_sub(PREROLL_SAMPLES);
        self.read = self.packets.seek(self.decoded_from)?;
        self.next = self.read;
        self.is_flushed = false;
        self.decoder.reset();
        Ok(())
    }

    fn next_block(&mut self) -> Result<Option<SoundBlock<'_>>, BadSound> {
        if self.next >= self.end {
            return Ok(None);
        }
        let length = i64::try_from(self.decode()?).unwrap_or(0).min(self.end.saturating_sub(self.next));
        if length == 0 {
            return Ok(None);
        }
        let position = self.next.saturating_sub(self.begin);
        self.next = self.next.saturating_add(length);
        Ok(Some(SoundBlock { position, length: length.unsigned_abs(), samples: Ok(self.decoder.samples()) }))
    }

    fn count(&mut self) -> Result<u64, BadSound> {
        Ok(u64::try_from(self.end.saturating_sub(self.begin)).unwrap_or(0))
    }
}
