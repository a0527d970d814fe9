//! Edit lists of MP4 files (ISO/IEC 14496-12, 8.6.6), which tell the delay of the encoder and the padding.

/// The part of a track that is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The first sample.
    pub skipped: u64,
    /// The most samples from there on.
    pub kept: Option<u64>,
}

impl Edit {
    /// Returns the number of samples that are played, of all samples of the track.
    pub fn apply(&self, total: u64) -> u64 {
        total.saturating_sub(self.skipped).min(self.kept.unwrap_or(u64::MAX))
    }
}

/// Reads the first edit of a track that plays something. Later edits are ignored, as are edits that delay the track. `None`
/// if there is none.
pub(crate) fn read(file: &[u8], track_id: u32, sample_rate: u32) -> Option<Edit> {
    let movie = child(file, b"moov")?;
    let movie_scale = time_scale(child(movie, b"mvhd")?)?;
    let track = boxes(movie).filter(|(name, _)| name == b"trak").map(|(_, body)| body);
    let mut tracks = track.filter(|track| child(track, b"tkhd").and_then(field_after_times) == Some(track_id));
    let track = tracks.next()?;
    let media_scale = time_scale(child(child(track, b"mdia")?, b"mdhd")?)?;
    let list = child(child(track, b"edts")?, b"elst")?;
    let (version, entries) = (*list.first()?, list.get(8..)?);
    let mut edits = entries.chunks_exact(if version == 1 { 20 } else { 12 }).filter_map(|entry| edit(version, entry));
    let (duration, begin) = edits.next()?;
    let rate = u128::from(sample_rate);
    let samples = |ticks: u64, scale: u32| u64::try_from(u128::from(ticks) * rate / u128::from(scale)).ok();
    let skipped = samples(begin, media_scale)?;
    // A time scale that is coarser than samples was rounded, and cuts off no samples.
    let duration = if movie_scale < sample_rate { duration.saturating_add(1) } else { duration };
    let kept = samples(duration, movie_scale).filter(|kept| *kept > 0);
    Some(Edit { skipped, kept })
}

/// Parses an edit: its duration in the time scale of the movie, and its start in that of the track. `None` for edits that
/// play nothing.
fn edit(version: u8, entry: &[u8]) -> Option<(u64, u64)> {
    let wide = |at: usize| Some(u64::from_be_bytes(*entry.get(at..)?.first_chunk()?));
    let narrow = |at: usize| Some(u32::from_be_bytes(*entry.get(at..)?.first_chunk()?));
    let (duration, begin) = match version {
        1 => (wide(0)?, wide(8)?.cast_signed()),
        _ => (narrow(0)?.into(), narrow(4)?.cast_signed().into()),
    };
    Some((if duration == 0 { u64::MAX } else { duration }, u64::try_from(begin).ok()?))
}

/// Iterates over the names and bodies of boxes.
fn boxes(bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (header, body) = rest.split_first_chunk::<8>()?;
        let [s0, s1, s2, s3, name @ ..] = *header;
        let (size, body, header_bytes) = match u32::from_be_bytes([s0, s1, s2, s3]) {
            0 => (rest.len() as u64, body, 8),
            1 => {
                let (size, body) = body.split_first_chunk::<8>()?;
                (u64::from_be_bytes(*size), body, 16)
            }
            size => (size.into(), body, 8),
        };
        let size = usize::try_from(size.checked_sub(header_bytes)?).unwrap_or(usize::MAX);
        let (body, after) = body.split_at(size.min(body.len()));
        rest = after;
        Some((name, body))
    })
}

fn child<'a>(bytes: &'a [u8], name: &[u8; 4]) -> Option<&'a [u8]> {
    boxes(bytes).find(|(found, _)| found == name).map(|(_, body)| body)
}

/// Reads the field after the times of creation and modification.
fn field_after_times(body: &[u8]) -> Option<u32> {
    let offset = if *body.first()? == 1 { 20 } else { 12 };
    Some(u32::from_be_bytes(*body.get(offset..)?.first_chunk()?))
}

fn time_scale(body: &[u8]) -> Option<u32> {
    field_after_times(body).filter(|scale| *scale > 0)
}
