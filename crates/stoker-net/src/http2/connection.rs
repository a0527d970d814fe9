//! An HTTP/2 connection with one request, whose answer is read as a sequence of bytes.

use std::time::Duration;

use http::HeaderMap;

use super::frame::{ACK, END_HEADERS, END_STREAM, FrameHead, HEAD_BYTES, Kind, PADDED, STREAM, WINDOW_BYTES_MAX};
use super::headers::{HeaderBlock, Headers};
use super::hpack::{Decoder, HEADER_BYTES_MAX};
use super::link::{Io, Link, Patience};
use super::output::Output;
use super::payload::Payload;
use super::window::ReceiveWindow;
use super::{FRAME_BYTES, Request, WINDOW_BYTES, reason_name, violation};
use crate::{Error, Result};

/// The largest payload of a control frame that is accepted. Such a frame with its head fits into the input buffer.
const CONTROL_BYTES_MAX: usize = HEADER_BYTES_MAX - (1 << 10);
/// The HTTP/2 error code of a stream that is not needed any more.
const CANCEL: u32 = 8;
/// The most consecutive frames without data; a server that sends more is cut off.
const FRAMES_WITHOUT_DATA_MAX: u32 = 10_000;

/// The answer to one request. Dropping it closes the connection, which cancels the call.
///
/// The connection has no task, so nothing happens between calls. While nobody reads the answer, the server uses up its
/// flow-control windows and gets no answer to its pings.
pub struct Connection {
    link: Link,
    connection_window: ReceiveWindow,
    stream_window: ReceiveWindow,
    decoder: Decoder,
    payload: Payload,
    /// A header block whose last frame has not come.
    block: Option<HeaderBlock>,
    phase: Phase,
    response: Headers,
    settings_came: bool,
    frames_without_data: u32,
}

/// How much of the answer came.
enum Phase {
    Nothing,
    /// The headers came. Data may follow, then trailers.
    Data,
    /// The answer ended: with trailers, or with the last data frame (`None`).
    Ended(Option<HeaderMap>),
}

impl Connection {
    /// Sends the request and waits for the headers of its answer.
    ///
    /// # Errors
    /// `Interrupted` for a server that does not speak HTTP/2, and for connections that break.
    pub async fn open(io: Box<dyn Io>, request: &Request<'_>, patience: Patience) -> Result<Self> {
        let mut connection = Self {
            link: Link::new(io, Output::new(request), patience),
            connection_window: ReceiveWindow::new(WINDOW_BYTES),
            stream_window: ReceiveWindow::new(WINDOW_BYTES),
            decoder: Decoder::new(),
            payload: Payload::default(),
            block: None,
            phase: Phase::Nothing,
            response: Headers::default(),
            settings_came: false,
            frames_without_data: 0,
        };
        while let Phase::Nothing = connection.phase {
            connection.frame().await?;
        }
        Ok(connection)
    }

    /// Sets the longest time without a byte of the answer, after which the connection counts as broken.
    pub fn set_silence_max(&mut self, silence_max: Duration) {
        self.link.set_silence_max(silence_max);
    }

    /// Reads at least one byte of the answer and returns the number of bytes, which is zero at the end of the answer.
    /// Large reads go from the socket straight to `out`. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// `Interrupted` when the connection breaks, and for a server that violates HTTP/2.
    pub async fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        while self.payload.data == 0 {
            if let Phase::Ended(_) = self.phase {
                return Ok(0);
            }
            self.frame().await?;
        }
        let wanted = out.len().min(self.payload.data);
        let read = self.link.read(&mut out[..wanted]).await?;
        self.payload.data -= read;
        Ok(read)
    }

    /// The status and the headers of the response.
    pub fn response(&self) -> &Headers {
        &self.response
    }

    /// The trailers of a response that was read to its end; `None` where it ended without trailers.
    ///
    /// # Errors
    /// `Interrupted` for a response that has not ended.
    pub fn end(&mut self) -> Result<Option<HeaderMap>> {
        match &self.phase {
            Phase::Ended(trailers) => Ok(trailers.clone()),
            Phase::Nothing | Phase::Data => Err(Error::broken("the answer ended before it was complete")),
        }
    }

    /// Reads one frame, except for the payload of a data frame. A frame is taken from the input buffer only when it is
    /// there as a whole.
    async fn frame(&mut self) -> Result<()> {
        while self.payload.skip > 0 {
            self.payload.skip -= self.link.skip(self.payload.skip).await?;
        }
        let fill_bytes = self.payload.fill_bytes();
        let head = self.link.peek(HEAD_BYTES, fill_bytes).await?;
        let head = FrameHead::parse(std::array::from_fn(|at| head[at]));
        self.check_order(head)?;
        let bytes = match head.kind {
            Kind::Data => usize::from(head.has(PADDED)),
            // The first 8 bytes hold the last stream and the error code. A text for people may follow, which is
            // skipped.
            Kind::GoAway => 8,
            Kind::Unknown => 0,
            _ if head.length <= CONTROL_BYTES_MAX => head.length,
            _ => return Err(violation("a frame is too long")),
        };
        let skip = head.length.checked_sub(bytes).ok_or_else(|| violation("a frame is too short"))?;
        let bytes = HEAD_BYTES + bytes;
        let payload = self.link.peek(bytes, fill_bytes).await?[HEAD_BYTES..].to_vec();
        self.link.consume(bytes);
        self.frames_without_data += 1;
        if self.frames_without_data > FRAMES_WITHOUT_DATA_MAX {
            return Err(violation("it sends too many frames without data in a row"));
        }
        if head.kind == Kind::Data {
            return self.take_data(head, payload.first().copied());
        }
        self.payload.skip = skip;
        self.take(head, &payload)
    }

    /// Refuses frames that must not come now.
    fn check_order(&self, head: FrameHead) -> Result<()> {
        if !self.settings_came && (head.kind != Kind::Settings || head.has(ACK)) {
            return Err(Error::broken("the server does not speak HTTP/2"));
        }
        if head.length > FRAME_BYTES as usize {
            return Err(violation("a frame is too long"));
        }
        if self.block.is_some() != (head.kind == Kind::Continuation) {
            return Err(violation("a CONTINUATION frame is missing or unexpected"));
        }
        let allowed = match head.kind {
            Kind::Data | Kind::Headers | Kind::Continuation | Kind::Reset => head.stream == STREAM,
            Kind::Settings | Kind::Ping | Kind::GoAway => head.stream == 0,
            Kind::WindowUpdate => head.stream == 0 || head.stream == STREAM,
            Kind::Priority | Kind::Unknown => true,
            Kind::PushPromise => false,
        };
        if !allowed {
            return Err(violation(format!("a {:?} frame came for stream {}", head.kind, head.stream)));
        }
        Ok(())
    }

    fn take(&mut self, head: FrameHead, payload: &[u8]) -> Result<()> {
        match head.kind {
            Kind::Headers => {
                let block = HeaderBlock::begin(head, payload)?;
                self.take_block(block, head.has(END_HEADERS))
            }
            Kind::Continuation => {
                let mut block = self.block.take().ok_or_else(|| violation("CONTINUATION without HEADERS"))?;
                block.extend(payload)?;
                self.take_block(block, head.has(END_HEADERS))
            }
            Kind::Settings if head.has(ACK) && payload.is_empty() => Ok(()),
            Kind::Settings if !head.has(ACK) && payload.len().is_multiple_of(6) => {
                self.settings_came = true;
                self.link.output.follow(payload)
            }
            Kind::Ping if payload.len() == 8 && head.has(ACK) => Ok(()),
            Kind::Ping if payload.len() == 8 => self.link.output.put(Kind::Ping, ACK, 0, payload),
            Kind::WindowUpdate => self.link.output.open(head.stream, number(payload)?),
            Kind::Reset => {
                let code = number(payload)?;
                // A server cancels an answer that nobody reads.
                let unread = if code == CANCEL { ", for example because the client did not read it" } else { "" };
                Err(Error::broken(format!("the server cancelled the answer: {}{unread}", reason_name(code))))
            }
            Kind::GoAway => {
                let (last_stream, reason) = payload.split_at(4);
                let reason = format!("the server closes the connection: {}", reason_name(number(reason)?));
                if number(last_stream)? < STREAM {
                    return Err(Error::broken(reason));
                }
                self.link.set_going_away(reason);
                Ok(())
            }
            Kind::Priority if payload.len() == 5 => Ok(()),
            Kind::Unknown => Ok(()),
            Kind::Data | Kind::Settings | Kind::Ping | Kind::Priority | Kind::PushPromise => {
                Err(violation("a frame has a wrong size"))
            }
        }
    }

    fn take_data(&mut self, head: FrameHead, padding: Option<u8>) -> Result<()> {
        let Phase::Data = self.phase else { return Err(violation("data comes before headers")) };
        // The window counts padding too. The bytes return to the window before the data is read, because unread data in
        // the socket slows the server down anyway.
        for (stream, window) in [(0, &mut self.connection_window), (STREAM, &mut self.stream_window)] {
            if let Some(used) = window.receive(head.length)? {
                self.link.output.put(Kind::WindowUpdate, 0, stream, &used.to_be_bytes())?;
            }
        }
        self.payload = Payload::data(head, padding)?;
        if self.payload.data > 0 {
            self.frames_without_data = 0;
        }
        if head.has(END_STREAM) {
            self.phase = Phase::Ended(None);
        }
        Ok(())
    }

    fn take_block(&mut self, block: HeaderBlock, is_whole: bool) -> Result<()> {
        if !is_whole {
            self.block = Some(block);
            return Ok(());
        }
        let headers = block.decode(&mut self.decoder)?;
        self.phase = match (&self.phase, headers.status, block.ends_stream) {
            // An interim response, which comes before the final one.
            (Phase::Nothing, Some(status), false) if status.is_informational() => Phase::Nothing,
            (Phase::Nothing, Some(_), ends_stream) => {
                self.response = headers;
                if ends_stream { Phase::Ended(Some(self.response.fields.clone())) } else { Phase::Data }
            }
            (Phase::Data, None, true) => Phase::Ended(Some(headers.fields)),
            _ => return Err(violation("headers have no status, or come in place of trailers")),
        };
        Ok(())
    }
}

/// Decodes a payload, or a part of one, that is a 32-bit number.
fn number(payload: &[u8]) -> Result<u32> {
    let bytes = payload.try_into().map_err(|_| violation("a frame has a wrong size"))?;
    // The highest bit is reserved, or belongs to numbers that have no meaning here.
    Ok(u32::from_be_bytes(bytes) & WINDOW_BYTES_MAX)
}
