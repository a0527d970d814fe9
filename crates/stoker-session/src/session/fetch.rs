//! Reads batches, and opens the streams that they come from.

use std::sync::Arc;

use stoker_batch::{Batch, PackColumns};
use stoker_types::{ReadOptions, ReceiptPart, Share, Slice, StreamSpec};

use crate::session::delivery::Delivery;
use crate::session::inner::{Ahead, Inner, Open};
use crate::session::{BatchKey, PassId, Session, SessionOptions, Turn};
use crate::{DecodeOptions, Error, Result, SampleStream, StreamHandle};

/// A batch that was read and that the consumer has not got yet.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The rows. Batches of packs may lack columns, which `packs` makes.
    pub batch: Batch,
    /// The columns of packs, if the batch does not have all of them.
    pub packs: Option<Arc<PackColumns>>,
    /// The positions of the rows.
    pub share: Share,
    /// The number of the global batch, counted from the start of the training.
    pub step: u64,
    /// What the consumer gives back when it got the batch.
    pub key: BatchKey,
    /// The specification of the stream that the batch belongs to.
    pub spec: Arc<StreamSpec>,
}

/// The stream of a session while a fetch waits for its next batch. Dropping the value gives the stream back, so that a
/// cancelled fetch loses nothing.
struct Lent<'a> {
    session: &'a Session,
    number: u64,
    turn: Turn,
    stream: Option<Box<SampleStream>>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        self.session.with(|inner| match &mut inner.open {
            Some(open) if open.number == self.number => open.stream = Some(stream),
            _ => inner.dropped.push(*stream),
        });
    }
}

/// The state of a turn's stream.
enum Found<'a> {
    Stream(Lent<'a>),
    /// No stream of this turn is open.
    NotOpen,
    /// The turn has ended, or its epoch.
    Over,
}

impl Session {
    /// Returns the next batch of a pass, or `None` at the end of the epoch and after [`Session::close`]. Where the
    /// progress is changed meanwhile, the pass continues there. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// As for [`Session::fetch`]; `InvalidRequest` if a newer pass took over.
    pub async fn next(&self, pass: PassId) -> Result<Option<Fetched>> {
        while let Some(turn) = self.turn(pass)? {
            match self.fetch(turn).await? {
                None if self.current_turn() != turn => {}
                fetched => return Ok(fetched),
            }
        }
        Ok(None)
    }

    /// Returns the next batch of a turn, or `None` at the end of the epoch and when the turn has ended. The progress does
    /// not move before [`Session::count`]. Cancelling the future loses nothing.
    ///
    /// The first call of a turn opens the stream, and writes an entry of the run log if the steps do not follow from the
    /// entry before. As soon as the last rows of the epoch are being read, the next epoch is opened as a prefetch, also
    /// while this call waits. If the first batch of a prefetched stream fails, the stream is opened once more, because
    /// the reason for the failure may be over.
    ///
    /// # Errors
    /// A slice that cannot be opened; an error of reading, receiving or decoding the next batch; an error of writing the
    /// run log; `InvalidRequest` if another thread waits for a batch of this session.
    pub async fn fetch(&self, turn: Turn) -> Result<Option<Fetched>> {
        loop {
            let mut lent = match self.lend(turn)? {
                Found::Stream(lent) => lent,
                Found::Over => return Ok(None),
                Found::NotOpen => {
                    self.open(turn).await?;
                    continue;
                }
            };
            match self.take(&mut lent).await {
                Ok(taken) => return Ok(self.taken(lent, taken)),
                Err(error) if self.is_final(lent) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Takes the stream of a turn out of the session.
    fn lend(&self, turn: Turn) -> Result<Found<'_>> {
        self.with(|inner| {
            if inner.kept.turn != turn {
                return Ok(Found::Over);
            }
            let Some(open) = inner.open.as_mut().filter(|open| open.turn == turn) else { return Ok(Found::NotOpen) };
            if open.delivery.is_ended() {
                return Ok(Found::Over);
            }
            match open.stream.take() {
                Some(stream) => {
                    Ok(Found::Stream(Lent { session: self, number: open.number, turn, stream: Some(stream) }))
                }
                None => {
                    Err(Error::invalid("the stream is closed, in use by another thread, or was opened before a fork"))
                }
            }
        })
    }

    /// Waits for the next batch. If the last rows begin to be read meanwhile, it opens the next epoch.
    async fn take(&self, lent: &mut Lent<'_>) -> Result<Option<(Batch, ReceiptPart)>> {
        let Some(stream) = &mut lent.stream else { return Ok(None) };
        let until_read = stream.until_read();
        tokio::select! {
            biased;
            taken = stream.take() => return taken,
            () = until_read => {}
        }
        self.open_ahead(lent.turn);
        stream.take().await
    }

    /// Records what a stream returned, and gives the stream back. At the end of the epoch it drops the stream.
    ///
    /// It waits for nothing: a fetch that was cancelled here would lose the batch, which counts as read.
    fn taken(&self, mut lent: Lent<'_>, taken: Option<(Batch, ReceiptPart)>) -> Option<Fetched> {
        let stats = lent.stream.as_ref().map(|stream| stream.stats());
        let is_read = lent.stream.as_ref().is_none_or(|stream| stream.is_read());
        let is_end = taken.is_none();
        let (number, turn) = (lent.number, lent.turn);
        let ended = if is_end { lent.stream.take() } else { None };
        drop(ended);
        let fetched = self.with(|inner| {
            let open = inner.open.as_mut().filter(|open| open.number == number)?;
            open.is_early = false;
            open.stats = stats.unwrap_or(open.stats);
            let Some((batch, part)) = taken else {
                open.delivery.end();
                return None;
            };
            let share = open.delivery.read(batch.step, part);
            inner.kept.unread = (turn, batch.step.saturating_add(1));
            let is_last = batch.step.saturating_add(1) >= inner.kept.num_steps;
            let key = BatchKey { turn, step: batch.step, position: batch.cursor.position, is_last };
            let step = inner.kept.progress.first_step.saturating_add(batch.step);
            let packs = inner.handle.packs_of(&batch);
            Some(Fetched { batch, packs, share, step, key, spec: inner.spec.clone() })
        });
        drop(lent);
        if is_end || is_read {
            self.open_ahead(turn);
        }
        fetched
    }

    /// Drops a stream that failed. Returns whether its error is final: it is not if the stream was a prefetch that
    /// delivered nothing, nor if its turn has ended.
    fn is_final(&self, mut lent: Lent<'_>) -> bool {
        let (number, stream) = (lent.number, lent.stream.take());
        drop(stream);
        self.with(|inner| match &inner.open {
            Some(open) if open.number == number => {
                let is_final = !open.is_early;
                inner.close_open();
                is_final
            }
            _ => false,
        })
    }

    /// Opens the rest of the epoch.
    async fn open(&self, turn: Turn) -> Result<()> {
        self.log_turn(turn).await?;
        let found = self.with(|inner| inner.opening_of(turn));
        let Some((opening, ahead)) = found else { return Ok(()) };
        let (number, stream, is_early) = match ahead {
            Some(ahead) => {
                let mut stream = ahead.stream;
                stream.begin(opening.options.read.memory_budget_bytes);
                (Some(ahead.number), stream, true)
            }
            None => (None, opening.open()?, false),
        };
        self.with(|inner| {
            if inner.kept.turn != turn || inner.open.is_some() {
                inner.dropped.push(*stream);
                return;
            }
            let number = number.unwrap_or_else(|| inner.next_number());
            let (delivery, stats) = (Delivery::new(opening.handle.receipt(&opening.slice)), stream.stats());
            inner.open = Some(Open { number, turn, stream: Some(stream), delivery, is_early, stats });
        });
        Ok(())
    }

    /// Opens the next epoch as a prefetch, unless it is open already or not needed. An error is not reported: the pass
    /// that needs the epoch opens it again and reports the error then.
    fn open_ahead(&self, turn: Turn) {
        let Some(opening) = self.with(|inner| inner.next_epoch_of(turn)) else { return };
        let Ok(stream) = opening.open() else { return };
        self.with(|inner| {
            if inner.kept.turn != turn || inner.ahead.is_some() {
                inner.dropped.push(*stream);
                return;
            }
            inner.ahead = Some(Ahead { number: inner.next_number(), slice: opening.slice, stream });
        });
    }
}

/// A stream to open.
struct Opening {
    handle: Arc<StreamHandle>,
    slice: Slice,
    options: SessionOptions,
}

impl Opening {
    fn open(&self) -> Result<Box<SampleStream>> {
        let decode = DecodeOptions::for_stream(self.options.decode.as_ref(), &self.handle.schema())?;
        self.handle.start(&self.slice, &self.options.read, decode.as_ref()).map(Box::new)
    }
}

impl Inner {
    /// Returns the stream to open for a turn, from the first batch that was not read, with the prefetched stream if it
    /// is this one. Returns `None` if the turn has ended.
    fn opening_of(&mut self, turn: Turn) -> Option<(Opening, Option<Ahead>)> {
        if self.kept.turn != turn {
            return None;
        }
        self.close_open();
        let mut slice = self.kept.options.slice(&self.kept.progress);
        if self.kept.unread.0 == turn {
            slice.first_step = self.kept.unread.1;
        }
        let ahead = self.ahead.take_if(|ahead| ahead.slice == slice);
        self.close_ahead();
        Some((self.opening(slice), ahead))
    }

    fn next_epoch_of(&self, turn: Turn) -> Option<Opening> {
        if self.kept.turn != turn || self.ahead.is_some() || !self.kept.options.opens_ahead {
            return None;
        }
        let mut opening = self.opening(self.kept.options.slice(&self.kept.following()));
        opening.options.read = ReadOptions { ahead: true, ..opening.options.read };
        Some(opening)
    }

    fn opening(&self, slice: Slice) -> Opening {
        Opening { handle: self.handle.clone(), slice, options: self.kept.options.clone() }
    }
}
