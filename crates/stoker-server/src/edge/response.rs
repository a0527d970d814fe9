//! Responses to the requests of a connection.
//!
//! Body and future are types of their own around trait objects, because rustc cannot prove of trait objects in an async
//! block that they are `'static`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as HttpBody, Frame};
use stoker_wire::encode::Segments;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};

/// Responds to the requests of all connections.
pub(crate) type Respond = Arc<dyn Fn(Request<Body>) -> Responding + Send + Sync>;

/// A response to come.
pub(crate) struct Responding(BoxFuture<'static, Response<ResponseBody>>);

impl Responding {
    pub fn new(responding: impl Future<Output = Response<ResponseBody>> + Send + 'static) -> Self {
        Self(Box::pin(responding))
    }
}

impl Future for Responding {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

/// The body of a response. The segments of a frame are written to the socket together, without copying them.
#[derive(Default)]
pub(crate) struct ResponseBody(UnsyncBoxBody<Segments, Status>);

impl ResponseBody {
    pub fn new(body: impl HttpBody<Data = Segments, Error = Status> + Send + 'static) -> Self {
        Self(body.boxed_unsync())
    }

    /// Converts a response of one of tonic's services.
    pub fn of_tonic(response: Response<Body>) -> Response<Self> {
        response.map(|body| Self::new(body.map_frame(|frame| frame.map_data(Segments::from))))
    }
}

impl HttpBody for ResponseBody {
    type Data = Segments;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
