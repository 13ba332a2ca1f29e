//! One call of a webhook: the review that is sent, and the answer read with all that may be wrong with it (rules P2 to
//! P4).

use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::config::Webhook;
use super::transport::{REPLY_BYTES_MAX, Reply, Transport};
use crate::api::admission::{AdmissionRequest, Denial};
use crate::api::field::quote;
use crate::api::status::StatusDetails;
use crate::registry::types::endpoint::Endpoint;
use crate::registry::types::review_version::ReviewVersion;

/// Answer of a webhook.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) denied: Option<Denial>,
    /// The JSON patch, if there is one.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: Option<String>,
    pub(super) warnings: Vec<String>,
}

/// Asks a webhook. The error is what follows `failed calling webhook "w": `.
pub(super) async fn ask(
    transport: &dyn Transport,
    webhook: &Webhook,
    request: &AdmissionRequest,
    is_mutating: bool,
) -> Result<Answer, String> {
    let version = webhook
        .review
        .ok_or("webhook does not accept known AdmissionReview versions (v1, v1beta1)")?;
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": version.in_group("admission.k8s.io"), "request": request.to_value(),
    });
    let reply = call(transport, &webhook.endpoint, webhook.timeout, &review)
        .await
        .map_err(|why| format!("failed to call webhook: {why}"))?;
    read(&reply, version, &request.uid, is_mutating).map_err(|why| format!("received invalid webhook response: {why}"))
}

/// Posts a review and reads the JSON object that comes back. Conversion of custom resources is called the same way.
pub(crate) async fn call(
    transport: &dyn Transport,
    endpoint: &Endpoint,
    timeout: std::time::Duration,
    review: &Value,
) -> Result<Map<String, Value>, String> {
    let separator = if endpoint.url.contains('?') { '&' } else { '?' };
    let url = cleaned(&endpoint.url);
    let url = format!("{url}{separator}timeout={}s", timeout.as_secs());
    let body = Bytes::from(review.to_string());
    let failed = |why: &str| format!("Post {}: {why}", quote(&url));
    let reply = tokio::time::timeout(timeout, transport.post(endpoint, &url, body))
        .await
        .map_err(|_| failed("context deadline exceeded"))?
        .map_err(|why| failed(&why))?;
    if reply.body.len() > REPLY_BYTES_MAX {
        return Err(format!("the answer is longer than {REPLY_BYTES_MAX} bytes"));
    }
    if !(200..=206).contains(&reply.code) {
        return Err(unexpected(&reply));
    }
    decode(&reply.body)
}

/// A URL whose path is as short as client-go makes it, which calls webhooks: without empty parts, `.` and `..`, and
/// without a slash at its end.
fn cleaned(url: &str) -> String {
    let (whole, query) = match url.split_once('?') {
        Some((whole, query)) => (whole, format!("?{query}")),
        None => (url, String::new()),
    };
    let start = whole.find("://").map_or(0, |at| at + "://".len());
    let Some(slash) = whole[start..].find('/') else {
        return url.to_owned();
    };
    let (host, path) = whole.split_at(start + slash);
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("{host}/{}{query}", parts.join("/"))
}

/// The body as an object.
fn decode(body: &[u8]) -> Result<Map<String, Value>, String> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        let text = crate::api::json::syntax_error(body).unwrap_or_else(|| error.to_string());
        format!("couldn't get version/kind; json parse error: {text}")
    })?;
    let Value::Object(map) = value else {
        return Err(
            "couldn't get version/kind; json parse error: json: cannot unmarshal the answer into Go value of \
                    type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                    \"json:\\\"kind,omitempty\\\"\" }"
                .to_owned(),
        );
    };
    Ok(map)
}

/// Returns the client library's text for an unsuccessful answer.
fn unexpected(reply: &Reply) -> String {
    let is_text = reply.content_type.is_empty() || reply.content_type.starts_with("text/");
    let text = String::from_utf8_lossy(&reply.body);
    let message = if is_text { text.trim() } else { "unknown" };
    if let Some(said) = status_message(&reply.body) {
        return said;
    }
    match reply.code {
        400 => format!("the server rejected our request for an unknown reason{}", ""),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => message.to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 => message.to_owned(),
        409 => "the server reported a conflict".to_owned(),
        415 => message.to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        500.. => {
            format!(
                "an error on the server ({}) has prevented the request from succeeding",
                quote(message)
            )
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

/// The message of a Status in the body, which says more than the code.
fn status_message(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let is_status = value.get("kind")? == "Status" && value.get("apiVersion")? == "v1";
    let message = value.get("message").and_then(Value::as_str).unwrap_or_default();
    is_status.then(|| message.to_owned())
}

/// Reads the response of a review (rule P2), after `VerifyAdmissionResponse` of k8s.io/apiserver.
fn read(review: &Map<String, Value>, version: ReviewVersion, uid: &str, is_mutating: bool) -> Result<Answer, String> {
    let text =
        |map: &Map<String, Value>, key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_v1 = version == ReviewVersion::V1;
    let response = match review.get("response") {
        Some(Value::Object(response)) => response,
        _ => return Err("webhook response was absent".to_owned()),
    };
    let given = text(response, "uid");
    if is_v1 && given != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&given)));
    }
    let (kind, version) = (text(review, "kind"), text(review, "apiVersion"));
    if is_v1 && (kind != "AdmissionReview" || version != "admission.k8s.io/v1") {
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={kind}"
        ));
    }
    let mut patch_type = response.get("patchType").and_then(Value::as_str).map(str::to_owned);
    let mut patch = match response.get("patch").and_then(Value::as_str) {
        Some(patch) => base64::engine::general_purpose::STANDARD
            .decode(patch)
            .map_err(|_| "illegal base64 data in response.patch".to_owned())?,
        None => Vec::new(),
    };
    if !is_v1 {
        // The type of a patch was not looked at, nor a patch of a validating webhook.
        if !is_mutating {
            patch.clear();
        }
        patch_type = (!patch.is_empty()).then(|| "JSONPatch".to_owned());
    }
    match (is_mutating, patch.is_empty(), &patch_type) {
        (true, false, None) => return Err("webhook returned response.patch but not response.patchType".into()),
        (true, true, Some(_)) => return Err("webhook returned response.patchType but not response.patch".into()),
        (true, _, Some(kind)) if kind.is_empty() => {
            return Err("webhook returned invalid response.patchType of \"\"".into());
        }
        (false, false, _) => return Err("validating webhook may not return response.patch".into()),
        (false, true, Some(_)) => return Err("validating webhook may not return response.patchType".into()),
        (true, _, _) | (false, true, None) => {}
    }
    let warnings = response.get("warnings").and_then(Value::as_array);
    let warnings = warnings
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned);
    Ok(Answer {
        denied: (response.get("allowed") != Some(&Value::Bool(true))).then(|| denial(response.get("status"))),
        patch,
        patch_type,
        warnings: warnings.collect(),
    })
}

/// `status` of a response.
fn denial(status: Option<&Value>) -> Denial {
    let text = |key: &str| {
        status
            .and_then(|it| it.get(key)?.as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let code = status.and_then(|it| it.get("code")?.as_u64()).unwrap_or_default();
    let details = status.and_then(|it| it.get("details")).filter(|it| !it.is_null());
    Denial {
        code: u16::try_from(code).unwrap_or_default(),
        reason: text("reason"),
        message: text("message"),
        details: details
            .and_then(|it| serde_json::from_value::<StatusDetails>(it.clone()).ok())
            .map(Box::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::as_envtest_writes_it("https://127.0.0.1:9443//mutate-v1-pod", "https://127.0.0.1:9443/mutate-v1-pod")]
    #[case::dots("https://h/a/./b/../c/?x=//y", "https://h/a/c?x=//y")]
    #[case::above_the_root("https://h/../a", "https://h/a")]
    #[case::the_root("https://h//", "https://h/")]
    #[case::no_path("https://h", "https://h")]
    fn paths_are_as_short_as_client_go_makes_them(#[case] url: &str, #[case] expected: &str) {
        assert_eq!(cleaned(url), expected);
    }
}
