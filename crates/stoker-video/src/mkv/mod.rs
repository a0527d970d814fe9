//! Reads MKV and WebM files (Matroska, RFC 9559).
//!
//! ```text
//! file ──ebml──► Segment ──► Tracks ──track──► codec, size
//!                        └─► Cluster ─► SimpleBlock, BlockGroup ──block──► frames
//! ```

mod block;
mod ebml;
mod track;

use block::Frames;
use ebml::{Element, Elements};
use track::Track;

use crate::index::Parts;
use crate::{BadVideo, VideoIndex};

const SEGMENT: u32 = 0x1853_8067;
const INFO: u32 = 0x1549_A966;
const TIMESTAMP_SCALE: u32 = 0x2A_D7B1;
const TRACKS: u32 = 0x1654_AE6B;
const TRACK_ENTRY: u32 = 0xAE;
const CLUSTER: u32 = 0x1F43_B675;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Reads the index of the video track with number `track`, counted from 0.
pub(crate) fn read(file: &[u8], track: usize) -> Result<VideoIndex, BadVideo> {
    let segment = find(Elements::of_file(file), SEGMENT)?.ok_or_else(|| BadVideo::new("the file has no segment"))?;
    let (mut scale, mut num_videos) = (1_000_000, None);
    let mut chosen: Option<(Track<'_>, Frames)> = None;
    let mut elements = segment.children();
    while let Some(element) = elements.next() {
        let element = element?;
        match element.id {
            INFO => {
                if let Some(found) = find(element.children(), TIMESTAMP_SCALE)? {
                    scale = found.unsigned()?;
                }
            }
            TRACKS if num_videos.is_none() => {
                let videos = videos(&element)?;
                num_videos = Some(videos.len());
                let video = videos.into_iter().nth(track);
                chosen = video.map(|video| {
                    let frames = Frames::new(video.number);
                    (video, frames)
                });
            }
            // A cluster of unknown length ends where the next one begins.
            CLUSTER if element.is_open => elements.enter(&element),
            CLUSTER => {
                for element in element.children() {
                    read_frame(&mut chosen, &element?)?;
                }
            }
            _ => read_frame(&mut chosen, &element)?,
        }
    }
    let Some((track, Frames { frames, .. })) = chosen else {
        let reason = format!("the file has {} video tracks; number {track} was asked for", num_videos.unwrap_or(0));
        return Err(BadVideo::new(reason));
    };
    let divisor = gcd(scale, SECOND);
    let unit =
        |value: u64| u32::try_from(value / divisor.max(1)).map_err(|_| BadVideo::new("the unit of time is too large"));
    VideoIndex::try_new(Parts {
        codec: track.codec,
        extradata: track.extradata.to_vec(),
        prefix: track.prefix.to_vec(),
        height: track.height,
        width: track.width,
        rotation: track.rotation,
        time_base: (unit(scale)?, unit(SECOND)?),
        range: track.range,
        matrix: track.matrix,
        file_bytes: file.len() as u64,
        frames,
    })
}

/// Reads an element of a cluster. Without a track, frames are skipped.
fn read_frame(chosen: &mut Option<(Track<'_>, Frames)>, element: &Element<'_>) -> Result<(), BadVideo> {
    chosen.as_mut().map_or(Ok(()), |(_, frames)| frames.read(element))
}

fn videos<'a>(tracks: &Element<'a>) -> Result<Vec<Track<'a>>, BadVideo> {
    let mut videos = Vec::new();
    for element in tracks.children() {
        let element = element?;
        if element.id == TRACK_ENTRY {
            videos.extend(Track::read(&element)?);
        }
    }
    Ok(videos)
}

/// Returns the first element of a kind.
fn find<'a>(elements: Elements<'a>, id: u32) -> Result<Option<Element<'a>>, BadVideo> {
    for element in elements {
        let element = element?;
        if element.id == id {
            return Ok(Some(element));
        }
    }
    Ok(None)
}

fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}
