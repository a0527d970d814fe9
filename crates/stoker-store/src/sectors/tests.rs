//! Trailers: their format and flipped bits; and the way in which local files are read.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow, bail};
use bytes::Bytes;
use futures::FutureExt;
use stoker_checksum::checksum;

use super::local::{self, OpenFiles, READ_NOW_MAX, ReadFrom};
use super::store::Fetched;
use super::trailer::{SEGMENT_SECTORS, Trailer, Unread, trailer};
use super::{SECTOR_BYTES, TrailerBuilder};

/// A file of `num_bytes` that ends with the tables and the footer of a Lance file with two columns and one buffer.
fn lance_file(num_bytes: usize) -> Vec<u8> {
    let mut file: Vec<u8> = (0..num_bytes - 88).map(|index| (index * 7919 % 251) as u8).collect();
    let columns_at = file.len() as u64;
    file.extend([7; 48]);
    for number in [100, columns_at, columns_at + 32] {
        file.extend(number.to_le_bytes());
    }
    for number in [1u32, 2] {
        file.extend(number.to_le_bytes());
    }
    file.extend([2, 0, 2, 0]);
    file.extend(b"LANC");
    file
}

/// The same file with its trailer.
fn checked_file(num_bytes: usize) -> Option<Vec<u8>> {
    let mut file = lance_file(num_bytes);
    let sums: Vec<u32> = file.chunks(SECTOR_BYTES as usize).map(checksum).collect();
    let trailer = trailer("a-checked.lance", num_bytes as u64, &sums, &file[num_bytes - 88..])?;
    file.extend(trailer);
    Some(file)
}

fn parse(file: &[u8], end_bytes: usize) -> Result<Trailer, Unread> {
    let end = Bytes::copy_from_slice(&file[file.len().saturating_sub(end_bytes)..]);
    Trailer::parse("a-checked.lance", file.len() as u64, &end)
}

#[test]
fn a_trailer_tells_where_the_checksums_are() -> Result<()> {
    for num_bytes in [100, 4_095, 4_096, 4_097, 1 << 20, 65 << 20] {
        let file = checked_file(num_bytes).context("it ends like a file of Lance")?;
        let found = parse(&file, file.len()).map_err(|unread| anyhow!("{unread:?}"))?;
        assert_eq!((found.covered, found.file_bytes()), (num_bytes as u64, file.len() as u64));
        let num_segments = (num_bytes as u64).div_ceil(SECTOR_BYTES).div_ceil(SEGMENT_SECTORS);
        for index in 0..num_segments {
            let bytes = found.segment(index);
            assert!(found.is_segment(index, &file[bytes.start as usize..bytes.end as usize]));
        }
        assert!(found.has_end(0, &file) && found.has_end(num_bytes as u64 / 2, &file[num_bytes / 2..num_bytes]));
        let mut other = file.clone();
        *other.last_mut().context("it has bytes")? ^= 1;
        assert!(!found.has_end(0, &other));
        // If it is given too few bytes, the parser returns where the needed bytes begin.
        let mut end_bytes = 100;
        while let Err(unread) = parse(&file, end_bytes) {
            let Unread::BeginsAt(at) = unread else { bail!("{end_bytes} bytes: {unread:?}") };
            assert!(file.len() - at as usize > end_bytes, "it asks for more");
            end_bytes = file.len() - at as usize;
        }
    }
    assert!(trailer("a", 50, &[1], &[0; 50]).is_none(), "no file of Lance");
    Ok(())
}

#[test]
fn a_trailer_does_not_depend_on_the_pieces_that_are_written() -> Result<()> {
    let (file, checked) = (lance_file(10_000), checked_file(10_000).context("it ends like a file of Lance")?);
    for piece_bytes in [1, 7, 4_095, 4_096, 5_000, 10_000] {
        let mut builder = TrailerBuilder::new("a-checked.lance", 2, 1);
        file.chunks(piece_bytes).for_each(|piece| builder.add(piece));
        assert_eq!(builder.finish().map_err(Error::msg)?, checked[10_000..], "pieces of {piece_bytes} bytes");
    }
    let mut builder = TrailerBuilder::new("a-checked.lance", 2, 1);
    builder.add(&[7; 5_000]);
    let error = builder.finish().err().context("no file of Lance")?;
    assert_eq!(error, "data file a-checked.lance does not end with Lance's footer: cannot add its checksums");
    Ok(())
}

#[test]
fn a_flipped_bit_of_a_trailer_is_noticed() -> Result<()> {
    let file = checked_file(10_000).context("it ends like a file of Lance")?;
    let sums_end = 10_000 + 3 * 4;
    for at in sums_end..file.len() {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            let found = parse(&damaged, damaged.len());
            assert!(matches!(found, Err(Unread::Damaged(_))), "bit {bit} of byte {at}: {found:?}");
        }
    }
    let renamed = Trailer::parse("b-checked.lance", file.len() as u64, &file.into());
    assert_eq!(renamed.err(), Some(Unread::Damaged("the file was written under another name: a-checked.lance".into())));
    Ok(())
}

/// Occupies the only thread for blocking work until the returned sender is dropped.
fn busy_thread() -> std::sync::mpsc::Sender<()> {
    let (busy, done) = std::sync::mpsc::channel();
    drop(tokio::task::spawn_blocking(move || done.recv()));
    busy
}

#[test]
fn what_the_system_has_in_memory_is_read_without_another_thread() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.lance");
        let written: Vec<u8> = (0..3 * READ_NOW_MAX).map(|index| (index * 7919 % 251) as u8).collect();
        std::fs::write(&path, &written)?;
        let (files, location) = (Arc::<OpenFiles>::default(), object_store::path::Path::from_absolute_path(&path)?);
        let read_part = |range: Range<u64>| local::read(&files, &location, Some(range), ReadFrom::Anywhere);
        let is_right =
            |fetched: &Fetched, range: Range<u64>| fetched.bytes == written[range.start as usize..range.end as usize];
        // A read that opens a file takes another thread, and so does a long read.
        let busy = busy_thread();
        assert!(read_part(5..9).now_or_never().is_none());
        drop(busy);
        assert!(is_right(&read_part(5..9).await?, 5..9));
        let busy = busy_thread();
        for range in [5..9, 0..READ_NOW_MAX, 3 * READ_NOW_MAX - 7..3 * READ_NOW_MAX, 8..8] {
            let fetched = read_part(range.clone()).now_or_never().context("it was read a moment ago")??;
            assert!(is_right(&fetched, range.clone()) && fetched.start == range.start, "{range:?}");
        }
        let long = 1..READ_NOW_MAX + 2;
        assert!(read_part(long.clone()).now_or_never().is_none());
        drop(busy);
        assert!(is_right(&read_part(long.clone()).await?, long));
        // Beyond the end of a file there are no bytes, and a removed file cannot be read any more.
        let end = written.len() as u64;
        let (across, beyond) = (read_part(end - 2..end + 2).await?, read_part(end + 1..end + 2).await?);
        assert!(is_right(&across, end - 2..end) && beyond.bytes.is_empty());
        std::fs::remove_file(&path)?;
        let gone = read_part(5..9).await.err().context("there is no such file")?;
        assert!(matches!(gone, object_store::Error::NotFound { .. }), "{gone}");
        Ok(())
    })
}
