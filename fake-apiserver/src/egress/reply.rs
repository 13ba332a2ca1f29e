//! Reads the response of a webhook.

use http::{Response, header};
use http_body_util::{BodyExt as _, Limited};

use crate::registry::webhook::transport::{REPLY_BYTES_MAX, Reply};

/// Reads a response, up to a maximum length.
pub(super) async fn reply<B>(response: Response<B>) -> Result<Reply, String>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = response.into_parts();
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let location = parts.headers.get(header::LOCATION).and_then(|it| it.to_str().ok());
    let body = Limited::new(body, REPLY_BYTES_MAX)
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    let retry_after = parts.headers.get(header::RETRY_AFTER);
    Ok(Reply {
        code: parts.status.as_u16(),
        retry_after: retry_after.and_then(|it| it.to_str().ok()?.parse().ok()),
        location: location.map(str::to_owned),
        content_type: content_type.to_owned(),
        body: body.to_bytes(),
    })
}
