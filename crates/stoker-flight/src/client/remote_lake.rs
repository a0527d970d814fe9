//! A lake behind servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{Action, FlightData, FlightDescriptor, FlightInfo};
use futures::StreamExt;
use futures::stream::BoxStream;
use prost::Message;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::client::ConnectOptions;
use crate::convert::COMMAND_VERSION;
use crate::proto::{Command, command::Kind};
use crate::{Error, Result};

const WINDOW_BYTES: u32 = 32 << 20;
const MESSAGE_BYTES_MAX: usize = 1 << 30;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type Client = FlightServiceClient<InterceptedService<Channel, Token>>;

/// A lake behind one or several equal servers. Cheap to clone.
#[derive(Clone)]
pub struct RemoteLake {
    inner: Arc<Inner>,
}

struct Inner {
    hosts: String,
    endpoints: Vec<Endpoint>,
    token: Token,
    /// The server that answered last.
    current: AtomicUsize,
    options: ConnectOptions,
}

#[derive(Clone)]
struct Token(Option<MetadataValue<Ascii>>);

impl tonic::service::Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

impl RemoteLake {
    pub(crate) async fn connect(hosts: &str, tls: bool, options: &ConnectOptions) -> Result<Self> {
        let mut endpoints = Vec::new();
        for host in hosts.split(',').map(|host| host.trim().trim_end_matches('/')).filter(|host| !host.is_empty()) {
            endpoints.push(endpoint(host, tls, options)?);
        }
        if endpoints.is_empty() {
            return Err(Error::invalid("the target names no server; use grpc://host:port"));
        }
        let token = match &options.token {
            None => None,
            Some(token) => {
                let mut value: MetadataValue<Ascii> = format!("Bearer {token}")
                    .parse()
                    .map_err(|_| Error::invalid("the token has characters that no header takes"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let inner = Inner {
            hosts: hosts.to_string(),
            endpoints,
            token: Token(token),
            current: AtomicUsize::new(0),
            options: options.clone(),
        };
        let lake = Self { inner: Arc::new(inner) };
        lake.client().await?;
        Ok(lake)
    }

    pub(crate) fn options(&self) -> &ConnectOptions {
        &self.inner.options
    }

    /// A client of the first server that answers, beginning with the one that did last.
    async fn client(&self) -> Result<Client> {
        let num = self.inner.endpoints.len();
        let first = self.inner.current.load(Ordering::Relaxed);
        let mut reason = String::new();
        for offset in 0..num {
            let index = (first + offset) % num;
            match self.inner.endpoints[index].connect().await {
                Ok(channel) => {
                    self.inner.current.store(index, Ordering::Relaxed);
                    let client = FlightServiceClient::with_interceptor(channel, self.inner.token.clone());
                    return Ok(client.max_decoding_message_size(MESSAGE_BYTES_MAX));
                }
                Err(error) => reason = causes(&error),
            }
        }
        Err(Error::Unreachable { target: self.inner.hosts.clone(), reason })
    }

    pub(crate) async fn get_flight_info(&self, kind: Kind) -> Result<FlightInfo> {
        let command = Command { version: COMMAND_VERSION, kind: Some(kind) }.encode_to_vec();
        Ok(self.client().await?.get_flight_info(FlightDescriptor::new_cmd(command)).await?.into_inner())
    }

    /// The messages of every endpoint of an answer, over one connection each.
    pub(crate) async fn do_get(&self, info: &FlightInfo) -> Result<Vec<BoxStream<'static, Result<FlightData>>>> {
        let mut streams = Vec::new();
        for endpoint in &info.endpoint {
            let ticket = endpoint.ticket.clone().ok_or_else(|| Error::internal("an endpoint without a ticket"))?;
            let stream = self.client().await?.do_get(ticket).await?.into_inner();
            streams.push(stream.map(|message| message.map_err(Error::from)).boxed());
        }
        Ok(streams)
    }

    pub(crate) async fn do_action(&self, name: &str, body: Vec<u8>) -> Result<Vec<u8>> {
        let action = Action { r#type: name.to_string(), body: body.into() };
        let mut results = self.client().await?.do_action(action).await?.into_inner();
        let mut answer = Vec::new();
        while let Some(result) = results.message().await? {
            answer.extend_from_slice(&result.body);
        }
        Ok(answer)
    }
}

fn endpoint(host: &str, tls: bool, options: &ConnectOptions) -> Result<Endpoint> {
    let uri = format!("{}://{host}", if tls { "https" } else { "http" });
    let endpoint = Endpoint::from_shared(uri)
        .map_err(|source| Error::invalid(format!("{host:?} is not a host and port: {source}")))?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    if !tls {
        return Ok(endpoint);
    }
    let mut config = ClientTlsConfig::new().with_native_roots();
    if let Some(path) = &options.tls_ca {
        let pem = std::fs::read(path).map_err(|source| {
            Error::invalid(format!("cannot read the certificate authority {}: {source}", path.display()))
        })?;
        config = config.ca_certificate(Certificate::from_pem(pem));
    }
    endpoint.tls_config(config).map_err(|source| Error::invalid(format!("TLS cannot be set up: {source}")))
}

/// An error with its causes: the outermost says little.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
