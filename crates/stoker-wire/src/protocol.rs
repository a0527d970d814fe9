//! Constants that both ends of a connection share.

/// The maximum size of a message in bytes. It is far above the usual size because a single row may be large.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// The name of the service in paths and health checks.
pub const SERVICE: &str = "arrow.flight.protocol.FlightService";
/// The path of `DoGet`, which both ends handle without tonic's codec.
pub const DO_GET_PATH: &str = "/arrow.flight.protocol.FlightService/DoGet";
/// The media type of requests and responses.
pub const CONTENT_TYPE: &str = "application/grpc";
/// The metadata entry of the response to GetFlightInfo that tells whether the lake stores the stream's specification.
pub const SPEC_STORED: &str = "stoker-spec-stored";
