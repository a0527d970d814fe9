//! Errors are the same after they went from server to client as gRPC statuses.

use stoker::Error;
use stoker_types::ErrorKind;
use tonic::{Code, Status};

use crate::flight::status;

#[test]
fn every_kind_arrives_as_itself() {
    for kind in ErrorKind::ALL {
        let status = status(stoker_wire::Error::Remote { kind, message: "what went wrong".into() });
        assert_ne!(status.code(), Code::Ok);
        let arrived = stoker_wire::Error::from(status);
        assert_eq!(arrived.kind(), kind);
        let is_told = arrived.to_string() == "what went wrong";
        assert_eq!(is_told, kind != ErrorKind::Internal, "{arrived}");
    }
}

#[test]
fn codes_of_others_become_kinds() {
    for (code, kind) in [
        (Code::Unavailable, ErrorKind::Unavailable),
        (Code::Unknown, ErrorKind::Unavailable),
        (Code::Unimplemented, ErrorKind::InvalidRequest),
        (Code::PermissionDenied, ErrorKind::PermissionDenied),
        (Code::DataLoss, ErrorKind::DataCorrupt),
    ] {
        assert_eq!(stoker_wire::Error::from(Status::new(code, "")).kind(), kind);
    }
}

#[test]
fn messages_keep_no_credentials_and_fit_a_header() {
    let told = |message: &str| status(Error::invalid(message)).message().to_string();
    assert_eq!(
        told("GET https://key:pass@host/bucket/a.lance?X-Amz-Signature=abc failed"),
        "GET https://host/bucket/a.lance failed"
    );
    assert_eq!(told("with aws_secret_access_key=abc and Token:abc"), "with aws_secret_access_key=… and Token:…");
    assert_eq!(told("column \"token_count\" does not exist"), "column \"token_count\" does not exist");
    assert!(told(&"x".repeat(100_000)).len() < 4_096);
}
