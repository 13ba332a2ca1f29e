//! AdmissionReview: the request sent to a webhook, and the parsing of its response with all errors (rules P2 to P4).

use base64::Engine as _;

use super::attributes::Attributes;
use super::config::Webhook;
use crate::api::admission::{AdmissionRequest, Denial};
use crate::api::field::quote;
use crate::api::json::{Map, Value, json, type_name};
use crate::api::status::StatusDetails;
use crate::registry::types::review_version::ReviewVersion;
use crate::registry::webhook::call;
use crate::registry::webhook::transport::Transport;

/// Parsed response of a webhook.
#[derive(Debug, Default)]
pub(super) struct ReviewAnswer {
    pub(super) denied: Option<Denial>,
    /// The JSON patch; empty if the response does not contain one.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: Option<String>,
    pub(super) warnings: Vec<String>,
    /// Annotations for the audit event.
    pub(super) annotations: Vec<(String, String)>,
}

impl ReviewAnswer {
    /// Adds the warnings to the request, and the annotations with the webhook's name as prefix.
    pub(super) fn remark(&mut self, webhook: &Webhook, attributes: &Attributes<'_>) {
        attributes.remarks.warnings.extend(std::mem::take(&mut self.warnings));
        for (key, value) in std::mem::take(&mut self.annotations) {
            attributes.annotate(format!("{}/{key}", webhook.name), || value);
        }
    }
}

/// Calls a webhook. Fails with the part of the message after `failed calling webhook "w": `.
pub(super) async fn ask(
    transport: &dyn Transport,
    webhook: &Webhook,
    request: &AdmissionRequest,
    is_mutating: bool,
) -> Result<ReviewAnswer, String> {
    let version = webhook
        .review
        .ok_or("webhook does not accept known AdmissionReview versions (v1, v1beta1)")?;
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": version.in_group("admission.k8s.io"), "request": request.to_value(),
    });
    let reply = call(transport, &webhook.endpoint, webhook.timeout, &review)
        .await
        .and_then(|reply| check_types(&reply, version).map(|()| reply))
        .map_err(|why| format!("failed to call webhook: {why}"))?;
    read(&reply, version, &request.uid, is_mutating).map_err(|why| format!("received invalid webhook response: {why}"))
}

/// Checks the types of a review's fields. Fails with the messages of Go's decoder.
fn check_types(review: &Map, version: ReviewVersion) -> Result<(), String> {
    let Some(response) = review.get("response").filter(|it| !it.is_null()) else {
        return Ok(());
    };
    let package = version.name();
    let misfit = |value: &Value, field: String, kind: &str| {
        let found = type_name(value);
        format!("json: cannot unmarshal {found} into Go struct field {field} of type {kind}")
    };
    let Value::Object(response) = response else {
        let kind = format!("{package}.AdmissionResponse");
        return Err(misfit(response, "AdmissionReview.response".to_owned(), &kind));
    };
    let patch_type = format!("{package}.PatchType");
    let fields: [(&str, Fits, &str); 5] = [
        ("uid", Value::is_string, "types.UID"),
        ("allowed", Value::is_boolean, "bool"),
        ("patch", Value::is_string, "[]uint8"),
        ("patchType", Value::is_string, &patch_type),
        ("status", Value::is_object, "v1.Status"),
    ];
    for (name, fits, kind) in fields {
        if let Some(value) = response.get(name).filter(|it| !it.is_null() && !fits(it)) {
            return Err(misfit(value, format!("AdmissionResponse.response.{name}"), kind));
        }
    }
    for (name, of_list) in [("warnings", true), ("auditAnnotations", false)] {
        let Some(value) = response.get(name).filter(|it| !it.is_null()) else {
            continue;
        };
        let field = format!("AdmissionResponse.response.{name}");
        let mut texts: Vec<&Value> = match value {
            Value::Array(items) if of_list => items.iter().collect(),
            Value::Object(map) if !of_list => map.values().collect(),
            other => {
                return Err(misfit(
                    other,
                    field,
                    if of_list { "[]string" } else { "map[string]string" },
                ));
            }
        };
        texts.retain(|it| !it.is_string() && !it.is_null());
        if let Some(value) = texts.first() {
            return Err(misfit(value, field, "string"));
        }
    }
    let status = response.get("status").and_then(Value::as_object);
    let fields: [(&str, Fits, &str); 3] = [
        ("message", Value::is_string, "string"),
        ("reason", Value::is_string, "v1.StatusReason"),
        (
            "code",
            |it| it.as_i64().is_some_and(|it| i32::try_from(it).is_ok()),
            "int32",
        ),
    ];
    for (name, fits, kind) in fields {
        let value = status.and_then(|it| it.get(name));
        if let Some(value) = value.filter(|it| !it.is_null() && !fits(it)) {
            return Err(misfit(value, format!("Status.response.status.{name}"), kind));
        }
    }
    match response.get("patch").and_then(Value::as_str) {
        Some(patch) => decode_patch(patch).map(drop),
        None => Ok(()),
    }
}

/// Function that checks whether a value has the type of a field.
type Fits = fn(&Value) -> bool;

fn decode_patch(patch: &str) -> Result<Vec<u8>, String> {
    // Go's Base64 decoder skips line breaks.
    let text: String = patch.chars().filter(|it| !matches!(it, '\r' | '\n')).collect();
    let decoded = base64::engine::general_purpose::STANDARD.decode(&text);
    decoded.map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len(),
        };
        format!("illegal base64 data at input byte {at}")
    })
}

/// Reads the response of a review (rule P2), modelled on `VerifyAdmissionResponse` of k8s.io/apiserver.
fn read(review: &Map, version: ReviewVersion, uid: &str, is_mutating: bool) -> Result<ReviewAnswer, String> {
    let text = |map: &Map, key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
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
        Some(patch) => decode_patch(patch)?,
        None => Vec::new(),
    };
    if !is_v1 {
        // With v1beta1, the type of a patch is ignored, and so is the patch of a validating webhook.
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
    let annotations = response.get("auditAnnotations").and_then(Value::as_object);
    let annotations = annotations
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_owned())));
    Ok(ReviewAnswer {
        annotations: annotations.collect(),
        denied: (response.get("allowed") != Some(&Value::Bool(true))).then(|| denial(response.get("status"))),
        patch,
        patch_type,
        warnings: warnings.collect(),
    })
}

/// Reads the `status` of a response that denies the request.
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
            .and_then(|it| serde_json::from_value::<StatusDetails>(it.clone().into()).ok())
            .map(Box::new),
    }
}
