//! Responses of hostile servers.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use http::HeaderMap;
use stoker_fuzz::Target;
use tokio::net::UnixStream;
use tokio::runtime::Builder;

use super::*;
use crate::http1::low_water::LowWater;

/// Parts of heads.
const TOKENS: [&str; 19] = [
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 206\r\n",
    "HTTP/1.0 ",
    "\r\n",
    "\r\n\r\n",
    "\n",
    ":",
    ": ",
    "content-length: 5\r\n",
    "content-length: 0\r\n",
    "content-length: +5\r\n",
    "content-length: 99999999999\r\n",
    "transfer-encoding: chunked\r\n",
    "connection: close\r\n",
    "connection: keep-alive\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "\t",
    "\0",
    "\u{e4}",
];

fn responses() -> Vec<Vec<u8>> {
    let text = [
        "HTTP/1.1 206 Partial Content\r\ncontent-length: 10\r\ncontent-range: bytes 0-9/100\r\netag: \"a\"\r\n\r\n0123456789",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabcd",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.0 503 Slow Down\r\nretry-after: 1\r\ncontent-length: 0\r\nx: \u{e4}\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\na: 1\r\na: 2\r\ncontent-length: 2\r\n\r\nno",
    ];
    let long = text[0].replace("content-length: 10", "content-length: 3010") + &"x".repeat(3_000);
    text.into_iter().map(String::from).chain([long]).map(String::into_bytes).collect()
}

/// Encodes a head with the same meaning.
fn encode(head: &AnswerHead) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {} \r\n", head.parts.status.as_u16()).into_bytes();
    for (name, value) in &head.parts.headers {
        bytes.extend([name.as_str().as_bytes(), b":", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

#[test]
fn any_head_is_refused_or_the_same_again() {
    let values = |head: &AnswerHead| -> (u16, HeaderMap, Option<u64>) {
        (head.parts.status.as_u16(), head.parts.headers.clone(), head.body_length)
    };
    Target::new("http1 heads").seeds(responses()).tokens(TOKENS).memory_bytes_max(1 << 20).run(|input| {
        let Ok(Some(head)) = parse(input) else { return false };
        assert!(head.length <= input.len());
        let again = parse(&encode(&head)).expect("a head").expect("a whole head");
        assert_eq!(values(&again), values(&head));
        assert!(again.is_kept || !head.is_kept);
        // A part of the head is not yet a head.
        assert!(parse(&input[..head.length - 1]).expect("the beginning of a head").is_none());
        assert_eq!(parse(&input[..head.length]).ok().flatten().map(|head| values(&head)), Some(values(&head)));
        if let Some(length) = head.body_length {
            let text = head.parts.headers[http::header::CONTENT_LENGTH].as_bytes();
            assert!(text.iter().all(u8::is_ascii_digit), "{length}");
        }
        true
    });
}

/// Returns a connection, and the end of its server. The connection is a pair of Unix sockets, because no number of them
/// uses up the ports of this host; the client does not notice the difference.
fn connect() -> io::Result<(Stream, UnixStream)> {
    let (client, server) = std::os::unix::net::UnixStream::pair()?;
    client.set_nonblocking(true)?;
    server.set_nonblocking(true)?;
    let client = tokio::net::TcpStream::from_std(OwnedFd::from(client).into())?;
    Ok((Stream::Plain(client, LowWater::default()), UnixStream::from_std(server)?))
}

/// Requests a body through a pool with one connection, on which the server sends `response` and closes it. Returns the
/// head, and the body as far as it came. The first result is that of [`Exchange::whole`], the second one that of
/// [`Exchange::into_body`].
async fn request(client: &Client, response: &[u8], is_whole: bool) -> Result<Option<Vec<u8>>, Failure> {
    let authority = Authority::from_static("127.0.0.1:0");
    let (stream, mut server) = connect().map_err(Failure::Connect)?;
    client.connections.keep(&authority, stream);
    let serve = async {
        let mut request = [0; 4];
        drop(server.read_exact(&mut request).await);
        drop(server.write_all(response).await);
        drop(server);
    };
    let ask = async {
        let exchange = client.send(&authority, b"GET ").await?;
        let Some(length) = exchange.body_length else { return Ok(None) };
        if is_whole {
            return Ok(exchange.whole(length, 1 << 20).await?.map(|(_, body)| body.to_vec()));
        }
        let (_, mut body) = exchange.into_body(length);
        let mut came = Vec::new();
        loop {
            let (mut one, mut two) = ([0; 7], [0; 4_000]);
            let mut slices = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            match body.read(&mut slices).await {
                Ok(0) => return Ok(Some(came)),
                Ok(count) => came.extend(one.iter().chain(&two).take(count)),
                Err(error) => return Err(Failure::Interrupted(error)),
            }
        }
    };
    tokio::join!(serve, ask).1
}

#[test]
fn bodies_are_whole_or_an_error() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let timeouts = Timeouts { connect: Duration::from_secs(4), answer: Duration::from_secs(4) };
    Target::new("http1 bodies").seeds(responses()).tokens(TOKENS).memory_bytes_max(3 << 20).run(|input| {
        let client = Client::new(None, timeouts);
        let head = parse(input).ok().flatten();
        let expected = head.as_ref().and_then(|head| Some((&input[head.length..], head.body_length?)));
        let body = runtime.block_on(request(&client, input, false));
        match (expected, &body) {
            (Some((rest, length)), Ok(Some(body))) => assert_eq!(Some(&body[..]), rest.get(..length as usize)),
            (Some((rest, length)), Err(Failure::Interrupted(_))) => assert!((rest.len() as u64) < length),
            (None, Ok(None) | Err(Failure::Connect(_))) => {}
            other => panic!("{other:?}"),
        }
        let whole = runtime.block_on(request(&client, input, true));
        match (expected, whole) {
            (Some((rest, length)), Ok(Some(body))) => assert_eq!(Some(&body[..]), rest.get(..length as usize)),
            (Some((rest, length)), Ok(None)) => assert!(length > 1 << 20 || rest.len() as u64 > length),
            (Some((rest, length)), Err(Failure::Interrupted(_))) => assert!((rest.len() as u64) < length),
            (None, Ok(None) | Err(Failure::Connect(_))) => {}
            other => panic!("{other:?}"),
        }
        head.is_some()
    });
}
