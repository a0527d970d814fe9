//! Reads MP4 and MOV files (ISO/IEC 14496-12, QuickTime File Format).
//!
//! ```text
//! file ──boxes──► moov ──movie──► tracks ──tables──► frames ──edits──► times
//!                 moof ──────────────────fragments──►┘
//! ```
//!
//! The readers take slices of the file. No count of a file is trusted: memory is taken for frames only, each of which has
//! bytes of its own in the file.

mod boxes;
mod description;
mod edits;
mod fragments;
mod movie;
mod tables;

use crate::index::Parts;
use crate::{BadVideo, VideoIndex};

/// Reads the index of the video track with number `track`, counted from 0.
pub(crate) fn read(file: &[u8], track: usize) -> Result<VideoIndex, BadVideo> {
    let mut moov = None;
    let mut has_fragments = false;
    for found in boxes::Boxes::new(file, "the file") {
        let found = found?;
        match &found.kind {
            b"moov" if moov.is_none() => moov = Some(found.content),
            b"moof" => has_fragments = true,
            _ => {}
        }
    }
    let moov = moov.ok_or_else(|| BadVideo::new("the file has no box moov, which holds its tables"))?;
    let movie = movie::Movie::read(moov)?;
    let Some(video) = movie.videos.get(track) else {
        let reason = format!("the file has {} video tracks; number {track} was asked for", movie.videos.len());
        return Err(BadVideo::new(reason));
    };
    let mut budget = Budget::new(file.len() as u64);
    let (mut frames, end) = tables::frames(&video.tables, &mut budget)?;
    if has_fragments {
        fragments::append(file, &movie, video.id, end, &mut frames, &mut budget)?;
    }
    edits::apply(&mut frames, video, movie.timescale, has_fragments)?;
    let description = &video.description;
    VideoIndex::try_new(Parts {
        codec: description.codec,
        extradata: description.extradata.to_vec(),
        prefix: Vec::new(),
        height: description.height,
        width: description.width,
        rotation: video.rotation,
        time_base: (1, video.timescale),
        range: description.range,
        matrix: description.matrix,
        file_bytes: file.len() as u64,
        frames,
    })
}

/// The bytes of the file that no frame has taken yet. It limits the number of frames, as each has at least one byte.
pub(crate) struct Budget {
    file_bytes: u64,
    left: u64,
}

impl Budget {
    fn new(file_bytes: u64) -> Self {
        Self { file_bytes, left: file_bytes }
    }

    /// Takes the bytes of a frame after checking that they lie in the file.
    pub fn take(&mut self, number: usize, offset: u64, size: u32) -> Result<(), BadVideo> {
        if offset.checked_add(u64::from(size)).is_none_or(|end| end > self.file_bytes) {
            let reason = format!(
                "frame {number} has {size} bytes at offset {offset}, beyond the end of the file of {} bytes",
                self.file_bytes
            );
            return Err(BadVideo::new(reason));
        }
        self.left = self
            .left
            .checked_sub(u64::from(size))
            .ok_or_else(|| BadVideo::new("the frames have more bytes than the file"))?;
        Ok(())
    }

    /// Checks that so many further frames are possible.
    pub fn check_count(&self, count: u64) -> Result<(), BadVideo> {
        if count > self.left {
            let reason = format!("the file lists {count} frames, but has {} bytes", self.file_bytes);
            return Err(BadVideo::new(reason));
        }
        Ok(())
    }
}
