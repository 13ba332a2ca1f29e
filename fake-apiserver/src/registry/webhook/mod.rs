//! Webhook calls for admission and conversion: posts a review, and parses the response like client-go.

pub(crate) mod transport;

use std::time::Duration;

use bytes::Bytes;

use super::types::endpoint::Endpoint;
use crate::api::field::quote;
use crate::api::json::{Map, Value};
use transport::{REPLY_BYTES_MAX, Reply, Transport};

/// Maximum number of retries after responses with `Retry-After` (`maxRetries` of client-go).
const RETRIES: u32 = 10;

/// Posts a review, and returns the JSON object in the response.
pub(crate) async fn call(
    transport: &dyn Transport,
    endpoint: &Endpoint,
    timeout: Duration,
    review: &Value,
) -> Result<Map, String> {
    let separator = if endpoint.url.contains('?') { '&' } else { '?' };
    let url = cleaned(&endpoint.url);
    let url = format!("{url}{separator}timeout={}s", timeout.as_secs());
    let body = Bytes::from(review.to_string());
    let failed = |why: &str| format!("Post {}: {why}", quote(&url));
    let reply = tokio::time::timeout(timeout, post(transport, endpoint, &url, body))
        .await
        .map_err(|_| failed("context deadline exceeded"))?
        .map_err(|why| failed(&why))?;
    if reply.body.len() > REPLY_BYTES_MAX {
        return Err(format!("the response is longer than {REPLY_BYTES_MAX} bytes"));
    }
    if !(200..=206).contains(&reply.code) {
        return Err(unexpected(&reply));
    }
    decode(&reply.body)
}

/// Posts a review. After a response with the code 429 or 5xx and a `Retry-After`, waits for that time and retries.
async fn post(transport: &dyn Transport, endpoint: &Endpoint, url: &str, body: Bytes) -> Result<Reply, String> {
    let mut tries = 0;
    loop {
        let reply = transport.post(endpoint, url, body.clone()).await?;
        let wait = reply.retry_after.filter(|_| reply.code == 429 || reply.code >= 500);
        let Some(wait) = wait.filter(|_| tries < RETRIES) else {
            return Ok(reply);
        };
        tries += 1;
        tokio::time::sleep(Duration::from_secs(wait)).await;
    }
}

/// Shortens the path of a URL like client-go: removes empty segments, `.` and trailing slashes, and resolves `..`.
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

/// Decodes the body as a JSON object.
fn decode(body: &[u8]) -> Result<Map, String> {
    // Same as Go, which replaces invalid UTF-8.
    let body = String::from_utf8_lossy(body);
    let value: Value = serde_json::from_str(&body).map_err(|error| {
        let text = crate::api::json::syntax_error(body.as_bytes()).unwrap_or_else(|| error.to_string());
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

/// Returns client-go's error for an unsuccessful response.
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

/// Returns the message of a Status in the body, which is more specific than the code.
fn status_message(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let is_status = value.get("kind")? == "Status" && value.get("apiVersion")? == "v1";
    let message = value.get("message").and_then(Value::as_str).unwrap_or_default();
    is_status.then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::double_slash_from_envtest("https://127.0.0.1:9443//mutate-v1-pod", "https://127.0.0.1:9443/mutate-v1-pod")]
    #[case::dots("https://h/a/./b/../c/?x=//y", "https://h/a/c?x=//y")]
    #[case::parent_of_the_root("https://h/../a", "https://h/a")]
    #[case::root("https://h//", "https://h/")]
    #[case::no_path("https://h", "https://h")]
    fn webhook_url_paths_are_cleaned_as_in_client_go(#[case] url: &str, #[case] expected: &str) {
        assert_eq!(cleaned(url), expected);
    }
}
