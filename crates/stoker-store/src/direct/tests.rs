//! Tests of the client with servers that send prepared responses over real sockets.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use http::{Request, StatusCode};
use hyper_util::client::proxy::matcher::Matcher;
use object_store::aws::AmazonS3Builder;
use object_store::client::{HttpClient, HttpConnector, HttpErrorKind, HttpRequestBody, HttpResponse};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, GetOptions, RetryConfig};
use stoker_net::http1::Timeouts;
use stoker_types::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::service::{DirectConnector, Handover};
use super::{DirectStore, SocketBody, destination, obstacle};
use crate::Error;
use crate::error::{is_of_overload, uninterpreted};

/// The response to one request, and whether the server closes the connection after it.
type Answer = (&'static str, bool);

/// Starts a server that accepts one connection after the other, and answers the requests of each in order. Its task
/// returns the heads of the requests.
async fn server(answers: Vec<Vec<Answer>>) -> Result<(String, JoinHandle<Result<Vec<String>>>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/bucket/key?x=1", listener.local_addr()?);
    let task = tokio::spawn(async move {
        let mut heads = Vec::new();
        for answers in answers {
            let (mut stream, _) = listener.accept().await?;
            for (answer, closes) in answers {
                heads.push(head(&mut stream).await?);
                stream.write_all(answer.as_bytes()).await?;
                if closes {
                    break;
                }
            }
        }
        Ok(heads)
    });
    Ok((url, task))
}

async fn head(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head)?)
}

fn client(answer: Duration) -> Result<HttpClient> {
    let timeouts = Timeouts { connect: Duration::from_secs(20), answer };
    Ok(DirectConnector::new(None, timeouts).connect(&ClientOptions::new().with_allow_http(true))?)
}

const PATIENT: Duration = Duration::from_secs(20);

/// Requests a range. Returns the body in its socket, or `None` for it when the usual client read the body.
async fn get(client: &HttpClient, url: &str) -> Result<(HttpResponse, Option<SocketBody>)> {
    let handover = Handover::default();
    let request = Request::get(url).header("range", "bytes=0-9").extension(handover.clone());
    let response = client.execute(request.body(HttpRequestBody::empty())?).await?;
    Ok((response, handover.take()))
}

/// Reads the rest of a body, up to three bytes at a time.
async fn rest(mut body: SocketBody) -> std::io::Result<String> {
    let mut text = String::new();
    loop {
        let (mut one, mut two) = ([0; 1], [0; 2]);
        let count = body.read(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]).await?;
        if count == 0 {
            return Ok(text);
        }
        text.extend(one.iter().chain(&two).take(count).map(|byte| char::from(*byte)));
    }
}

const TEN: &str = "HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\nContent-Range: bytes 0-9/99\r\n\r\n0123456789";

#[tokio::test]
async fn bodies_stay_in_their_sockets_and_connections_are_used_again() -> Result<()> {
    let (url, server) = server(vec![vec![(TEN, false), (TEN, false)]]).await?;
    let client = client(PATIENT)?;
    for _ in 0..2 {
        let (response, body) = get(&client, &url).await?;
        assert_eq!(response.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(response.headers()["content-range"], "bytes 0-9/99");
        assert_eq!(rest(body.context("no body")?).await?, "0123456789");
        assert!(response.into_body().bytes().await?.is_empty());
    }
    let heads = server.await??;
    assert!(heads[0].starts_with("GET /bucket/key?x=1 HTTP/1.1\r\n"), "{}", heads[0]);
    assert!(heads[0].contains("\r\nhost: 127.0.0.1:") && heads[0].contains("\r\nrange: bytes=0-9\r\n"), "{}", heads[0]);
    Ok(())
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_replaced() -> Result<()> {
    let closing = "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
    let (url, server) = server(vec![vec![(TEN, true)], vec![(closing, true)], vec![(TEN, true)]]).await?;
    let client = client(PATIENT)?;
    for expected in ["0123456789", "abc", "0123456789"] {
        let (_, body) = get(&client, &url).await?;
        assert_eq!(rest(body.context("no body")?).await?, expected);
    }
    assert_eq!(server.await??.len(), 3);
    Ok(())
}

#[tokio::test]
async fn a_body_that_was_not_read_to_its_end_takes_its_connection_along() -> Result<()> {
    let (url, server) = server(vec![vec![(TEN, false)], vec![(TEN, false)]]).await?;
    let client = client(PATIENT)?;
    let (_, body) = get(&client, &url).await?;
    let mut some = [0; 4];
    let count = body.context("no body")?.read(&mut [IoSliceMut::new(&mut some)]).await?;
    assert_eq!(&some[..count], &b"0123"[..count]);
    let (_, body) = get(&client, &url).await?;
    assert_eq!(rest(body.context("no body")?).await?, "0123456789");
    assert_eq!(server.await??.len(), 2);
    Ok(())
}

#[tokio::test]
async fn errors_are_read_whole() -> Result<()> {
    let busy = "HTTP/1.1 503 Slow Down\r\nContent-Length: 4\r\n\r\nbusy";
    let (url, server) = server(vec![vec![(busy, false), (TEN, false)]]).await?;
    let client = client(PATIENT)?;
    let (response, body) = get(&client, &url).await?;
    assert_eq!((response.status(), body.is_none()), (StatusCode::SERVICE_UNAVAILABLE, true));
    assert_eq!(response.into_body().bytes().await?, "busy");
    let (_, body) = get(&client, &url).await?;
    assert_eq!(rest(body.context("no body")?).await?, "0123456789");
    assert_eq!(server.await??.len(), 2);
    Ok(())
}

/// A store whose requests are retried `max_retries` times.
fn store(url: &str, max_retries: usize) -> Result<DirectStore> {
    let endpoint = url.split("/bucket").next().unwrap_or(url);
    let backoff = BackoffConfig { init_backoff: Duration::from_millis(1), ..BackoffConfig::default() };
    let builder = AmazonS3Builder::new().with_endpoint(endpoint).with_bucket_name("bucket").with_region("us-east-1");
    let builder = builder.with_access_key_id("a").with_secret_access_key("b").with_allow_http(true);
    let builder = builder.with_retry(RetryConfig { backoff, max_retries, ..RetryConfig::default() });
    let connector = DirectConnector::new(None, Timeouts { connect: PATIENT, answer: Duration::from_millis(500) });
    let store = builder.with_http_connector(connector).build()?;
    let reopen = Box::new(|| std::future::ready(None).boxed());
    Ok(DirectStore::new(store, reopen, Arc::default()))
}

const OBJECT: &str = "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nContent-Range: bytes 0-2/3\r\n\
                      ETag: \"e\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nabc";

/// Makes a GET that gets these responses and is retried `max_retries` times. Returns whether its body comes after a
/// refusal.
async fn check_refusal(answers: Vec<Answer>, max_retries: usize) -> Result<std::result::Result<bool, Error>> {
    let (url, _server) = server(vec![answers]).await?;
    let options = GetOptions { range: Some((0..3u64).into()), ..GetOptions::default() };
    let got = store(&url, max_retries)?.get(&Path::from("key"), options).await;
    Ok(match got {
        Ok((_, body)) => Ok(body.context("no body")?.was_refused()),
        Err(source) => Err(Error::storage("reading", source, uninterpreted)),
    })
}

fn overloaded(error: &Error) -> bool {
    matches!(error, Error::Storage { source, .. } if is_of_overload(source.as_ref()))
}

#[tokio::test]
async fn refusals_are_told_from_other_faults() -> Result<()> {
    let busy = "HTTP/1.1 503 Slow Down\r\nContent-Length: 4\r\n\r\nbusy";
    let many = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
    let broken = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    for (answer, is_overload) in [(busy, true), (many, true), (broken, false)] {
        let error = check_refusal(vec![(answer, false)], 0).await?.expect_err("a refusal");
        assert_eq!((error.kind(), overloaded(&error)), (ErrorKind::Unavailable, is_overload), "{error}");
        assert_eq!(check_refusal(vec![(answer, false), (OBJECT, false)], 1).await??, is_overload, "{answer}");
    }
    assert!(!check_refusal(vec![(OBJECT, false)], 0).await??);
    let begun = ("HTTP/1.1 206 Partial Content\r\n", false);
    let silence = check_refusal(vec![begun, begun], 0).await?;
    assert!(overloaded(&silence.expect_err("no answer")));
    Ok(())
}

#[tokio::test]
async fn bodies_without_a_length_are_read_by_the_usual_client() -> Result<()> {
    let chunked = "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let (url, server) = server(vec![vec![(chunked, true)], vec![(chunked, true)]]).await?;
    let (response, body) = get(&client(PATIENT)?, &url).await?;
    assert!(body.is_none());
    assert_eq!(response.into_body().bytes().await?, "abc");
    assert_eq!(server.await??.len(), 2);
    Ok(())
}

#[tokio::test]
async fn bodies_that_end_early_are_errors_and_longer_ones_are_cut() -> Result<()> {
    let short = "HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\n\r\n01234";
    let long = "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nConnection: close\r\n\r\n0123456789";
    let (url, server) = server(vec![vec![(short, true)], vec![(long, true)]]).await?;
    let client = client(PATIENT)?;
    let (_, body) = get(&client, &url).await?;
    let error = rest(body.context("no body")?).await.expect_err("half of the body");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    let (_, body) = get(&client, &url).await?;
    assert_eq!(rest(body.context("no body")?).await?, "012");
    server.await??;
    Ok(())
}

#[tokio::test]
async fn what_is_not_http_and_servers_that_say_nothing_are_errors() -> Result<()> {
    let endless = "HTTP/1.1 206 Partial Content\r\n";
    for (answer, kind) in [("hello\r\n\r\n", HttpErrorKind::Interrupted), (endless, HttpErrorKind::Interrupted)] {
        let (url, server) = server(vec![vec![(answer, true)]]).await?;
        let error = get(&client(PATIENT)?, &url).await.expect_err("no answer");
        let error = error.downcast::<object_store::client::HttpError>()?;
        assert_eq!(error.kind(), kind, "{error}");
        server.await??;
    }
    let (url, _server) = server(vec![vec![(endless, false), (endless, false)]]).await?;
    let error = get(&client(Duration::from_millis(50))?, &url).await.expect_err("no answer");
    assert_eq!(error.downcast::<object_store::client::HttpError>()?.kind(), HttpErrorKind::Timeout);
    Ok(())
}

#[test]
fn only_buckets_behind_a_proxy_need_the_usual_client() {
    let proxies = |http: &str, https: &str, no: &str| {
        Matcher::builder().http(http.to_string()).https(https.to_string()).no(no.to_string()).build()
    };
    let here = destination(Some("http://127.0.0.1:9000"), None);
    let r2 = destination(Some("https://account.r2.cloudflarestorage.com"), Some("auto"));
    let (aws, paris) = (destination(None, None), destination(None, Some("eu-west-3")));
    for (store, proxies, is_proxied) in [
        (&here, proxies("", "", ""), false),
        (&here, proxies("", "proxy:1", ""), false),
        (&here, proxies("proxy:1", "", ""), true),
        (&here, proxies("proxy:1", "proxy:1", "localhost,127.0.0.1"), false),
        (&r2, proxies("proxy:1", "", ""), false),
        (&r2, proxies("", "proxy:1", ""), true),
        (&r2, proxies("", "proxy:1", ".cloudflarestorage.com"), false),
        (&aws, proxies("", "proxy:1", "s3.us-east-1.amazonaws.com"), false),
        (&paris, proxies("", "proxy:1", "s3.us-east-1.amazonaws.com"), true),
        (&paris, proxies("", "proxy:1", ".amazonaws.com"), false),
    ] {
        let found = obstacle(&HashMap::new(), store, &proxies);
        assert_eq!(found.is_some(), is_proxied, "{store} with {proxies:?}: {found:?}");
    }
    let express = HashMap::from([("aws_s3_express".to_string(), "true".to_string())]);
    let foreign = obstacle(&express, &here, &proxies("", "", ""));
    assert_eq!(foreign.as_deref(), Some("it does not know the storage option aws_s3_express"));
}
