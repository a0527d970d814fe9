//! Clusters and their blocks, which hold frames (RFC 9559, 5.1.3 and 10).

use super::ebml::{Element, number};
use crate::BadVideo;
use crate::index::FrameEntry;

const TIMESTAMP: u32 = 0xE7;
const SIMPLE_BLOCK: u32 = 0xA3;
const BLOCK_GROUP: u32 = 0xA0;
const BLOCK: u32 = 0xA1;
const REFERENCE: u32 = 0xFB;

/// Reads the frames of a track out of clusters.
pub(crate) struct Frames {
    pub frames: Vec<FrameEntry>,
    track: u64,
    /// The time of the current cluster.
    time: i64,
}

impl Frames {
    pub fn new(track: u64) -> Self {
        Self { frames: Vec::new(), track, time: 0 }
    }

    /// Reads an element of a cluster.
    pub fn read(&mut self, element: &Element<'_>) -> Result<(), BadVideo> {
        match element.id {
            TIMESTAMP => self.time = i64::try_from(element.unsigned()?).unwrap_or(i64::MAX),
            SIMPLE_BLOCK => self.push(element, |flags| flags & 0x80 != 0)?,
            BLOCK_GROUP => {
                let (mut block, mut has_reference) = (None, false);
                for element in element.children() {
                    let element = element?;
                    match element.id {
                        BLOCK => block = Some(element),
                        REFERENCE => has_reference = true,
                        _ => {}
                    }
                }
                if let Some(block) = block {
                    self.push(&block, |_| !has_reference)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends the frame of a block: track, time relative to the cluster, flags, frame.
    fn push(&mut self, block: &Element<'_>, is_key: impl Fn(u8) -> bool) -> Result<(), BadVideo> {
        let early = || BadVideo::new(format!("the block at offset {} ends early", block.start));
        let (track, length) = number(block.content, 8, true).ok_or_else(early)?;
        if track != self.track {
            return Ok(());
        }
        let Some([high, low, flags, frame @ ..]) = block.content.get(length..) else { return Err(early()) };
        if flags & 0x06 != 0 {
            return Err(BadVideo::new("blocks with several frames are not supported"));
        }
        if frame.is_empty() {
            return Ok(());
        }
        let size = u32::try_from(frame.len()).map_err(|_| BadVideo::new("a frame has more than 4 GiB"))?;
        let pts = self.time.saturating_add(i64::from(i16::from_be_bytes([*high, *low])));
        let offset = (block.start + length + 3) as u64;
        self.frames.push(FrameEntry { offset, size, pts, is_key: is_key(*flags), is_shown: true });
        Ok(())
    }
}
