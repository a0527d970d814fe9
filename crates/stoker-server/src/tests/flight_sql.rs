//! Flight SQL, by the calls that drivers make.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, CommandGetTables, CommandPreparedStatementQuery, CommandStatementIngest,
    CommandStatementQuery, CommandStatementUpdate, ProstMessageExt, SqlInfo, TableDefinitionOptions, TableExistsOption,
    TableNotExistOption,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor, FlightEndpoint,
    FlightInfo, RenewFlightEndpointRequest, Ticket,
};
use futures::channel::oneshot;
use futures::future::{Either, select};
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use stoker_lake::CommitMode;
use stoker_types::{SnapshotRef, TableName, TagName};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::ServerConfig;
use crate::tests::fixture::*;

async fn channel(server: &TestServer) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    endpoint.connect().await.expect("a connection")
}

async fn client(server: &TestServer) -> FlightSqlServiceClient<Channel> {
    FlightSqlServiceClient::new(channel(server).await)
}

/// Reads the result of the only endpoint.
async fn rows(client: &mut FlightSqlServiceClient<Channel>, info: FlightInfo) -> RecordBatch {
    let schema = Arc::new(info.clone().try_decode_schema().expect("a schema"));
    let ticket = info.endpoint[0].ticket.clone().expect("a ticket");
    let batches: Vec<RecordBatch> = client.do_get(ticket).await.expect("an answer").try_collect().await.expect("rows");
    for batch in &batches {
        assert_eq!(batch.schema().fields(), schema.fields());
    }
    arrow_select::concat::concat_batches(&batches.first().map_or(schema, |first| first.schema()), &batches)
        .expect("one batch")
}

fn ids(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("id").expect("ids").as_primitive::<Int64Type>().values().to_vec()
}

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let column = batch.column_by_name(column).expect("a column").as_string::<i32>();
    column.iter().flatten().map(str::to_string).collect()
}

fn parameters(values: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_from_iter(values.into_iter().enumerate().map(|(index, values)| (format!("{}", index + 1), values)))
        .expect("a batch")
}

#[test]
fn statements_and_prepared_statements_give_their_rows() {
    run(async {
        let lake = TestLake::new(400).await;
        let server = TestServer::start(&lake, config()).await;
        let mut client = client(&server).await;
        let info =
            client.execute("SELECT id, name, x FROM t WHERE id < 5 ORDER BY id".into(), None).await.expect("a plan");
        let batch = rows(&mut client, info).await;
        assert_eq!(ids(&batch), [0, 1, 2, 3, 4]);
        assert_eq!(texts(&batch, "name")[4], "row 4");

        let mut prepared = client
            .prepare("SELECT id FROM t WHERE id BETWEEN ? AND ? ORDER BY id".into(), None)
            .await
            .expect("a handle");
        assert_eq!(prepared.dataset_schema().expect("columns").field(0).name(), "id");
        let types: Vec<_> = prepared
            .parameter_schema()
            .expect("parameters")
            .fields()
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        assert_eq!(types, vec![arrow_schema::DataType::Int64; 2]);
        let bounds = |low: Vec<i64>, high: Vec<i64>| {
            parameters(vec![Arc::new(Int64Array::from(low)), Arc::new(Int64Array::from(high))])
        };
        prepared.set_parameters(bounds(vec![10], vec![12])).expect("parameters");
        let info = prepared.execute().await.expect("a plan");
        assert_eq!(ids(&rows(&mut client, info).await), [10, 11, 12]);
        // The rows of several bindings follow one another.
        prepared.set_parameters(bounds(vec![3, 390, 7], vec![4, 389, 7])).expect("parameters");
        let info = prepared.execute().await.expect("a plan");
        assert_eq!(ids(&rows(&mut client, info).await), [3, 4, 7]);
        prepared.close().await.expect("closed");
    });
}

#[test]
fn bound_parameters_survive_a_replica_and_large_ones_are_stored() {
    run(async {
        let lake = TestLake::new(50).await;
        let (first, second) = (TestServer::start(&lake, config()).await, TestServer::start(&lake, config()).await);
        let mut there = client(&first).await;
        let mut prepared =
            there.prepare("SELECT id FROM t WHERE name = $1 OR name = $2".into(), None).await.expect("a handle");
        let large = "x".repeat(200 << 10);
        prepared
            .set_parameters(parameters(vec![
                Arc::new(StringArray::from(vec![large])),
                Arc::new(StringArray::from(vec!["row 3"])),
            ]))
            .expect("parameters");
        let info = prepared.execute().await.expect("a plan");
        assert!(
            info.endpoint[0].ticket.as_ref().expect("a ticket").ticket.len() < 1_000,
            "the ticket has the parameters"
        );
        let mut here = client(&second).await;
        assert_eq!(ids(&rows(&mut here, info.clone()).await), [3]);
        let stored = std::fs::read_dir(format!("{}/_stoker/parameters", lake.uri())).expect("a folder").count();
        assert_eq!(stored, 1);
        // Without its parameters, the ticket has expired.
        std::fs::remove_dir_all(format!("{}/_stoker/parameters", lake.uri())).expect("removed");
        let error = here
            .do_get(info.endpoint[0].ticket.clone().expect("a ticket"))
            .await
            .map(|_| ())
            .expect_err("no parameters");
        assert!(error.to_string().contains("prepare it again and bind its parameters"), "{error}");
    });
}

#[test]
fn the_catalog_is_answered_without_opening_tables_that_are_not_asked_for() {
    run(async {
        let lake = TestLake::new(10).await;
        let server = TestServer::start(&lake, config()).await;
        let mut client = client(&server).await;
        let info = client.get_catalogs().await.expect("a plan");
        assert_eq!(texts(&rows(&mut client, info).await, "catalog_name"), ["lake"]);
        let info = client.get_table_types().await.expect("a plan");
        assert_eq!(texts(&rows(&mut client, info).await, "table_type"), ["TABLE", "VIEW"]);
        let info = client
            .get_sql_info(vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerReadOnly])
            .await
            .expect("a plan");
        assert_eq!(rows(&mut client, info).await.num_rows(), 2);
        // A table that cannot be opened is listed, and does not hide the other one.
        std::fs::create_dir_all(format!("{}/broken.lance/_versions", lake.uri())).expect("a folder");
        std::fs::write(format!("{}/broken.lance/_versions/1.manifest", lake.uri()), b"no manifest").expect("a file");
        let tables = |include_schema| CommandGetTables { include_schema, ..CommandGetTables::default() };
        let info = client.get_tables(tables(false)).await.expect("a plan");
        assert_eq!(texts(&rows(&mut client, info).await, "table_name"), ["broken", "t"]);
        let info = client.get_tables(tables(true)).await.expect("a plan");
        let batch = rows(&mut client, info).await;
        assert_eq!(texts(&batch, "table_name"), ["broken", "t"]);
        let info = client.get_xdbc_type_info(Default::default()).await.expect("a plan");
        assert!(rows(&mut client, info).await.num_rows() > 10);
    });
}

#[test]
fn statements_that_change_the_lake_are_executed_where_the_server_allows_it() {
    run(async {
        let lake = TestLake::new(300).await;
        let server = TestServer::start(&lake, ServerConfig { allow_writes: true, ..config() }).await;
        let mut client = client(&server).await;
        let indexes = async |client: &mut FlightSqlServiceClient<Channel>| {
            let info = client.execute("SHOW INDEXES FROM t".into(), None).await.expect("a plan");
            texts(&rows(client, info).await, "index_name")
        };
        assert_eq!(client.execute_update("CREATE INDEX a ON t (id)".into(), None).await.expect("an index"), 300);
        assert_eq!(indexes(&mut client).await, ["a"]);
        // A driver knows by the missing columns that this is no query.
        let mut prepared = client.prepare("DROP INDEX a ON t".into(), None).await.expect("a handle");
        assert!(prepared.dataset_schema().expect("no columns").fields().is_empty());
        assert_eq!(prepared.execute_update().await.expect("no index"), -1);
        assert_eq!(indexes(&mut client).await, Vec::<String>::new());
        let error = prepared.execute_update().await.expect_err("no index").to_string();
        assert!(error.contains("index a of table t"), "{error}");
        // A client that asks for rows gets one that tells the outcome. Its columns are known without executing.
        let sql = "CREATE INDEX b ON t (id)";
        let mut flight = FlightServiceClient::new(channel(&server).await);
        let query = CommandStatementQuery { query: sql.into(), transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let described = flight.get_schema(descriptor).await.expect("columns").into_inner();
        let described: arrow_schema::Schema = described.try_into().expect("a schema");
        assert_eq!(indexes(&mut client).await, Vec::<String>::new());
        let info = client.execute(sql.into(), None).await.expect("an index");
        let outcome = rows(&mut client, info).await;
        let names = |schema: &arrow_schema::Schema| {
            schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&described), names(&outcome.schema()));
        assert_eq!(texts(&outcome, "statement"), ["CREATE INDEX"]);
        assert_eq!(texts(&outcome, "table_name"), ["t"]);
        let num_rows = outcome.column_by_name("num_rows").expect("a column").as_primitive::<Int64Type>().value(0);
        assert_eq!((num_rows, indexes(&mut client).await), (300, vec!["b".to_string()]));
        // Parameters, which these statements do not have.
        let mut prepared = client.prepare("OPTIMIZE INDEX ON t".into(), None).await.expect("a handle");
        prepared.set_parameters(parameters(vec![Arc::new(Int64Array::from(vec![1]))])).expect("parameters");
        let error = prepared.execute_update().await.expect_err("a parameter").to_string();
        assert!(error.contains("OPTIMIZE INDEX has no parameters"), "{error}");
    });
}

#[test]
fn rows_are_changed_by_statements_with_parameters() {
    run(async {
        let lake = TestLake::new(300).await;
        let server = TestServer::start(&lake, ServerConfig { allow_writes: true, ..config() }).await;
        let mut client = client(&server).await;
        let ints = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
        let created = client.execute_update("CREATE TABLE s AS SELECT id FROM t WHERE id < 5".into(), None).await;
        assert_eq!(created.expect("a table"), 5);
        let mut prepared = client.prepare("INSERT INTO s VALUES (?)".into(), None).await.expect("a handle");
        prepared.set_parameters(parameters(vec![ints((100..900).collect())])).expect("parameters");
        assert_eq!(prepared.execute_update().await.expect("rows"), 800);
        let table = async |name: &str| {
            let name = TableName::try_new(name).expect("a name");
            lake.engine().await.lake().table(&name, &SnapshotRef::Latest).await.expect("a table")
        };
        assert_eq!((table("s").await.version(), table("s").await.num_rows()), (2, 805), "all rows are one version");
        let mut prepared = client.prepare("DELETE FROM s WHERE id = $1".into(), None).await.expect("a handle");
        prepared.set_parameters(parameters(vec![ints(vec![100, 101, 5_000])])).expect("parameters");
        assert_eq!(prepared.execute_update().await.expect("rows"), 2);
        // A view is planned as its query, and listed with its columns.
        assert_eq!(
            client.execute_update("CREATE VIEW v AS SELECT id, id * 2 AS y FROM s".into(), None).await.expect("a view"),
            -1
        );
        let info = client.execute("SELECT id FROM v WHERE y > 8 AND id < 104 ORDER BY id".into(), None).await;
        client.execute_update("DROP VIEW v".into(), None).await.expect("no view");
        let found = ids(&rows(&mut client, info.expect("a plan")).await);
        assert_eq!(found, [102, 103], "the ticket has the query of the view");
    });
}

fn ingest(table: &str, if_missing: TableNotExistOption, if_present: TableExistsOption) -> CommandStatementIngest {
    let options = TableDefinitionOptions { if_not_exist: if_missing.into(), if_exists: if_present.into() };
    CommandStatementIngest {
        table_definition_options: Some(options),
        table: table.into(),
        ..CommandStatementIngest::default()
    }
}

#[test]
fn rows_are_inserted_in_bulk() {
    run(async {
        let lake = TestLake::new(10).await;
        let server = TestServer::start(&lake, ServerConfig { allow_writes: true, ..config() }).await;
        let mut client = client(&server).await;
        let batch = |ids: std::ops::Range<i64>| {
            let names = ids.clone().map(|id| format!("row {id}"));
            let columns: [(&str, ArrayRef); 2] = [
                ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
                ("name", Arc::new(StringArray::from_iter_values(names))),
            ];
            RecordBatch::try_from_iter(columns).expect("a batch")
        };
        let put = async |client: &mut FlightSqlServiceClient<Channel>,
                         command: CommandStatementIngest,
                         batches: Vec<RecordBatch>| {
            client.execute_ingest(command, stream::iter(batches.into_iter().map(Ok))).await
        };
        let (create, fail) = (TableNotExistOption::Create, TableNotExistOption::Fail);
        let batches = || (0..20).map(|part| batch(part * 50..part * 50 + 50)).collect::<Vec<_>>();
        let created = put(&mut client, ingest("s", create, TableExistsOption::Fail), batches()).await;
        assert_eq!(created.expect("rows"), 1_000);
        let table = async |name: &str| {
            let name = TableName::try_new(name).expect("a name");
            lake.engine().await.lake().table(&name, &SnapshotRef::Latest).await.expect("a table")
        };
        assert_eq!((table("s").await.version(), table("s").await.num_rows()), (1, 1_000), "all rows are one version");
        let appended = put(&mut client, ingest("s", fail, TableExistsOption::Append), batches()).await;
        assert_eq!(appended.expect("rows"), 1_000);
        let replaced = put(&mut client, ingest("s", create, TableExistsOption::Replace), vec![batch(7..9)]).await;
        assert_eq!(replaced.expect("rows"), 2);
        assert_eq!((table("s").await.version(), table("s").await.num_rows()), (3, 2));
        let append = || ingest("s", fail, TableExistsOption::Append);
        for (command, part) in [
            (ingest("s", create, TableExistsOption::Fail), "table s already exists"),
            (ingest("none", fail, TableExistsOption::Append), "table none"),
            (ingest("s", TableNotExistOption::Unspecified, TableExistsOption::Append), "if the table does not exist"),
            (ingest("s", create, TableExistsOption::Unspecified), "if the table exists"),
            (CommandStatementIngest { temporary: true, ..append() }, "temporary tables are not supported"),
            (CommandStatementIngest { catalog: Some("other".into()), ..append() }, "there is no catalog other"),
            (CommandStatementIngest { schema: Some("other".into()), ..append() }, "there is no schema other"),
            (CommandStatementIngest { transaction_id: Some("a".into()), ..append() }, "transaction"),
            (CommandStatementIngest { options: [("a".into(), "b".into())].into(), ..append() }, "option a"),
            (ingest("a/b", create, TableExistsOption::Fail), "a/b"),
        ] {
            let error = put(&mut client, command, vec![batch(0..5)]).await.expect_err(part).to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
        let words = RecordBatch::try_from_iter([("id", Arc::new(StringArray::from(vec!["8", "x"])) as ArrayRef)]);
        let error = put(&mut client, append(), vec![words.expect("a batch")]).await.expect_err("no number").to_string();
        assert!(error.contains("column id, row 2: 'x' does not fit"), "{error}");
        let twice: [(&str, ArrayRef); 2] =
            [("id", Arc::new(Int64Array::from(vec![1]))), ("id", Arc::new(Int64Array::from(vec![2])))];
        for command in [append(), ingest("twice", create, TableExistsOption::Fail)] {
            let batch = RecordBatch::try_from_iter(twice.clone()).expect("a batch");
            let error = put(&mut client, command, vec![batch]).await.expect_err("a name twice").to_string();
            assert!(error.contains("column id is there twice"), "{error}");
        }
        assert_eq!(table("s").await.version(), 3, "refused rows make no version");
        // A client that goes away before the end leaves nothing.
        let (told, sent) = oneshot::channel();
        let more = stream::once(async move {
            told.send(()).ok();
            futures::future::pending().await
        });
        let endless = stream::iter([Ok(batch(0..50))]).chain(more);
        let lost = Box::pin(client.execute_ingest(ingest("lost", create, TableExistsOption::Fail), endless));
        assert!(matches!(select(lost, sent).await, Either::Right(_)), "the insert has not ended");
        let again = put(&mut client, ingest("lost", create, TableExistsOption::Fail), vec![batch(0..3)]).await;
        assert_eq!(again.expect("the table does not exist"), 3);
        assert_eq!(table("lost").await.version(), 1);
    });
}

#[test]
fn servers_that_do_not_allow_writes_say_so() {
    run(async {
        let lake = TestLake::new(10).await;
        let server = TestServer::start(&lake, config()).await;
        let (mut client, sql) = (client(&server).await, "CREATE INDEX a ON t (id)".to_string());
        let refusals = [
            client.execute_update(sql.clone(), None).await.expect_err("no writes").to_string(),
            client.prepare(sql.clone(), None).await.map(|_| ()).expect_err("no writes").to_string(),
            client.execute(sql.clone(), None).await.expect_err("no writes").to_string(),
        ];
        let command = ingest("s", TableNotExistOption::Create, TableExistsOption::Fail);
        let batch = parameters(vec![Arc::new(Int64Array::from(vec![1]))]);
        let put = client.execute_ingest(command, stream::iter([Ok(batch)])).await.expect_err("no writes").to_string();
        for refusal in refusals.into_iter().chain([put]) {
            assert!(refusal.contains("does not support writing: start it with --allow-writes"), "{refusal}");
        }
        let mut flight = FlightServiceClient::new(channel(&server).await);
        let query = CommandStatementQuery { query: sql, transaction_id: None };
        let descriptor = FlightDescriptor::new_cmd(query.as_any().encode_to_vec());
        let error = flight.get_flight_info(descriptor).await.expect_err("no writes");
        assert_eq!(error.code(), Code::PermissionDenied, "{error}");
        let name = TableName::try_new("t").expect("a name");
        let table = lake.engine().await.lake().table(&name, &SnapshotRef::Latest).await.expect("a table");
        assert_eq!(table.version(), 1);
    });
}

#[test]
fn answers_can_be_cancelled_and_tickets_renewed() {
    run(async {
        let lake = TestLake::new(3_000).await;
        let server = TestServer::start(&lake, config()).await;
        let mut flight = FlightServiceClient::new(channel(&server).await);
        let mut client = client(&server).await;
        let info = client.execute("SELECT x, id FROM t".into(), None).await.expect("a plan");
        let action = |name: &str, body: Vec<u8>| Action { r#type: name.into(), body: body.into() };
        let renew = RenewFlightEndpointRequest { endpoint: Some(info.endpoint[0].clone()) };
        let renewed = flight.do_action(action("RenewFlightEndpoint", renew.encode_to_vec())).await.expect("an answer");
        let renewed = renewed.into_inner().message().await.expect("an endpoint").expect("an endpoint");
        let renewed = FlightEndpoint::decode(renewed.body).expect("an endpoint");
        let info = FlightInfo { endpoint: vec![renewed], ..info };
        let cancel = |info: &FlightInfo| {
            action("CancelFlightInfo", CancelFlightInfoRequest { info: Some(info.clone()) }.encode_to_vec())
        };
        let status = async |flight: &mut FlightServiceClient<Channel>| {
            let answer = flight.do_action(cancel(&info)).await.expect("an answer").into_inner().message().await;
            CancelFlightInfoResult::decode(answer.expect("an answer").expect("a status").body)
                .expect("a status")
                .status()
        };
        assert_eq!(status(&mut flight).await, CancelStatus::NotCancellable);
        let mut answer = client.do_get(info.endpoint[0].ticket.clone().expect("a ticket")).await.expect("an answer");
        assert!(answer.try_next().await.expect("rows").is_some());
        assert_eq!(status(&mut flight).await, CancelStatus::Cancelled);
        let error = answer.try_for_each(|_| async { Ok(()) }).await.expect_err("the answer was cancelled");
        assert!(error.to_string().contains("cancelled"), "{error}");
        let forged = FlightInfo::new().with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new("forged")));
        let error = flight.do_action(cancel(&forged)).await.expect_err("a forged ticket");
        assert_eq!(error.code(), Code::Unauthenticated, "{error}");
    });
}

#[test]
fn requests_that_cannot_be_served_say_why() {
    run(async {
        let lake = TestLake::new(10).await;
        let server = TestServer::start(&lake, config()).await;
        let mut flight = FlightServiceClient::new(channel(&server).await);
        let mut client = client(&server).await;
        let message = |error: Status| error.message().to_string();
        let prepare = |query: &str| {
            let request = ActionCreatePreparedStatementRequest { query: query.into(), transaction_id: None };
            Action { r#type: "CreatePreparedStatement".into(), body: request.as_any().encode_to_vec().into() }
        };
        let error = flight.do_action(prepare("SELECT nothing FROM t")).await.expect_err("no such column");
        assert!(message(error).contains("nothing"));
        let begin = Action { r#type: "BeginTransaction".into(), body: Default::default() };
        let error = flight.do_action(begin).await.expect_err("no transactions");
        assert!(message(error).contains("transactions are not supported"));
        let command = |any: arrow_flight::sql::Any| FlightDescriptor::new_cmd(any.encode_to_vec());
        let forged = CommandPreparedStatementQuery { prepared_statement_handle: "forged".into() };
        let error = flight.get_flight_info(command(forged.as_any())).await.expect_err("a forged handle");
        assert_eq!(error.code(), Code::Unauthenticated, "{error}");
        let update = CommandStatementUpdate { query: "DELETE FROM t".into(), transaction_id: None };
        let error = flight.get_flight_info(command(update.as_any())).await.expect_err("an update has no result");
        assert!(message(error).contains("CommandStatementUpdate"));
        let error = client.execute_update("DELETE FROM t".into(), None).await.expect_err("no writes").to_string();
        assert!(error.contains("does not support writing"), "{error}");
        // A handle is no ticket, and a ticket is no handle.
        let info = client.execute("SELECT id FROM t".into(), None).await.expect("a plan");
        let ticket = info.endpoint[0].ticket.clone().expect("a ticket").ticket;
        let swapped = CommandPreparedStatementQuery { prepared_statement_handle: ticket };
        let error = flight.get_flight_info(command(swapped.as_any())).await.expect_err("a ticket");
        assert!(message(error).contains("the handle of the prepared statement is not valid: it is a ticket"));
        // Rows of parameters above the limit, and results of different types.
        let mut prepared = client.prepare("SELECT $1 AS a".into(), None).await.expect("a handle");
        prepared.set_parameters(parameters(vec![Arc::new(Int64Array::from_iter_values(0..257))])).expect("parameters");
        let error = prepared.execute().await.expect_err("too many rows").to_string();
        assert!(error.contains("257 rows of parameters"), "{error}");
        prepared.set_parameters(parameters(vec![Arc::new(Int64Array::from(vec![Some(1), None]))])).expect("parameters");
        let error = prepared.execute().await.expect_err("two types").to_string();
        assert!(error.contains("row 2 of the parameters"), "{error}");
        // A column that is NULL for one row of parameters only.
        let mut prepared = client.prepare("SELECT CAST($1 AS BIGINT) AS id".into(), None).await.expect("a handle");
        prepared.set_parameters(parameters(vec![Arc::new(Int64Array::from(vec![Some(1), None]))])).expect("parameters");
        let info = prepared.execute().await.expect("a plan");
        let batch = rows(&mut client, info).await;
        assert_eq!(batch.column(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(1), None]);
        // A query reads the version on which it was planned, unless it names a tag that was moved.
        let newest = client.execute("SELECT id FROM t".into(), None).await.expect("a plan");
        let (engine, moved) = (lake.engine().await, TagName::try_new("moved").expect("a name"));
        let table = async || {
            let name = TableName::try_new("t").expect("a name");
            engine.lake().table(&name, &SnapshotRef::Latest).await.expect("a table")
        };
        table().await.create_tag(&moved).await.expect("a tag");
        let tagged = client.execute("SELECT id FROM t AT (TAG => 'moved')".into(), None).await.expect("a plan");
        lake.write(10..20, CommitMode::Append).await;
        assert_eq!(rows(&mut client, newest).await.num_rows(), 10);
        table().await.delete_tag(&moved).await.expect("no tag");
        table().await.create_tag(&moved).await.expect("a tag");
        let error =
            client.do_get(tagged.endpoint[0].ticket.clone().expect("a ticket")).await.map(|_| ()).expect_err("changed");
        assert!(error.to_string().contains("plan it again"), "{error}");
    });
}

#[test]
fn a_token_may_be_a_password() {
    run(async {
        let lake = TestLake::new(10).await;
        let token = "a token of enough bytes";
        let server = TestServer::start(&lake, ServerConfig { token: Some(token.into()), ..config() }).await;
        let mut client = client(&server).await;
        let error = client.execute("SELECT 1".into(), None).await.expect_err("no token");
        assert!(error.to_string().contains("a bearer token is needed"), "{error}");
        assert!(client.handshake("anna", "another token").await.is_err());
        client.handshake("anna", token).await.expect("a session");
        assert_eq!(client.token().map(String::as_str), Some(token));
        let info = client.execute("SELECT id FROM t ORDER BY id".into(), None).await.expect("a plan");
        assert_eq!(ids(&rows(&mut client, info).await).len(), 10);
    });
}
