//! A lake behind servers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, Empty, FlightDescriptor, FlightInfo, Ticket};
use arrow_schema::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use prost::Message;
use stoker_batch::MemoryBudget;
use stoker_clock::Clock;
use stoker_dialect::Inquiry;
use stoker_net::http2::Server;
use stoker_net::{Address, Protocol, Secret, client_config};
use stoker_session::{Error, Lake, Patience, Result, RowWriter, SqlResult, StreamHandle, StreamSource};
use stoker_types::calls::{Answering, Answers, Call, ExecuteStatement, StatementMessage, decode_answer, encode_call};
use stoker_types::{Context, ErrorKind, Moment, ParamValue, ProgressSink, SqlOptions, StatementOutcome, WriteRequest};
use stoker_wire::convert::{COMMAND_VERSION, request_to_proto};
use stoker_wire::proto::stream_request::Source;
use stoker_wire::proto::{Command, command::Kind};
use stoker_wire::protocol::{MESSAGE_BYTES_MAX, SPEC_STORED};
use stoker_wire::status::{is_of_server, to_status};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming, TimeoutExpired};

use crate::ClientOptions;
use crate::channel::{CONNECT_TIMEOUT, endpoint};
use crate::do_get::do_get;
use crate::message_reader::MessageReader;
use crate::remote_plan::plan_remote;
use crate::remote_sql::{remote_sql, remote_sql_schema};
use crate::remote_write::begin_remote_write;

/// A part of the error message of old servers, which know only parameters of JSON types.
const UNKNOWN_PARAM: &str = "any variant of untagged enum ParamValue";

/// The longest timeout that requests carry; tonic panics at one of several thousand years.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(crate) type Client = FlightServiceClient<InterceptedService<Channel, Token>>;

/// A lake behind one or several equal servers. Cheap to clone.
#[derive(Clone)]
pub struct RemoteLake {
    inner: Arc<Inner>,
}

struct Inner {
    /// The addresses of all servers, for error messages.
    addresses: String,
    /// The servers: the first member is for `DoGet`, the second for all other calls.
    servers: Vec<(Server, Endpoint)>,
    token: Token,
    /// The index of the server that answered last.
    current: AtomicUsize,
    /// Whether any server ever answered a call.
    has_answered: AtomicBool,
    /// The connection for calls other than `DoGet`, with the index of its server.
    channel: Mutex<Option<(usize, Channel)>>,
    options: ClientOptions,
    budget: MemoryBudget,
    patience: Patience,
}

/// The value of the authorization header.
#[derive(Clone)]
pub(crate) struct Token(Option<MetadataValue<Ascii>>);

impl Token {
    fn try_new(token: Option<&Secret>) -> Result<Self> {
        let Some(token) = token else { return Ok(Self(None)) };
        if token.reveal().is_empty() {
            return Err(Error::invalid("the token is empty"));
        }
        let mut value: MetadataValue<Ascii> = format!("Bearer {}", token.reveal())
            .parse()
            .map_err(|_| Error::invalid("the token has characters that HTTP headers do not allow"))?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }

    pub fn value(&self) -> Option<&MetadataValue<Ascii>> {
        self.0.as_ref()
    }
}

impl tonic::service::Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

impl RemoteLake {
    /// Configures the servers at these addresses, of which there must be at least one. Sends no request.
    pub(crate) fn try_new(addresses: &[Address], options: &ClientOptions, patience: Patience) -> Result<Self> {
        let needs_tls = addresses.iter().any(Address::is_tls);
        let tls = needs_tls.then(|| tls_config(options)).transpose()?;
        let server = |address: &Address| -> stoker_wire::Result<_> {
            Ok((Server::try_new(address, tls.as_ref())?, endpoint(address, options)?))
        };
        let servers = addresses.iter().map(server).collect::<stoker_wire::Result<_>>()?;
        let inner = Inner {
            addresses: addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(","),
            servers,
            token: Token::try_new(options.token.as_ref())?,
            current: AtomicUsize::new(0),
            has_answered: AtomicBool::new(false),
            channel: Mutex::default(),
            options: options.clone(),
            budget: MemoryBudget::with_clock(options.memory_budget_bytes, patience.clock().clone()),
            patience,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Connects to one of the servers. After that, calls are retried.
    ///
    /// # Errors
    /// [`stoker_wire::Error::Unreachable`] when no server takes a connection, after at most five seconds for each server.
    pub(crate) async fn reach(&self) -> Result<()> {
        self.inner.patience.ask("connecting", || async { self.client().await.map(|_| ()) }).await
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.inner.options
    }

    /// Returns the clock of the connection.
    pub(crate) fn clock(&self) -> &Clock {
        self.inner.patience.clock()
    }

    /// Returns the memory budget of all streams, for batches that wait to be taken.
    pub(crate) fn budget(&self) -> &MemoryBudget {
        &self.inner.budget
    }

    /// Returns a client of the kept connection, or else of the first server that takes a connection, beginning with the
    /// server that answered last.
    pub(crate) async fn client(&self) -> Result<Client> {
        let kept = self.inner.channel.lock().clone();
        let (server, channel) = match kept {
            Some(kept) => kept,
            None => self.open(self.inner.current.load(Ordering::Relaxed)).await?,
        };
        self.inner.current.store(server, Ordering::Relaxed);
        *self.inner.channel.lock() = Some((server, channel.clone()));
        let client = FlightServiceClient::with_interceptor(channel, self.inner.token.clone());
        Ok(client.max_decoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// Opens a connection to the first server that takes one, beginning with server `first`.
    async fn open(&self, first: usize) -> Result<(usize, Channel)> {
        let num = self.inner.servers.len();
        let mut reason = String::new();
        for server in (0..num).map(|offset| (first + offset) % num) {
            match self.inner.servers[server].1.connect().await {
                Ok(channel) => return Ok((server, channel)),
                Err(error) => reason = causes(&error),
            }
        }
        Err(unreachable(&self.inner.addresses, reason))
    }

    /// Makes a call that may be repeated at one server after the other, until one answers. A connection that broke
    /// since the last call is replaced.
    async fn ask<T, F>(&self, call: impl Fn(Client) -> F) -> Result<Response<T>>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut failure = None;
        for _ in 0..=self.inner.servers.len() {
            match call(self.client().await?).await.map_err(|status| self.failure(status)) {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    self.check_scheme().await?;
                    self.leave();
                    failure = Some(error);
                }
                answer => {
                    self.inner.has_answered.store(true, Ordering::Relaxed);
                    return answer;
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::internal("the list of servers is empty")))
    }

    /// Checks, unless a server has answered before, whether the current server expects TLS and is reached without it. Its
    /// calls fail like those of a server that is down, and waiting does not help.
    async fn check_scheme(&self) -> Result<()> {
        let (server, _) = &self.inner.servers[self.current_server()];
        if self.inner.has_answered.load(Ordering::Relaxed) || !server.expects_tls(CONNECT_TIMEOUT).await {
            return Ok(());
        }
        let address = server.authority();
        Err(Error::invalid(format!("the server at {address} expects TLS: connect to grpc+tls://{address}")))
    }

    /// Converts a status to an error. A status with a source was made in this process, by a connection that failed, and
    /// does not name the server.
    pub(crate) fn failure(&self, status: Status) -> Error {
        let is_ours = std::error::Error::source(&status).is_some();
        match stoker_wire::Error::from(status) {
            stoker_wire::Error::Remote { kind: ErrorKind::Unavailable, message } if is_ours => {
                unreachable(&self.inner.addresses, message)
            }
            stoker_wire::Error::Remote { kind: ErrorKind::InvalidRequest, message }
                if message.contains(UNKNOWN_PARAM) =>
            {
                Error::invalid(format!(
                    "server {} is older than this client and does not know the type of a parameter: \
                     update it, or pass text and CAST it in the query",
                    self.inner.addresses
                ))
            }
            error => error.into(),
        }
    }

    /// Drops the kept connection. Later calls begin with the next server.
    pub(crate) fn leave(&self) {
        let kept = self.inner.channel.lock().take();
        let left = kept.map_or_else(|| self.inner.current.load(Ordering::Relaxed), |(server, _)| server);
        self.inner.current.store((left + 1) % self.inner.servers.len(), Ordering::Relaxed);
    }

    /// Sends a command and returns the answer of the first server that gives one. The flag is `false` for a stream
    /// whose specification the server could not store, so that its id alone does not find it.
    pub(crate) async fn get_flight_info(&self, kind: Kind) -> Result<(FlightInfo, bool)> {
        let command = Command { version: COMMAND_VERSION, kind: Some(kind) }.encode_to_vec();
        let descriptor = FlightDescriptor::new_cmd(command);
        let call = |mut client: Client| {
            let descriptor = descriptor.clone();
            async move { client.get_flight_info(descriptor).await }
        };
        let response = self.ask(call).await?;
        let stored = response.metadata().get(SPEC_STORED).is_none_or(|value| value != "false");
        Ok((response.into_inner(), stored))
    }

    /// Returns the index of the server that answered last, which signed the newest tickets.
    pub(crate) fn current_server(&self) -> usize {
        self.inner.current.load(Ordering::Relaxed)
    }

    /// Opens a connection for each ticket of an answer. `server(i)` is the index (cyclic) of the server at which the
    /// client tries ticket i first.
    ///
    /// The locations of endpoints are for other clients; this client ignores them. Flight says that a ticket belongs to
    /// one of its locations. Stoker's tickets are valid at every server that shares the key, so also at the servers
    /// that this client was configured with. An answer could name any host as a location; to connect there could send
    /// the token and the data to a host that nobody configured, or without TLS.
    pub(crate) async fn do_get(
        &self,
        info: &FlightInfo,
        server: impl Fn(usize) -> usize,
    ) -> Result<Vec<MessageReader>> {
        let mut readers = Vec::new();
        for (index, endpoint) in info.endpoint.iter().enumerate() {
            let ticket = endpoint.ticket.as_ref().ok_or_else(|| Error::internal("an endpoint has no ticket"))?;
            readers.push(self.get(ticket, server(index)).await?);
        }
        Ok(readers)
    }

    async fn get(&self, ticket: &Ticket, first: usize) -> Result<MessageReader> {
        let num = self.inner.servers.len();
        let mut failure = None;
        for offset in 0..num {
            let (server, _) = &self.inner.servers[first.wrapping_add(offset) % num];
            match do_get(server, CONNECT_TIMEOUT, ticket, &self.inner.token).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => failure = Some(error.into()),
                answer => return Ok(answer?),
            }
        }
        Err(failure.unwrap_or_else(|| Error::internal("the list of servers is empty")))
    }

    /// Asks a call that may be repeated, for the retry budget of `patience`.
    pub(crate) async fn call_patiently<C: Call>(&self, call: &C, patience: &Patience) -> Result<C::Answer> {
        patience.ask(C::DOING, || self.call_any(call, None)).await
    }

    /// Asks a call that may be repeated of one server after the other, until one answers or the deadline passes.
    async fn call_any<C: Call>(&self, call: &C, deadline: Option<Moment>) -> Result<C::Answer> {
        let action = Action { r#type: C::NAME.to_string(), body: encode_call(call)?.into() };
        let clock = self.inner.patience.clock();
        let act = |client| act(client, action.clone(), deadline.map(|deadline| deadline - clock.now()));
        let body = self.ask(act).await?.into_inner();
        Ok(decode_answer::<C>(body)?)
    }

    /// Asks a call once, of one server.
    async fn call_once<C: Call>(&self, call: &C) -> Result<C::Answer> {
        let action = Action { r#type: C::NAME.to_string(), body: encode_call(call)?.into() };
        let answer = act(self.client().await?, action, None).await.map_err(|status| self.failure(status));
        if answer.as_ref().is_err_and(|error| error.kind().is_transient()) {
            self.leave();
        }
        Ok(decode_answer::<C>(answer?.into_inner())?)
    }

    /// Checks that a server answers and executes statements. A connection that broke since the last call is replaced, so
    /// that a statement is not lost with it.
    async fn check_executes(&self) -> Result<()> {
        let list = |mut client: Client| async move { client.list_actions(Empty {}).await };
        let mut actions = self.ask(list).await?.into_inner();
        while let Some(action) = actions.message().await.map_err(|status| self.failure(status))? {
            if action.r#type == ExecuteStatement::NAME {
                return Ok(());
            }
        }
        Err(Error::invalid(format!(
            "server {} is older than this client and executes no statements: update it",
            self.inner.addresses
        )))
    }

    /// Sends a statement that changes the lake, once, and waits for its outcome.
    async fn execute_once(
        &self,
        sql: &str,
        params: &[ParamValue],
        progress: &ProgressSink<'_>,
    ) -> Result<StatementOutcome> {
        let call = ExecuteStatement { sql: sql.to_string(), params: params.to_vec() };
        let action = Action { r#type: ExecuteStatement::NAME.to_string(), body: encode_call(&call)?.into() };
        self.inner.patience.ask(ExecuteStatement::DOING, || self.check_executes()).await?;
        let mut client = self.client().await?;
        let failure = |status: Status| {
            let is_of_server = is_of_server(&status);
            match self.failure(status) {
                error if !is_of_server && error.kind() == ErrorKind::Unavailable => self.lost(sql, error.to_string()),
                error => error,
            }
        };
        let mut messages = client.do_action(action).await.map_err(failure)?.into_inner();
        while let Some(message) = messages.message().await.map_err(failure)? {
            match StatementMessage::decode(&message.body) {
                Ok(StatementMessage::Progress(done)) => progress(done),
                Ok(StatementMessage::Outcome(outcome)) => return Ok(outcome),
                Err(error) => return Err(self.lost(sql, error.to_string())),
            }
        }
        Err(self.lost(sql, "the server sent no outcome".to_string()))
    }

    /// Drops the connection that lost the answer to a statement, and returns the error.
    fn lost(&self, sql: &str, reason: String) -> Error {
        self.leave();
        let Inquiry { statement, question } = Inquiry::about(sql);
        Error::OutcomeUnknown { attempted: statement, reason, look: question }
    }
}

impl Answering for RemoteLake {
    type Error = Error;
}

/// Servers answer every call. They know the caller by its token: of the context, only the deadline is sent, and only of
/// calls that may be repeated, because a write that was begun is finished.
impl<C: Call> Answers<C> for RemoteLake {
    async fn answer(&self, context: &Context, call: C) -> Result<C::Answer> {
        match C::IS_REPEATABLE {
            true => self.call_any(&call, context.deadline).await,
            false => self.call_once(&call).await,
        }
    }
}

impl Lake for RemoteLake {
    fn is_local(&self) -> bool {
        false
    }

    fn has_replicas(&self) -> bool {
        self.inner.servers.len() > 1
    }

    fn patience(&self) -> &Patience {
        &self.inner.patience
    }

    fn sql_schema<'a>(&'a self, sql: &'a str, params: &'a [ParamValue]) -> BoxFuture<'a, Result<SchemaRef>> {
        remote_sql_schema(self, sql, params).boxed()
    }

    fn sql<'a>(
        &'a self,
        sql: &'a str,
        params: &'a [ParamValue],
        options: SqlOptions,
    ) -> BoxFuture<'a, Result<SqlResult>> {
        remote_sql(self, sql, params, options).boxed()
    }

    fn execute<'a>(
        &'a self,
        _: &'a Context,
        sql: &'a str,
        params: &'a [ParamValue],
        progress: &'a ProgressSink<'a>,
    ) -> BoxFuture<'a, Result<StatementOutcome>> {
        self.execute_once(sql, params, progress).boxed()
    }

    fn begin_write<'a>(
        &'a self,
        request: &'a WriteRequest,
        columns: &'a SchemaRef,
    ) -> BoxFuture<'a, Result<Box<dyn RowWriter>>> {
        begin_remote_write(self, request, columns).boxed()
    }

    fn plan<'a>(&'a self, source: StreamSource<'a>) -> BoxFuture<'a, Result<StreamHandle>> {
        let source = match source {
            StreamSource::Request(request) => Source::Query(request_to_proto(request)),
            StreamSource::Id(id) => Source::StreamId(id.to_string()),
            StreamSource::Spec(spec) => Source::Spec(spec.to_json()),
        };
        plan_remote(self, source).boxed()
    }
}

/// The TLS configuration of `DoGet`.
fn tls_config(options: &ClientOptions) -> stoker_wire::Result<Arc<rustls::ClientConfig>> {
    Ok(client_config(&options.tls_files()?, Protocol::Http2)?)
}

fn unreachable(addresses: &str, reason: String) -> Error {
    stoker_wire::Error::Unreachable { target: addresses.to_string(), reason }.into()
}

/// Performs an action at one server and returns its whole answer. The server does not answer after `timeout`.
async fn act(mut client: Client, action: Action, timeout: Option<Duration>) -> Result<Response<Vec<u8>>, Status> {
    let attempted = format!("action {}", action.r#type);
    let mut request = Request::new(action);
    if let Some(timeout) = timeout {
        request.set_timeout(timeout.min(TIMEOUT_MAX));
    }
    let begun = client.do_action(request).await;
    let answers = begun.map_err(|status| in_words_of_servers(status, &attempted))?.into_inner();
    Ok(Response::new(collect(answers).await?))
}

/// Returns the status of a call that failed. The channel, too, ends a call at its deadline; the status is then that of a
/// server that ended it.
fn in_words_of_servers(status: Status, attempted: &str) -> Status {
    let mut cause = std::error::Error::source(&status);
    while let Some(error) = cause {
        if error.is::<TimeoutExpired>() {
            let error = Error::Deadline { attempted: attempted.to_string() };
            return to_status(error.kind(), &error.to_string());
        }
        cause = error.source();
    }
    status
}

/// Concatenates the parts of an answer.
async fn collect(mut answers: Streaming<arrow_flight::Result>) -> Result<Vec<u8>, Status> {
    let mut all = Vec::new();
    while let Some(answer) = answers.message().await? {
        all.extend_from_slice(&answer.body);
    }
    Ok(all)
}

/// Formats an error with its causes, because the outermost error says little. A cause that begins with the text of the
/// error before it replaces that text.
fn causes(error: &dyn std::error::Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if texts.last().is_some_and(|last| text.starts_with(last.as_str())) {
            texts.pop();
        }
        texts.push(text);
        cause = error.source();
    }
    texts.join(": ")
}
