//! Constants that both ends of a connection share.

/// The size of the HTTP/2 flow-control windows for responses: the bytes that a server may send before the client
/// acknowledges them.
pub(crate) const WINDOW_BYTES: u32 = 32 << 20;
/// The maximum size of HTTP/2 frames in responses. The default of 16 KiB costs more processor time.
pub(crate) const FRAME_BYTES: u32 = 1 << 20;
/// The maximum size of a message in bytes. It is far above the usual size because a single row may be large.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// The name of the service in paths and health checks.
pub(crate) const SERVICE: &str = "arrow.flight.protocol.FlightService";
/// The path of `DoGet`, which both ends handle without tonic's codec.
pub(crate) const DO_GET_PATH: &str = "/arrow.flight.protocol.FlightService/DoGet";
/// The `:authority` of requests over a Unix socket. gRPC's own clients use it too.
pub(crate) const UNIX_AUTHORITY: &str = "localhost";
/// The media type of requests and responses.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";
/// The metadata entry of the response to GetFlightInfo that tells whether the lake stores the stream's specification.
pub(crate) const SPEC_STORED: &str = "stoker-spec-stored";
