//! Flight SQL, by the calls that drivers make.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, CommandGetTables, CommandPreparedStatementQuery, CommandStatementUpdate,
    ProstMessageExt, SqlInfo,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor, FlightEndpoint,
    FlightInfo, RenewFlightEndpointRequest, Ticket,
};
use futures::TryStreamExt;
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
        assert_eq!(texts(&rows(&mut client, info).await, "table_type"), ["TABLE"]);
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
