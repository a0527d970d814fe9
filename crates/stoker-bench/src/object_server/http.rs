//! The part of HTTP/1.1 that S3 clients use.

use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use stoker_types::to_usize;

use crate::object_server::bandwidth::Bandwidth;
use crate::object_server::stats::Stats;
use crate::object_server::xml::escape;

/// The maximum number of bytes of a line of a request's header.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// The maximum number of bytes of a body that is read as text.
const TEXT_BYTES_MAX: u64 = 8 << 20;
/// The number of bytes of a file that are read and sent at once. They fit the processor's cache, where they stay
/// between the read and the write. According to our measurement over the loopback interface, `sendfile`, which copies
/// in the kernel, costs a quarter more processor time.
const PIECE_BYTES: usize = 256 << 10;

/// The header of a request.
#[derive(Debug)]
pub struct Request {
    pub method: String,
    /// Percent-decoded.
    pub path: String,
    /// Percent-decoded.
    query: Vec<(String, String)>,
    /// The names are in lower case.
    headers: Vec<(String, String)>,
    pub keep_alive: bool,
}

impl Request {
    /// Reads the next request of a connection; returns `None` if the client has closed it.
    ///
    /// # Errors
    /// The input is no HTTP request, or the request has a body without a `Content-Length`.
    pub fn read(input: &mut BufReader<TcpStream>) -> Result<Option<Self>> {
        let first = read_line(input)?;
        let mut words = first.split(' ');
        let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next()) else {
            return if first.is_empty() { Ok(None) } else { Err(invalid("the request line is not HTTP")) };
        };
        let mut headers = Vec::new();
        loop {
            let line = read_line(input)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid("a header has no colon"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(&name.replace('+', " ")), decoded(&value.replace('+', " ")))
        };
        let query = query.split('&').filter(|part| !part.is_empty()).map(pair).collect();
        let mut request = Self { method: method.into(), path: decoded(path), query, headers, keep_alive: true };
        if request.header("transfer-encoding").is_some() {
            return Err(invalid("bodies need a Content-Length"));
        }
        let closes = request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        request.keep_alive = version == "HTTP/1.1" && !closes;
        Ok(Some(request))
    }

    /// Returns a header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns a parameter of the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// Reads a line without its end; returns an empty line at the end of the input.
fn read_line(input: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    input.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
    if line.len() as u64 == LINE_BYTES_MAX {
        return Err(invalid("a line is too long"));
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_string())
}

/// Percent-decodes a text, and replaces bytes that are not UTF-8.
pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *byte == b'%') {
            Some(value) => {
                bytes.push(value);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}

/// The body of a response.
#[derive(Debug)]
pub enum Body {
    Empty,
    /// No body, but the length of the body that `GET` would send.
    Length(u64),
    Text(String),
    File(File, Range<u64>),
}

/// A response.
#[derive(Debug)]
pub struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Body,
}

impl Response {
    /// A response without a body.
    pub fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::Empty }
    }

    /// Makes a response whose body is XML.
    pub fn xml(text: String) -> Self {
        let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{text}");
        Self::new(200).with_header("Content-Type", "application/xml").with_body(Body::Text(text))
    }

    /// Makes an error response in the format of S3.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        let text = format!("<Error><Code>{code}</Code><Message>{}</Message></Error>", escape(message));
        Self { status, ..Self::xml(text) }
    }

    /// Makes the response to a request that failed with an error of the file system.
    pub fn from_io_error(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Self::error(404, "NoSuchKey", "there is no such object"),
            ErrorKind::PermissionDenied => Self::error(403, "AccessDenied", &error.to_string()),
            _ => Self::error(500, "InternalError", &error.to_string()),
        }
    }

    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn with_body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    fn head(&self) -> String {
        let reason = match self.status {
            200..300 => "OK",
            _ => "Error",
        };
        let length = match &self.body {
            Body::Empty => 0,
            Body::Length(length) => *length,
            Body::Text(text) => text.len() as u64,
            Body::File(_, range) => range.end - range.start,
        };
        let mut head = format!("HTTP/1.1 {} {reason}\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.status != 204 {
            head.push_str(&format!("Content-Length: {length}\r\n"));
        }
        head.push_str("\r\n");
        head
    }
}

/// A request whose body may not have been read yet, with the socket for its response.
pub struct Exchange<'a> {
    input: &'a mut BufReader<TcpStream>,
    output: &'a mut TcpStream,
    /// Buffer for parts of files; all requests of a connection use it.
    piece: &'a mut Vec<u8>,
    is_head: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    waits: bool,
    /// The number of bytes of the body that have not been read.
    left: u64,
}

impl<'a> Exchange<'a> {
    pub fn new(
        request: &Request,
        input: &'a mut BufReader<TcpStream>,
        output: &'a mut TcpStream,
        piece: &'a mut Vec<u8>,
    ) -> Self {
        let left = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let waits = request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        Self { input, output, piece, is_head: request.method == "HEAD", waits, left }
    }

    /// Writes the body to a file and returns its length.
    pub fn copy_body(&mut self, file: &mut impl Write) -> Result<u64> {
        if std::mem::take(&mut self.waits) {
            self.output.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let expected = std::mem::take(&mut self.left);
        let copied = std::io::copy(&mut self.input.by_ref().take(expected), file)?;
        if copied == expected { Ok(copied) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    /// Reads the body as text.
    pub fn read_text(&mut self) -> Result<String> {
        if self.left > TEXT_BYTES_MAX {
            return Err(invalid("the body is too long"));
        }
        let mut bytes = Vec::new();
        self.copy_body(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads and discards the rest of the body.
    pub fn skip_body(&mut self) -> Result<()> {
        if self.left > 0 {
            self.copy_body(&mut std::io::sink())?;
        }
        Ok(())
    }

    /// Sends the response as fast as the bandwidth allows, and counts the bytes of its body.
    pub fn answer(&mut self, response: Response, stats: Option<&Stats>, bandwidth: Option<&Bandwidth>) -> Result<()> {
        let mut head = response.head();
        if self.is_head {
            return self.output.write_all(head.as_bytes());
        }
        let wait = |bytes: u64| bandwidth.iter().for_each(|bandwidth| bandwidth.wait(bytes));
        let count = |bytes: u64| stats.iter().for_each(|stats| stats.add_sent(bytes));
        match response.body {
            Body::Empty | Body::Length(_) => self.output.write_all(head.as_bytes()),
            Body::Text(text) => {
                head.push_str(&text);
                wait(text.len() as u64);
                self.output.write_all(head.as_bytes())?;
                count(text.len() as u64);
                Ok(())
            }
            Body::File(file, range) => {
                self.output.write_all(head.as_bytes())?;
                self.piece.resize(PIECE_BYTES, 0);
                let mut at = range.start;
                while at < range.end {
                    let length = (range.end - at).min(PIECE_BYTES as u64);
                    let piece = &mut self.piece[..to_usize(length)];
                    file.read_exact_at(piece, at)?;
                    wait(length);
                    self.output.write_all(piece)?;
                    count(length);
                    at += length;
                }
                Ok(())
            }
        }
    }
}
