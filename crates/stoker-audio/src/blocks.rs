//! Decoders that give blocks of samples in order.

use std::ops::Range;

use symphonia::core::audio::GenericAudioBufferRef;

use crate::BadSound;
use crate::planes::Planes;

/// Some consecutive samples of all channels.
pub(crate) struct SoundBlock<'a> {
    /// The position of the first sample, at the rate of the file. Samples before zero are not part of the sound.
    pub position: i64,
    /// The number of samples of each channel.
    pub length: u64,
    /// The samples, or what is wrong with them.
    pub samples: Result<GenericAudioBufferRef<'a>, BadSound>,
}

/// A file that is decoded block by block.
pub(crate) trait Blocks {
    /// Moves to a block that begins at or before the sample at `position`. From this sample on, the blocks have the same
    /// samples as without the move.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files.
    fn seek(&mut self, position: u64) -> Result<(), BadSound>;

    /// Decodes the next block. Returns `None` at the end of the file.
    ///
    /// # Errors
    /// [`BadSound`] for damage after which the position is unknown.
    fn next_block(&mut self) -> Result<Option<SoundBlock<'_>>, BadSound>;

    /// Counts the samples of each channel without decoding them.
    ///
    /// # Errors
    /// [`BadSound`] for damaged files.
    fn count(&mut self) -> Result<u64, BadSound>;
}

/// Decodes a range of samples into `planes`, from their start on. Returns the position after the last sample of the
/// range, or the end of the sound if that comes first, which may be before the range.
///
/// # Errors
/// [`BadSound`] for damage inside the range.
pub(crate) fn read(blocks: &mut dyn Blocks, range: Range<u64>, planes: &mut Planes) -> Result<u64, BadSound> {
    blocks.seek(range.start)?;
    let (mut next, mut seen) = (range.start, 0);
    while next < range.end
        && let Some(SoundBlock { position, length, samples }) = blocks.next_block()?
    {
        let end = u64::try_from(position.saturating_add_unsigned(length)).unwrap_or(0);
        seen = seen.max(end);
        if end <= next {
            continue;
        }
        if u64::try_from(position).is_ok_and(|begin| begin > next) {
            return Err(BadSound::new(format!("samples {next} to {position} are missing or damaged")));
        }
        let samples = samples?;
        let skipped = i64::try_from(next).unwrap_or(i64::MAX).saturating_sub(position);
        let (skipped, wanted) = (usize::try_from(skipped).unwrap_or(0), end.min(range.end) - next);
        let at = usize::try_from(next - range.start).unwrap_or(usize::MAX);
        planes.put_block(&samples, skipped, usize::try_from(wanted).unwrap_or(0), at)?;
        next += wanted;
    }
    Ok(if next == range.start { seen.min(next) } else { next })
}
