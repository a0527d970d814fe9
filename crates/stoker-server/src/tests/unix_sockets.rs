//! Servers that clients on the same host reach through Unix sockets.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use stoker::{ClientOptions, ConnectOptions, Error, Result, connect};
use stoker_client::{CALL_HEADERS, call, grpc_frame};
use stoker_net::http2::{Patience, Request};
use stoker_sql::Engine;
use stoker_types::calls::ListTables;
use stoker_types::{BatchSize, ErrorKind, LastBatch};
use stoker_wire::protocol::DO_GET_PATH;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::tests::fixture::*;
use crate::{ServerConfig, TlsFiles, serve};

/// The path of a socket, in a temporary folder of its own.
struct TestSocket {
    folder: TempDir,
}

impl TestSocket {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("stoker.sock")
    }

    fn address(&self) -> String {
        format!("unix://{}", self.path().display())
    }

    fn config(&self) -> ServerConfig {
        ServerConfig { listen: vec![self.address()], ..config() }
    }

    fn has_socket(&self) -> bool {
        self.path().symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
    }
}

/// Returns the error message of a server that refuses to start.
async fn refused(engine: &Engine, config: ServerConfig) -> String {
    let ready = |_: &[String]| unreachable!("it must not start");
    let error = serve(engine.clone(), config, ready, std::future::pending()).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    error.to_string()
}

#[test]
fn streams_and_queries_are_those_of_the_lake() {
    run(async {
        let (lake, place) = (TestLake::new(300).await, TestSocket::new());
        let local = lake.local().await.plan_stream(ALL, &[], &options()).await.expect("a plan");
        // No server listens at the advertised location, so a client that used it would fail.
        let advertise = vec!["grpc://127.0.0.1:1".into()];
        let listen = vec![place.address(), "127.0.0.1:0".into()];
        let token = Some(stoker::Secret::from("the token of this server"));
        let server =
            TestServer::start(&lake, ServerConfig { listen, advertise, token: token.clone(), ..config() }).await;
        let [unix, tcp] = server.urls() else { panic!("two addresses") };
        assert_eq!(*unix, format!("grpc+{}", place.address()));
        for target in [unix.clone(), place.address(), tcp.clone(), format!("{},{tcp}", place.address())] {
            let options_of =
                ConnectOptions::from(ClientOptions { num_endpoints: 2, token: token.clone(), ..impatient() });
            let remote = connect(&target, &options_of).await.expect("a server");
            assert_eq!(remote.call(ListTables {}).await.expect("tables"), ["t"]);
            let remote = remote.plan_stream(ALL, &[], &options()).await.expect("a plan");
            let slice = slice(1, 2, BatchSize::PerRank(32), LastBatch::Pad);
            assert_same(&drain(&remote, &slice).await, &drain(&local, &slice).await);
        }
        let without_token = connect(unix, &impatient().into()).await.expect("a server").call(ListTables {}).await;
        assert_eq!(without_token.expect_err("refused").kind(), ErrorKind::Unauthenticated);
    });
}

#[test]
fn any_name_of_the_server_is_taken() {
    run(async {
        let (lake, place) = (TestLake::new(5).await, TestSocket::new());
        let _server = TestServer::start(&lake, place.config()).await;
        for authority in ["localhost", "tmp%2Fstoker.sock", "a%20b:c@d"] {
            let io = UnixStream::connect(place.path()).await.expect("a server");
            let body = grpc_frame(b"");
            let request =
                Request { tls: false, authority, path: DO_GET_PATH, headers: &CALL_HEADERS, authorization: None, body };
            let answer = call(Box::new(io), &request, Patience::default()).await.map(|_| ());
            let error = answer.expect_err("no ticket");
            // When hyper refuses a request, the client gets no answer but an `Unavailable` error.
            assert_eq!(error.kind(), ErrorKind::Expired, "{authority}: {error}");
        }
    });
}

#[test]
fn a_socket_is_its_owners_and_goes_with_its_server() {
    run(async {
        let (lake, place) = (TestLake::new(5).await, TestSocket::new());
        let mut server = TestServer::start(&lake, place.config()).await;
        let mode = place.path().symlink_metadata().expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        server.stop().await;
        assert!(!place.path().exists());

        // A server leaves a socket that replaced its own.
        let mut server = TestServer::start(&lake, place.config()).await;
        std::fs::remove_file(place.path()).expect("a socket");
        let _other = UnixListener::bind(place.path()).expect("another socket");
        server.stop().await;
        assert!(place.has_socket());
    });
}

#[test]
fn the_socket_of_a_server_that_is_gone_is_replaced() {
    run(async {
        let (lake, place) = (TestLake::new(5).await, TestSocket::new());
        drop(UnixListener::bind(place.path()).expect("a socket"));
        assert!(place.has_socket());
        let gone = connect(&place.address(), &impatient().into()).await.map(|_| ()).expect_err("nobody listens");
        assert_eq!(gone.kind(), ErrorKind::Unavailable);
        assert!(gone.to_string().contains(&place.address()), "{gone}");
        let server = TestServer::start(&lake, place.config()).await;
        assert_eq!(
            connect(&server.url(), &impatient().into()).await.expect("it").call(ListTables {}).await.expect("tables"),
            ["t"]
        );
    });
}

#[test]
fn of_servers_that_start_at_once_one_gets_the_socket_of_one_that_is_gone() {
    run(async {
        const NUM_SERVERS: usize = 8;
        let (lake, place) = (TestLake::new(5).await, TestSocket::new());
        let engine = lake.engine().await;
        drop(UnixListener::bind(place.path()).expect("a socket"));
        let (outcome, mut outcomes) = mpsc::channel::<Result<()>>(NUM_SERVERS);
        for _ in 0..NUM_SERVERS {
            let (engine, config, outcome) = (engine.clone(), place.config(), outcome.clone());
            tokio::spawn(async move {
                let ready = |_: &[String]| outcome.try_send(Ok(())).expect("room");
                if let Err(error) = serve(engine, config, ready, std::future::pending()).await {
                    outcome.try_send(Err(error)).expect("room");
                }
            });
        }
        let mut num_ready = 0;
        for _ in 0..NUM_SERVERS {
            match outcomes.recv().await.expect("an outcome") {
                Ok(()) => num_ready += 1,
                Err(error) => assert!(error.to_string().starts_with("another server listens on unix:///"), "{error}"),
            }
        }
        assert_eq!(num_ready, 1);
        assert_eq!(
            connect(&place.address(), &impatient().into())
                .await
                .expect("it")
                .call(ListTables {})
                .await
                .expect("tables"),
            ["t"]
        );
    });
}

#[test]
fn what_is_not_a_socket_of_a_server_that_is_gone_stays() {
    run(async {
        let (lake, place) = (TestLake::new(5).await, TestSocket::new());
        let engine = lake.engine().await;
        let server = TestServer::start(&lake, place.config()).await;
        let said = refused(&engine, place.config()).await;
        let expected = format!("another server listens on {}; stop it, or choose another path", place.address());
        assert_eq!(said, expected);
        assert_eq!(
            connect(&server.url(), &impatient().into()).await.expect("it").call(ListTables {}).await.expect("tables"),
            ["t"]
        );

        let not_a_socket = "this file is not a socket; remove it, or choose another path";
        let file = TestSocket::new();
        std::fs::write(file.path(), "precious").expect("a file");
        assert!(refused(&engine, file.config()).await.ends_with(not_a_socket));
        assert_eq!(std::fs::read_to_string(file.path()).expect("the file"), "precious");

        let folder = TestSocket::new();
        std::fs::create_dir(folder.path()).expect("a folder");
        assert!(refused(&engine, folder.config()).await.ends_with(not_a_socket));
        assert!(folder.path().is_dir());

        let link = TestSocket::new();
        std::os::unix::fs::symlink(place.path(), link.path()).expect("a link");
        assert!(refused(&engine, link.config()).await.ends_with(not_a_socket));
        assert!(link.path().is_symlink() && place.has_socket());
    });
}

#[test]
fn addresses_where_no_server_can_listen() {
    run(async {
        let (lake, place) = (TestLake::new(5).await, TestSocket::new());
        let engine = lake.engine().await;
        let folder = place.folder.path().display();
        let long = format!("unix:///{}", "x".repeat(200));
        for (address, said) in [
            (
                format!("unix://{folder}/missing/s"),
                format!("{folder}/missing must be a folder that can be read: No such"),
            ),
            (long, "has 201 bytes; the path of a Unix socket has 107 at most".into()),
            ("unix://stoker.sock".into(), "\"stoker.sock\" is not the absolute path of a Unix socket".into()),
        ] {
            let error = refused(&engine, ServerConfig { listen: vec![address], ..config() }).await;
            assert!(error.contains(&said), "{error}");
        }
        let tls = Some(TlsFiles { cert: "cert".into(), key: "key".into(), client_ca: None, client_role: None });
        let error = refused(&engine, ServerConfig { tls, ..place.config() }).await;
        assert!(error.starts_with("TLS is for TCP"), "{error}");
        assert!(!place.path().exists());
    });
}

#[test]
fn clients_name_the_socket_that_they_cannot_reach() {
    run(async {
        let place = TestSocket::new();
        let error = |target: String| async move {
            connect(&target, &impatient().into()).await.map(|_| ()).expect_err("no server")
        };
        let missing: Error = error(place.address()).await;
        assert_eq!(missing.kind(), ErrorKind::Unavailable);
        assert!(missing.to_string().contains(&place.address()), "{missing}");
        assert!(missing.to_string().contains("No such file or directory"), "{missing}");
        let relative = error("unix://stoker.sock".into()).await;
        assert_eq!(relative.kind(), ErrorKind::InvalidRequest);
    });
}
