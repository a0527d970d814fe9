//! The statuses of failed requests.

use stoker_session::Error;
use stoker_types::ErrorKind;
use stoker_wire::status::{redact, to_status};
use tonic::Status;

use crate::request_id::RequestId;

/// Makes the status of an error. The text of an internal error stays in the server's log; the client gets the id of the
/// request, under which the log has it.
pub(crate) fn status(error: impl Into<Error>) -> Status {
    let error = error.into();
    match error.kind() {
        ErrorKind::Internal => {
            // Only tests make a status outside a request.
            let request = RequestId::current().map_or_else(|| "unknown".to_string(), |id| id.to_string());
            let error = redact(&error.to_string());
            tracing::error!(
                error,
                %request,
                "a request failed because of a bug"
            );
            let message = format!("internal error in request {request}; the server's log says more");
            to_status(ErrorKind::Internal, &message)
        }
        kind => to_status(kind, &error.to_string()),
    }
}
