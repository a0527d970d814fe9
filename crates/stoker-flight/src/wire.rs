//! What both ends of a connection agree on.

/// HTTP/2 windows: the bytes that may be under way before the peer acknowledges them.
pub(crate) const WINDOW_BYTES: u32 = 32 << 20;
/// HTTP/2 frames; the default of 16 KiB costs processor time.
pub(crate) const FRAME_BYTES: u32 = 1 << 20;
/// Bytes of a message at most: one row may be larger than a message should be.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// The name of the service in paths and health checks.
pub(crate) const SERVICE: &str = "arrow.flight.protocol.FlightService";
/// The path of `DoGet`, which both ends handle without tonic's codec.
pub(crate) const DO_GET_PATH: &str = "/arrow.flight.protocol.FlightService/DoGet";
/// The authority of requests over a Unix socket, where gRPC's own clients have it too.
pub(crate) const UNIX_AUTHORITY: &str = "localhost";
/// The media type of requests and answers.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";
/// Metadata of the answer to GetFlightInfo: whether the lake keeps the stream's specification.
pub(crate) const SPEC_STORED: &str = "stoker-spec-stored";
