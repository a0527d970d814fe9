//! Reads from object stores: body bytes go to the slots of their rows as they arrive.

use futures::StreamExt;
use stoker_lake::RangeReader;

use crate::Result;
use crate::coalesce::Read;

/// Reads a range into the slots of its rows; one GET.
pub(crate) async fn read_remote(reader: &RangeReader, read: &mut Read) -> Result<()> {
    let range = read.offset..read.offset + read.length;
    let mut body = reader.read_stream(range.clone()).await?;
    let mut at = 0u64;
    let mut piece = 0;
    while let Some(chunk) = body.next().await {
        let chunk = chunk?;
        let chunk_end = at + chunk.len() as u64;
        while let Some(target) = read.pieces.get_mut(piece) {
            let target_end = target.at + target.slot.len() as u64;
            let (from, to) = (at.max(target.at), chunk_end.min(target_end));
            if from < to {
                let source = &chunk[(from - at) as usize..(to - at) as usize];
                target.slot[(from - target.at) as usize..(to - target.at) as usize].copy_from_slice(source);
            }
            if target_end > chunk_end {
                break;
            }
            piece += 1;
        }
        at = chunk_end;
    }
    if at < read.length {
        return Err(reader.too_short(range, at).into());
    }
    Ok(())
}
