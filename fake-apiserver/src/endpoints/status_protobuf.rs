//! A Status in Kubernetes' protobuf envelope, for clients that accept no other encoding (rule M5).

use crate::api::protobuf::{write_bytes, write_number, write_text};
use crate::api::status::Status;

/// Encodes the body of a failure: the magic number, then a `runtime.Unknown` that contains the Status.
pub(crate) fn encode(status: &Status) -> Vec<u8> {
    let mut type_meta = Vec::new();
    write_text(&mut type_meta, 1, "v1");
    write_text(&mut type_meta, 2, "Status");

    let mut list_meta = Vec::new();
    write_text(&mut list_meta, 1, "");
    write_text(&mut list_meta, 2, "");
    write_text(&mut list_meta, 3, status.continue_token.as_deref().unwrap_or_default());

    let mut body = Vec::new();
    write_bytes(&mut body, 1, &list_meta);
    write_text(&mut body, 2, if status.code < 400 { "Success" } else { "Failure" });
    write_text(&mut body, 3, &status.message);
    write_text(&mut body, 4, &status.reason);
    if let Some(details) = &status.details {
        let mut message = Vec::new();
        write_text(&mut message, 1, &details.name);
        write_text(&mut message, 2, &details.group);
        write_text(&mut message, 3, &details.kind);
        for cause in &details.causes {
            let mut item = Vec::new();
            write_text(&mut item, 1, &cause.reason);
            write_text(&mut item, 2, &cause.message);
            write_text(&mut item, 3, &cause.field);
            write_bytes(&mut message, 4, &item);
        }
        write_number(&mut message, 5, details.retry_after_seconds.into());
        write_text(&mut message, 6, &details.uid);
        write_bytes(&mut body, 5, &message);
    }
    write_number(&mut body, 6, status.code.into());

    let mut out = b"k8s\0".to_vec();
    write_bytes(&mut out, 1, &type_meta);
    write_bytes(&mut out, 2, &body);
    write_text(&mut out, 3, "");
    write_text(&mut out, 4, "");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_status_is_encoded_as_in_kube_apiserver() {
        let accepted = [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ];
        let written = encode(&Status::not_acceptable(&accepted));
        let mut expected =
            b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x12\x99\x01\n\x06\n\0\x12\0\x1a\0\x12\x07Failure\x1at".to_vec();
        expected.extend_from_slice(
            b"only the following media types are accepted: application/json, application/yaml, \
              application/vnd.kubernetes.protobuf",
        );
        expected.extend_from_slice(b"\"\rNotAcceptable0\x96\x03\x1a\0\"\0");
        assert_eq!(written, expected);
    }
}
