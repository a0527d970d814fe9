//! Requests other than those of streams.

use arrow_array::RecordBatch;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::utils::flight_data_to_batches;
use arrow_flight::{Action, Criteria, Empty, FlightDescriptor, Ticket};
use futures::TryStreamExt;
use prost::Message;
use stoker::{ClientOptions, ConnectOptions, Connection, connect};
use stoker_lake::CommitMode;
use stoker_types::calls::{DescribeTable, ExamineTable, ExplainQuery, ListTables, ListVersions, TableAt};
use stoker_types::{BatchSize, Compression, ErrorKind, LastBatch, ParamValue, SnapshotRef, StatementProgress};
use stoker_wire::convert::{COMMAND_VERSION, slice_to_proto};
use stoker_wire::proto::{
    Command, ReadPolicy, SqlRequest, StreamQuery, StreamRequest, command::Kind, stream_request::Source,
};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::ServerConfig;
use crate::tests::fixture::*;

async fn rows(connection: &Connection, sql: &str, params: &[ParamValue]) -> Vec<RecordBatch> {
    compressed_rows(connection, sql, params, None).await
}

async fn compressed_rows(
    connection: &Connection,
    sql: &str,
    params: &[ParamValue],
    compression: Option<Compression>,
) -> Vec<RecordBatch> {
    let result = connection.sql_compressed(sql, params, compression).await.expect("a result");
    let batches: Vec<RecordBatch> = result.stream.try_collect().await.expect("rows");
    assert!(batches.iter().all(|batch| batch.schema() == result.schema));
    vec![arrow_select::concat::concat_batches(&result.schema, &batches).expect("one batch")]
}

#[test]
fn sql_gives_the_same_rows_and_errors_as_in_process() {
    run(async {
        let lake = TestLake::new(400).await;
        let local = lake.local().await;
        let server = TestServer::start(&lake, config()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        for (sql, params) in [
            ("SELECT id, name, score FROM t WHERE id >= $1 ORDER BY id", vec![ParamValue::Int(100)]),
            ("SELECT x, id FROM t WHERE id % 7 = 0 ORDER BY id DESC", vec![]),
            ("SELECT count(*) AS n, avg(score) AS mean FROM t", vec![]),
            ("SELECT id FROM t WHERE id < 0", vec![]),
        ] {
            let expected = rows(&local, sql, &params).await;
            for compression in [None, Some(Compression::Lz4), Some(Compression::Zstd)] {
                assert_eq!(
                    compressed_rows(&remote, sql, &params, compression).await,
                    expected,
                    "{sql} {compression:?}"
                );
                assert_eq!(compressed_rows(&local, sql, &params, compression).await, expected, "{sql} {compression:?}");
            }
        }
        for (sql, kind) in [
            ("SELECT * FROM missing", ErrorKind::NotFound),
            ("SELEC", ErrorKind::InvalidRequest),
            ("SELECT nothing FROM t", ErrorKind::InvalidRequest),
        ] {
            let remote = remote.sql(sql, &[]).await.map(|_| ()).expect_err("an error");
            let local = local.sql(sql, &[]).await.map(|_| ()).expect_err("an error");
            assert_eq!((remote.kind(), local.kind()), (kind, kind));
            // The messages are equal, except that the server hides the location of its lake from clients.
            assert_eq!(remote.to_string(), local.to_string().replace(&lake.uri(), "the lake"));
        }
    });
}

#[test]
fn questions_about_tables_have_the_same_answers_as_in_process() {
    run(async {
        let lake = TestLake::new(50).await;
        lake.write(50..80, CommitMode::Append).await;
        let local = lake.local().await;
        let server = TestServer::start(&lake, config()).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        assert_eq!(remote.call(ListTables {}).await.expect("tables"), ["t"]);
        remote.tag("t", &SnapshotRef::Version(1), "v1").await.expect("a tag");
        let exists = remote.tag("t", &SnapshotRef::Latest, "v1").await.expect_err("it exists");
        assert_eq!(exists.kind(), ErrorKind::AlreadyExists);
        for at in [SnapshotRef::Latest, SnapshotRef::Version(1), SnapshotRef::Tag("v1".into())] {
            let (here, there) = (local.table("t", &at).await.expect("it"), remote.table("t", &at).await.expect("it"));
            assert_eq!((here.version, here.num_rows, &here.tags), (there.version, there.num_rows, &there.tags));
            assert_eq!(here.schema, there.schema);
            assert_eq!(
                local.call(DescribeTable(TableAt::new("t", &at))).await.expect("it"),
                remote.call(DescribeTable(TableAt::new("t", &at))).await.expect("it")
            );
            assert_eq!(
                local.call(ExamineTable(TableAt::new("t", &at))).await.expect("it"),
                remote.call(ExamineTable(TableAt::new("t", &at))).await.expect("it")
            );
        }
        assert_eq!(
            local.call(ListVersions(TableAt::new("t", &SnapshotRef::Latest))).await.expect("them"),
            remote.call(ListVersions(TableAt::new("t", &SnapshotRef::Latest))).await.expect("them")
        );
        let sql = "SELECT id FROM t";
        let explain = ExplainQuery { sql: sql.into(), ..ExplainQuery::default() };
        assert_eq!(local.call(explain.clone()).await.expect("it"), remote.call(explain).await.expect("it"));
        let missing = remote.table("t", &SnapshotRef::Version(99)).await.expect_err("no such version");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}

#[test]
fn statements_have_the_same_outcomes_and_errors_as_in_process() {
    run(async {
        let lake = TestLake::new(300).await;
        let local = lake.local().await;
        let server = TestServer::start(&lake, ServerConfig { allow_writes: true, ..config() }).await;
        let remote = connect(&server.url(), &impatient().into()).await.expect("a server");
        let ignored = |_: StatementProgress| {};
        for (sql, version, num_rows) in [
            ("CREATE INDEX a ON t (id)", 2, Some(300)),
            ("CREATE INDEX IF NOT EXISTS a ON t (id)", 2, None),
            ("OPTIMIZE INDEX ON t", 2, Some(0)),
            ("DROP INDEX a ON t", 3, None),
        ] {
            let outcome = remote.execute(sql, &[], &ignored).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!((outcome.table.as_deref(), outcome.version), (Some("t"), Some(version)), "{outcome}");
            assert_eq!(outcome.num_rows, num_rows, "{outcome}");
            assert!(sql.starts_with(&outcome.statement), "{outcome}");
        }
        for (sql, kind) in [
            ("CREATE INDEX ON missing (id)", ErrorKind::NotFound),
            ("CREATE INDEX ON t USING hnsw (id)", ErrorKind::InvalidRequest),
            ("CREATE INDEX ON t (nothing)", ErrorKind::InvalidRequest),
            ("DROP INDEX a ON t", ErrorKind::NotFound),
            ("SELECT 1", ErrorKind::InvalidRequest),
        ] {
            let there = remote.execute(sql, &[], &ignored).await.expect_err(sql);
            let here = local.execute(sql, &[], &ignored).await.expect_err(sql);
            assert_eq!((there.kind(), here.kind()), (kind, kind), "{sql}: {there}");
            assert_eq!(there.to_string(), here.to_string().replace(&lake.uri(), "the lake"));
        }
        let error = remote.execute("DROP INDEX a ON t", &[ParamValue::Null], &ignored).await.expect_err("a parameter");
        assert!(error.to_string().contains("parameter $1 is not used"), "{error}");
        let read_only = TestServer::start(&lake, config()).await;
        let remote = connect(&read_only.url(), &impatient().into()).await.expect("a server");
        let error = remote.execute("CREATE INDEX a ON t (id)", &[], &ignored).await.expect_err("no writes");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("start it with --allow-writes"), "{error}");
        assert_eq!(remote.table("t", &SnapshotRef::Latest).await.expect("a table").version, 3);
    });
}

/// A token that is long enough.
const RIGHT: &str = "the right token of this server";

#[test]
fn a_token_is_needed_by_every_request_but_health_checks() {
    run(async {
        let lake = TestLake::new(5).await;
        let server = TestServer::start(&lake, ServerConfig { token: Some(RIGHT.into()), ..config() }).await;
        for (token, good) in [(Some(RIGHT), true), (Some("wrong"), false), (None, false)] {
            let options = ConnectOptions::from(ClientOptions { token: token.map(Into::into), ..impatient() });
            let remote = connect(&server.url(), &options).await.expect("a connection");
            let tables = remote.call(ListTables {}).await;
            let plan = remote.plan_stream(ALL, &[], &crate::tests::fixture::options()).await;
            match good {
                true => assert!(tables.is_ok() && plan.is_ok()),
                false => {
                    assert_eq!(tables.expect_err("refused").kind(), ErrorKind::Unauthenticated);
                    assert_eq!(plan.map(|_| ()).expect_err("refused").kind(), ErrorKind::Unauthenticated);
                }
            }
        }
        let channel = channel(&server).await;
        let refused = FlightServiceClient::new(channel.clone()).do_get(Ticket::default()).await.map(|_| ());
        assert_eq!(refused.expect_err("refused").code(), tonic::Code::Unauthenticated);
        let request = HealthCheckRequest { service: String::new() };
        let health = HealthClient::new(channel).check(request).await.expect("an answer").into_inner();
        assert_eq!(health.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    });
}

async fn channel(server: &TestServer) -> tonic::transport::Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address)).expect("a URI");
    endpoint.connect().await.expect("a connection")
}

#[test]
fn a_stock_client_reads_a_table_by_its_path() {
    run(async {
        let lake = TestLake::new(40).await;
        let server = TestServer::start(&lake, config()).await;
        let mut client = FlightServiceClient::new(channel(&server).await);
        let flights = client.list_flights(Criteria::default()).await.expect("flights").into_inner();
        let flights: Vec<_> = flights.try_collect().await.expect("flights");
        let descriptor = flights[0].flight_descriptor.clone().expect("a descriptor");
        assert_eq!((descriptor.path.as_slice(), flights[0].total_records), (["t".to_string()].as_slice(), 40));

        let info = client.get_flight_info(descriptor.clone()).await.expect("an answer").into_inner();
        let endpoint = info.endpoint[0].clone();
        assert!(endpoint.expiration_time.is_some());
        let ticket = endpoint.ticket.expect("a ticket");
        let data: Vec<_> =
            client.do_get(ticket.clone()).await.expect("rows").into_inner().try_collect().await.expect("rows");
        assert!(data.len() > 10, "several messages");
        let batches = flight_data_to_batches(&data).expect("batches");
        let schema = batches[0].schema();
        let found = arrow_select::concat::concat_batches(&schema, &batches).expect("one batch");
        let expected = rows(&lake.local().await, "SELECT * FROM t", &[]).await;
        assert_eq!(found, expected[0]);

        let schema = client.get_schema(descriptor.clone()).await.expect("an answer").into_inner();
        assert_eq!(schema.schema, info.schema);
        let poll = client.poll_flight_info(descriptor).await.expect("an answer").into_inner();
        assert!(poll.info.is_some() && poll.flight_descriptor.is_none());

        lake.write(40..41, CommitMode::Append).await;
        let again: Vec<_> = client.do_get(ticket).await.expect("rows").into_inner().try_collect().await.expect("rows");
        assert_eq!(again, data, "the version on which the query was planned");
    });
}

#[test]
fn what_is_not_understood_is_refused_politely() {
    run(async {
        let lake = TestLake::new(5).await;
        let server = TestServer::start(&lake, config()).await;
        let mut client = FlightServiceClient::new(channel(&server).await);
        let code = |status: tonic::Status| status.code();
        for descriptor in [
            FlightDescriptor::new_cmd("no command"),
            FlightDescriptor::new_path(vec!["a".into(), "b".into()]),
            FlightDescriptor::new_path(vec!["../secret".into()]),
        ] {
            let refused = client.get_flight_info(descriptor).await.map(|_| ()).map_err(code);
            assert_eq!(refused, Err(tonic::Code::InvalidArgument));
        }
        let unknown = client.get_flight_info(FlightDescriptor::new_path(vec!["missing".into()])).await;
        assert_eq!(unknown.map(|_| ()).map_err(code), Err(tonic::Code::NotFound));
        let ticket = client.do_get(Ticket { ticket: "no ticket".into() }).await;
        assert_eq!(ticket.map(|_| ()).map_err(code), Err(tonic::Code::Unauthenticated));
        for (action, body) in [("dance", ""), ("rows_beside", ""), ("rows_beside", r#"{"spec": "{}", "epoch": 0}"#)] {
            let action = client.do_action(Action::new(action, body)).await;
            assert_eq!(action.map(|_| ()).map_err(code), Err(tonic::Code::InvalidArgument));
        }
        let actions = client.list_actions(Empty {}).await.expect("actions").into_inner();
        assert_eq!(actions.try_collect::<Vec<_>>().await.expect("actions").len(), 27);
    });
}

#[test]
fn an_unknown_codec_is_refused_with_the_names_of_those_that_are_known() {
    run(async {
        let lake = TestLake::new(5).await;
        let server = TestServer::start(&lake, config()).await;
        let mut client = FlightServiceClient::new(channel(&server).await);
        let share = slice(0, 1, BatchSize::PerRank(2), LastBatch::Pad);
        let query = StreamQuery { sql: ALL.into(), ..StreamQuery::default() };
        let compression = String::from("gzip");
        let stream = StreamRequest {
            source: Some(Source::Query(query)),
            slice: Some(slice_to_proto(&share)),
            read: Some(ReadPolicy { compression: compression.clone(), ..ReadPolicy::default() }),
            ..StreamRequest::default()
        };
        let sql = SqlRequest { sql: ALL.into(), compression, ..SqlRequest::default() };
        for kind in [Kind::Stream(stream), Kind::Sql(sql)] {
            let command = Command { version: COMMAND_VERSION, kind: Some(kind) }.encode_to_vec();
            let refused = client.get_flight_info(FlightDescriptor::new_cmd(command)).await.expect_err("refused");
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert_eq!(refused.message(), "compression is \"gzip\"; use lz4 or zstd, or leave it out");
        }
    });
}

#[test]
fn settings_out_of_range_are_refused() {
    run(async {
        let engine = TestLake::new(1).await.engine().await;
        let short = crate::TicketKey { id: "k".into(), secret: "short".into() };
        for config in [
            ServerConfig { message_bytes: 1, ..config() },
            ServerConfig { token: Some("".into()), ..config() },
            ServerConfig { token: Some("15 bytes, no mo".into()), ..config() },
            ServerConfig { listen: vec!["nowhere".into()], ..config() },
            ServerConfig { listen: Vec::new(), ..config() },
            ServerConfig { ticket_keys: vec![short], ..config() },
        ] {
            let ready = |_: &[String]| unreachable!("the settings are not valid");
            let refused = crate::serve(engine.clone(), config, ready, std::future::pending()).await;
            assert_eq!(refused.expect_err("refused").kind(), ErrorKind::InvalidRequest);
        }
    });
}
