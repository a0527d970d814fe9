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
/// The maximum size in bytes of a message with rows that a client writes: that of a row, because rows are sent in messages
/// of [`PART_BYTES`].
pub const WRITTEN_BYTES_MAX: usize = 256 << 20;
/// The size in bytes that messages of a client that writes rows aim at. The body of a longer one is sent in parts of this
/// size, because servers limit the messages of clients.
pub const PART_BYTES: usize = 2 << 20;
