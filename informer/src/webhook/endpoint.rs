//! `Endpoint`: serves a webhook at an HTTP path. Failures are returned in the review's response, as in
//! controller-runtime.

use std::error::Error as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header};
use http_body_util::LengthLimitError;
use kube::core::Status;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::Instrument;

use super::conversion::{self, Conversion, ConversionRequest, ConversionResponse};
use super::denial::Denial;
use super::review::{API_VERSION, AdmissionRequest, AdmissionResponse, Answered, Asked};
use super::span::{self, SpanOf};
use super::stats::Stats;
use crate::error::text_of_panic;

/// Maximum length of an admission review in bytes: two objects of 3 MiB, and 1 MiB for all other fields, as in
/// controller-runtime.
const REVIEW_BYTES_MAX: usize = 7 * 1024 * 1024;

const CONVERSION_API_VERSION: &str = "apiextensions.k8s.io/v1";

/// Function that decides on an admission request.
pub(super) type Deciding =
    Arc<dyn Fn(AdmissionRequest) -> BoxFuture<'static, Result<AdmissionResponse, Denial>> + Send + Sync>;

/// A path and its webhook.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) path: String,
    pub(super) stats: Arc<Stats>,
    pub(super) what: What,
    /// Function that creates the spans of admission requests. Default: `None`, which creates the default span.
    pub(super) span: Option<SpanOf>,
}

/// The webhook at a path.
#[derive(Clone)]
pub(super) enum What {
    Admission(Deciding),
    /// The conversions, and the maximum length of a review in bytes.
    Conversion(Arc<[Conversion]>, usize),
}

/// Decodes an object of a request into its type.
pub(super) fn decode<K: DeserializeOwned>(object: &Value) -> Result<K, Denial> {
    K::deserialize(object).map_err(|err| bad_request(&format!("the object cannot be decoded: {err}")))
}

fn bad_request(message: &str) -> Denial {
    Denial::of_status(400, "BadRequest", message)
}

impl Endpoint {
    /// Handles a review.
    pub(super) async fn answer(self, request: Request<Body>) -> Response<Body> {
        let in_flight = self.stats.started();
        let read = read(request, self.longest()).await;
        let answered = match &self.what {
            What::Admission(decide) => to_json(&self.admission(read, decide).await),
            What::Conversion(conversions, _) => to_json(&self.conversion(read, conversions)),
        };
        let (code, body) = match answered {
            Ok(body) => (StatusCode::OK, body),
            Err(err) => (StatusCode::INTERNAL_SERVER_ERROR, err.into_bytes()),
        };
        in_flight.answered(code.as_u16());
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = code;
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    fn longest(&self) -> usize {
        match self.what {
            What::Admission(_) => REVIEW_BYTES_MAX,
            What::Conversion(_, longest) => longest,
        }
    }

    async fn admission(&self, read: Result<Bytes, Denial>, decide: &Deciding) -> Answered<AdmissionResponse> {
        let asked = read.and_then(|text| parse::<AdmissionRequest>(&text, "AdmissionReview", API_VERSION));
        let (uid, decided) = match asked {
            Err(denial) => (String::new(), Err(denial)),
            Ok(request) => {
                let uid = request.uid.clone();
                let span = span::of_admission(self.span.as_ref(), &self.path, &request);
                (uid, self.decide(request, decide).instrument(span).await)
            }
        };
        let decided = decided.unwrap_or_else(|denial| {
            let (status, warnings) = denial.into_parts();
            AdmissionResponse {
                warnings,
                ..AdmissionResponse::refused(status)
            }
        });
        Answered {
            api_version: API_VERSION,
            kind: "AdmissionReview",
            response: AdmissionResponse { uid, ..decided },
        }
    }

    /// Calls the user's code. A panic only fails the current request.
    async fn decide(&self, request: AdmissionRequest, decide: &Deciding) -> Result<AdmissionResponse, Denial> {
        let decided = AssertUnwindSafe(async { decide(request).await }).catch_unwind().await;
        let decided = decided.unwrap_or_else(|panic| {
            self.stats.panicked();
            let panic = text_of_panic(&*panic);
            tracing::error!(panic, "a webhook panicked");
            Err(Denial::errored(format!("panic: {panic} [recovered]")))
        });
        if let Err(denial) = &decided {
            tracing::debug!(%denial, "a webhook refused a request");
        }
        decided
    }

    fn conversion(&self, read: Result<Bytes, Denial>, conversions: &[Conversion]) -> Answered<ConversionResponse> {
        let asked = read.and_then(|text| parse::<ConversionRequest>(&text, "ConversionReview", CONVERSION_API_VERSION));
        let (uid, converted) = match asked {
            Err(denial) => (String::new(), Err(denial.to_string())),
            Ok(request) => {
                let span = span::conversion(&request.uid, &request.desired_api_version);
                let _entered = span.enter();
                let converted =
                    std::panic::catch_unwind(AssertUnwindSafe(|| conversion::convert(conversions, &request)));
                let converted = converted.unwrap_or_else(|panic| {
                    self.stats.panicked();
                    Err(format!("panic: {} [recovered]", text_of_panic(&*panic)))
                });
                (request.uid, converted)
            }
        };
        let (converted_objects, result) = match converted {
            Ok(objects) => (objects, Status::success()),
            Err(message) => (Vec::new(), Status::failure(&message, "")),
        };
        Answered {
            api_version: CONVERSION_API_VERSION,
            kind: "ConversionReview",
            response: ConversionResponse {
                uid,
                converted_objects,
                result,
            },
        }
    }
}

async fn read(request: Request<Body>, longest: usize) -> Result<Bytes, Denial> {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok()).unwrap_or_default();
    if content_type.split(';').next().map(str::trim) != Some("application/json") {
        let message = format!("contentType={content_type}, expected application/json");
        return Err(bad_request(&message));
    }
    let body = to_bytes(request.into_body(), longest).await;
    let body = body.map_err(|err| match err.source() {
        Some(source) if source.is::<LengthLimitError>() => {
            let message = format!("the review is longer than the maximum of {longest} bytes");
            Denial::of_status(413, "RequestEntityTooLarge", &message)
        }
        Some(_) | None => bad_request(&format!("the review cannot be read: {err}")),
    })?;
    if body.is_empty() {
        return Err(bad_request("request body is empty"));
    }
    Ok(body)
}

fn parse<R: DeserializeOwned>(text: &[u8], kind: &str, api_version: &str) -> Result<R, Denial> {
    let asked: Asked<R> =
        serde_json::from_slice(text).map_err(|err| bad_request(&format!("the review cannot be decoded: {err}")))?;
    if (asked.kind.as_str(), asked.api_version.as_str()) != (kind, api_version) {
        let (version, other) = (&asked.api_version, &asked.kind);
        return Err(bad_request(&format!(
            "expected {kind} of {api_version}, got {other} of {version}"
        )));
    }
    asked
        .request
        .ok_or_else(|| bad_request(&format!("the {kind} has no request")))
}

fn to_json(answer: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(answer).map_err(|err| format!("the response cannot be encoded: {err}"))
}
